"""Reports as tests read them: tables taken apart, records that are long or full of hostile text."""

from __future__ import annotations

import dataclasses

from synthetic_record import arms_of, cpu, delegation, killers, seen, synthetic_record

from fastlora_verify.reports import record as rec

ALLOWED_TAGS = {
    *(
        "h2",
        "h3",
        "h4",
        "p",
        "strong",
        "em",
        "ul",
        "li",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
        "pre",
    ),
    *("details", "summary"),
}


def rows_of(text: str) -> dict[str, list[str]]:
    split = (line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| "))
    rows: dict[str, list[str]] = {}
    for cells in split:
        rows.setdefault(cells[0], cells[1:])
    return rows


def many(count: int, survivors: int = 0) -> rec.RunRecord:
    killed = {"head:cpu": cpu(status="killed", how="assertion", failed=12, killers=killers(*arms_of("bf16")))}
    alive = {"head:cpu": cpu(status="survived", passed=37, triggered=3)}
    mutants = tuple(
        delegation(f"number-{i}", f"x.dim() == {i}", alive if i < survivors else killed, family=f"family {i % 7}")
        for i in range(count)
    )
    return dataclasses.replace(synthetic_record(), mutants=mutants)


def hostile(text: str) -> rec.RunRecord:
    """A record in which everything that a target can write is `text`."""
    killer = rec.Killer(test=f"a.py::t[{text}]", exception=text, message=text, effect=text, how="exception")
    reached = (rec.ReachedTest(test=text, triggered=True),)
    results = (
        cpu(status="survived", passed=1, reached_tests=reached),
        cpu(status="killed", how="exception", failed=0, killers=(killer,)),
        cpu(status="crash", note=text),
    )
    mutants = tuple(
        delegation(
            f"{i}{text}",
            text,
            {"head:cpu": result},
            gist=text,
            diff=text,
            scope=text,
            kernels=(text, f"k{i}"),
            family=text,
            file=text,
            oracles=(dataclasses.replace(seen(text), oracle=text),),
            allowed=text if i == 3 else None,
        )
        for i, result in enumerate((*results, results[0]))
    )
    base = synthetic_record()
    figure = rec.Figure(name=text, value=text, limit=text, unit=text)
    answer = rec.OracleRecord(oracle=text, kernel=text, ok=True, summary=text, figures=(figure,))
    return dataclasses.replace(
        base,
        tool_version=text,
        command=(text,),
        started_at=text,
        saved_as=text,
        target=rec.TargetRecord(name=text, file=text, kernels=(text,), tests=(text,)),
        environment=rec.Environment(python=text, torch=text, cpu=text, device_name=text),
        columns=(
            dataclasses.replace(base.columns[0], source_rev=text, notes=(text,), device_name=text),
            rec.Column(id=f"c{text}", device="cuda", not_run=text),
        ),
        mutants=mutants * 9 if len(text) % 2 else mutants,
        no_sites=(rec.NoSiteRecord(mutation=text, kernel=text, reason=text),),
        oracles=(answer,),
        audit=rec.Audit(
            checked=1,
            differences=(rec.AuditDifference(mutant=text, column=text, recorded=text, plain=text),),
        ),
    )
