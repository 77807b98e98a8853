"""Records of one tree on different machines, made by hand: nothing here ran on a card."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from synthetic_record import NF4, cpu, delegation, killers, synthetic_record

from fastlora_verify.reports import record as rec
from fastlora_verify.reports.trees import digest_of, sealed

SOURCE = {"src/pkg/linear.py": "a" * 64, "src/pkg/helper.py": "b" * 64}
TESTS = {"tests/test_pin.py": "c" * 64, "tests/conftest.py": "d" * 64}
ON_CPU = rec.Environment(python="3.11.2", torch="2.13.0", peft="0.21.2", cpu="CI's CPU")
ON_CARD = rec.Environment(python="3.12.1", torch="2.13.0+cu130", peft="0.21.2", cpu="Their CPU", device_name="A Card")
CARD_KILLER = rec.Killer(test=NF4, exception="AssertionError", message="grad_fn is AddBackward0", gpu=True)
PLAIN_KILLERS = tuple(dataclasses.replace(killer, gpu=False) for killer in killers("bf16-2d-T", "bf16-3d-T"))

KILLED = cpu(status="killed", how="assertion", passed=35, failed=2, killers=PLAIN_KILLERS)
SURVIVED = cpu(status="survived", passed=37, triggered=0)
KILLED_BY_MARKED = cpu(status="killed", how="assertion", passed=38, failed=1, skipped=0, killers=(CARD_KILLER,))
KILLED_BY_BOTH = dataclasses.replace(KILLED_BY_MARKED, failed=3, killers=(*PLAIN_KILLERS, CARD_KILLER))
SURVIVED_ON_CARD = cpu(status="survived", passed=39, skipped=0)


def column(id_: str, environment: rec.Environment, **changes: object) -> rec.Column:
    """A column of the one tree; `id_` is TREE:DEVICE."""
    device = id_.rpartition(":")[2]
    base = {column.device: column for column in synthetic_record().columns}[device]
    values: dict[str, object] = {
        "id": id_,
        "source_rev": "0" * 40,
        "tests_rev": "0" * 40,
        "source_digest": digest_of(SOURCE),
        "tests_digest": digest_of(TESTS),
        "environment": environment,
        "device_name": environment.device_name if device != "cpu" else None,
    }
    return sealed(dataclasses.replace(base, **(values | changes)))  # type: ignore[arg-type]


def record_of(
    columns: tuple[rec.Column, ...], results: Mapping[str, Mapping[str, rec.Result]], **changes: object
) -> rec.RunRecord:
    """A record of these columns, and of mutants by what they are called, each with its results by column."""
    values: dict[str, object] = {
        "columns": columns,
        "environment": columns[0].environment,
        "mutants": tuple(delegation(what, f"x is {what}", dict(found)) for what, found in results.items()),
        "oracles": (),
        "no_sites": (),
        "audit": None,
        "files": {digest_of(SOURCE): SOURCE, digest_of(TESTS): TESTS},
    }
    return dataclasses.replace(synthetic_record(), **(values | changes))  # type: ignore[arg-type]


def of_ci(results: Mapping[str, rec.Result], **changes: object) -> rec.RunRecord:
    """A record that CI may have written: one CPU column."""
    found = {what: {"head:cpu": result} for what, result in results.items()}
    return record_of((column("head:cpu", ON_CPU),), found, **changes)


def of_a_card(results: Mapping[str, rec.Result], **changes: object) -> rec.RunRecord:
    """A record that a maintainer's machine may have written: one column of a card."""
    found = {what: {"head:cuda": result} for what, result in results.items()}
    changes = {"started_at": "2026-01-05T06:07:08+00:00", "command": ("fastlora-verify", "mutate", "--all")} | changes
    return record_of((column("head:cuda", ON_CARD),), found, **changes)
