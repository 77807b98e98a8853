"""The reference kernels as a package of another name, so that a mutant of one module can be run in this process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from fastlora_verify.mutations.base import Mutant
from fastlora_verify.mutations.source import SourceFile

PACKAGE = "fastlora_verify.kernels"
COPY = "reference_kernels_copied"


class ReferenceCopy:
    """A folder with the kernel modules under `reference_kernels_copied`."""

    def __init__(self, folder: Path, sources: Mapping[str, SourceFile]) -> None:
        self.folder = folder / COPY
        self.folder.mkdir()
        self.sources = {name: file for name, file in sources.items() if name.startswith(f"{PACKAGE}.")}
        for name, file in self.sources.items():
            self._write(name, file.text)

    def _write(self, module: str, text: str) -> None:
        path = self.folder / f"{module.removeprefix(f'{PACKAGE}.')}.py"
        path.write_text(text.replace(PACKAGE, COPY), encoding="utf-8")

    @contextmanager
    def kernel(self, name: str, mutant: Mutant | None = None) -> Iterator[ModuleType]:
        """The module of a kernel, imported anew, with a mutant in place."""
        if mutant is not None:
            self._write(mutant.module, mutant.source)
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        sys.path.insert(0, str(self.folder.parent))
        try:
            for loaded in [m for m in sys.modules if m.startswith(COPY)]:
                del sys.modules[loaded]
            importlib.invalidate_caches()
            yield importlib.import_module(f"{COPY}.{name}")
        finally:
            sys.path.remove(str(self.folder.parent))
            sys.dont_write_bytecode = writes
            if mutant is not None:
                self._write(mutant.module, self.sources[mutant.module].text)
