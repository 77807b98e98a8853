"""Plans kept in a run's folder: the same sources, roles and mutations are planned once."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from fastlora_verify import mutations as package
from fastlora_verify.harness.plain import from_plain, to_plain
from fastlora_verify.harness.spared import drop_oldest, write_spared
from fastlora_verify.mutations.base import KernelRoles, Mutation
from fastlora_verify.mutations.plan import Plan
from fastlora_verify.mutations.source import SourceFile

FOLDER = "plans"
_MOST = 8  # plans that are kept


class Plans:
    """The plans of one run folder; without `resume` each is made anew."""

    def __init__(self, run_dir: Path, *, resume: bool = True) -> None:
        self._folder = run_dir / FOLDER
        self._resume = resume

    def kept(
        self,
        sources: Mapping[str, SourceFile],
        kernels: Sequence[KernelRoles],
        instruments: Sequence[str],
        mutations: Sequence[Mutation],
        make: Callable[[], Plan],
    ) -> Plan:
        """The plan that `make` makes of the others. Mutations from elsewhere may do anything: they plan each time."""
        if any(mutation.origin for mutation in mutations):
            return make()
        files = [[name, file.path, file.text] for name, file in sources.items()]
        asked = [files, to_plain(tuple(kernels)), list(instruments), [mutation.id for mutation in mutations]]
        text = json.dumps([_tool(), asked], sort_keys=True).encode("utf-8", "surrogatepass")
        path = self._folder / f"{hashlib.sha256(text).hexdigest()}.json"
        plan = _read(path) if self._resume else None
        if plan is None:
            plan = make()
            self._write(path, plan)
        return plan

    def _write(self, path: Path, plan: Plan) -> None:
        write_spared(path, json.dumps(to_plain(plan), separators=(",", ":")).encode("utf-8", "surrogatepass"))
        drop_oldest(self._folder, _MOST)


def _read(path: Path) -> Plan | None:
    try:
        plan: Plan = from_plain(Plan, json.loads(path.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return plan


@cache
def _tool() -> str:
    """What makes plans: the code of the mutations, Python, LibCST."""
    total = hashlib.sha256(f"{sys.version} {metadata.version('libcst')}".encode())
    assert package.__file__ is not None
    folder = Path(package.__file__).resolve().parent
    for path in [*sorted(folder.rglob("*.py")), Path(__file__), Path(__file__).with_name("plain.py")]:
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()
