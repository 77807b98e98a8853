"""Under which keys results are kept: digests of whatever could change them, and of nothing else.

What every key holds: the context (`context.py`), and of the tree the place, kind and mode of each file, and of content

- of Python files the syntax tree, without comments, docstrings and positions, so that what only moves or explains code
  changes nothing; docstrings count where some file asks for them;
- of pages and pictures nothing, unless the unmutated run read them;
- of every other file all of it, and of any file that the unmutated run read as text; of the whole tree, where the run
  started a process, which may read anything.

The narrow key of a mutant that was run with chosen tests holds of the other tests' statements nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from fastlora_verify.harness.runner.evidence import SuiteFacts
from fastlora_verify.harness.runner.normal import Normal, PartedFile, docs_matter
from fastlora_verify.harness.runner.store import digest
from fastlora_verify.harness.trees.tree import Master
from fastlora_verify.mutations.base import Mutant, Probes

_PAGES = frozenset({".md", ".rst", ".adoc", ".svg", ".png", ".jpg", ".jpeg", ".gif", ".pdf", ".ipynb"})
_NAMED_PAGES = frozenset({"LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS", "CODEOWNERS", "CHANGES", "CHANGELOG"})
_GIT = frozenset({".gitignore", ".gitattributes", ".editorconfig", ".mailmap"})
_FORMS = ("", ".txt")


@dataclass(frozen=True)
class Read:
    """What of its tree the unmutated run read as text: those files count with every byte."""

    files: Mapping[str, str]  # by path: SHA-256 of the content
    tree: str = ""  # the digest of the whole tree, where a process was started


class Keys:
    """The keys of one column. `context` is that of `context.context_key`."""

    def __init__(self, context: str, master: Master, normal: Normal) -> None:
        self._context = context
        self._master = master
        self._normal = normal

    @cached_property
    def _contents(self) -> dict[str, bytes]:
        """The Python files."""
        entries = self._master.entries.items()
        names = [name for name, entry in entries if entry.kind == "file" and name.endswith(".py")]
        return {name: (self._master.path / name).read_bytes() for name in names}

    @cached_property
    def _docs(self) -> bool:
        return docs_matter([self._context.encode(), *self._contents.values()])

    @cached_property
    def _forms(self) -> dict[str, list[str]]:
        """What counts of each file."""
        found = {}
        for name, entry in self._master.entries.items():
            content = entry.content
            if name in self._contents:
                content = self._normal.code(self._contents[name], docs=self._docs)
            elif entry.kind == "file" and is_page(name):
                content = ""
            found[name] = [entry.kind, f"{entry.mode:o}", content]
        return found

    @cached_property
    def tree(self) -> str:
        """Of the context and the tree, but for what the unmutated run read as text."""
        return digest(self._context, self._forms)

    def source(self, text: str) -> str:
        """Of a Python file that is not in the tree."""
        return self._normal.code(text.encode("utf-8", "surrogatepass"), docs=self._docs)

    def read(self, facts: SuiteFacts) -> Read:
        """What a run of the unmutated suite read."""
        files = {path: self._content(path) for path in facts.reads if path in self._master.entries}
        return Read(files, self._master.digest if facts.starts else "")

    def holds(self, read: Read) -> bool:
        """Whether what was read then is the same now."""
        same = all(self._content(path) == content for path, content in read.files.items())
        return same and read.tree in ("", self._master.digest)

    def _content(self, path: str) -> str:
        entry = self._master.entries.get(path)
        return entry.content if entry is not None else ""

    def exact(self, mutant: Mutant, asked: str, read: Read) -> str:
        """The key of a mutant where nothing changed that counts; `asked` is what of the tests."""
        return digest(self.tree, asked, read.files, read.tree, self._mutant(mutant))

    def narrow(self, mutant: Mutant, asked: str, read: Read, tests: Tests, chosen: Iterable[str]) -> str | None:
        """The key of a mutant that only these tests can see; None where other tests' statements may matter."""
        bodies = tests.bodies(chosen)
        if bodies is None:
            return None
        others = {name: form for name, form in self._forms.items() if name not in tests.files}
        common = [self._context, others, tests.common, read.files, read.tree]
        return digest(common, bodies, asked, sorted(chosen), self._mutant(mutant))

    def tests(self, facts: SuiteFacts) -> Tests:
        """The tests of the unmutated run, by their files."""
        return tests_of(facts, self._contents, self._normal)

    def _mutant(self, mutant: Mutant) -> str:
        changes = [
            (change.path, change.source if change.source is None else self._mutated(change.source, change.probes))
            for change in mutant.changes
        ]
        return digest(mutant.name, changes, mutant.new_names, mutant.kernels)

    def _mutated(self, source: str, probes: Probes) -> str:
        lines = [*probes.reached, -1, *probes.triggered]
        return self._normal.probed(source, lines, docs=self._docs)


def is_page(path: str) -> bool:
    """Whether a file is there for people: no code reads it, unless it is seen to."""
    pure = PurePosixPath(path)
    if pure.suffix.lower() in _PAGES or pure.name in _GIT:
        return True
    return pure.stem.upper() in _NAMED_PAGES and pure.suffix.lower() in _FORMS


@dataclass(frozen=True)
class Tests:
    """The files of the collected tests. A test is none of them where its function is not found."""

    files: Mapping[str, PartedFile]  # by path in the copy
    places: Mapping[str, tuple[str, str]]  # by test: (path, function)
    outcomes: str  # of every test on the unmutated tree

    @cached_property
    def common(self) -> str:
        """What of these files counts for every test: all but the statements of tests."""
        own = set(self.places.values())
        found = {}
        for path, file in self.files.items():
            others = {name: body for name, body in file.functions.items() if (path, name) not in own}
            found[path] = [file.outline, others]
        return digest(found, self.outcomes)

    def bodies(self, chosen: Iterable[str]) -> dict[str, str] | None:
        """The statements of these tests; None where one isn't found."""
        found = {}
        for test in chosen:
            if test not in self.places:
                return None
            path, function = self.places[test]
            found[f"{path}::{function}"] = self.files[path].functions[function]
        return found


def tests_of(facts: SuiteFacts, contents: Mapping[str, bytes], normal: Normal) -> Tests:
    """Each test with its function.

    All of a file counts that another one names, and so may import; and the statements of a function that is used.
    """
    split = {test: _split(test) for test in facts.tests}
    by_id = {path: _file(path, contents) for path in {path for path, _ in split.values()}}
    named = {path: normal.tests(data) for path, data in contents.items()}
    files = {}
    for path in sorted({path for path in by_id.values() if path}):
        file = named[path]
        importers = (other for name, other in named.items() if name != path)
        stem = PurePosixPath(path).stem
        if file is not None and not any(other is None or stem in other.names for other in importers):
            files[path] = file
    places = {}
    for test, (id_, function) in split.items():
        path = by_id[id_]
        if path in files and function in files[path].functions and function.split(".")[-1] not in files[path].uses:
            places[test] = (path, function)
    outcomes = [[t.test, t.category, t.reason, t.gpu] for t in (*facts.tests.values(), *facts.collected.values())]
    return Tests(files, places, digest(outcomes, facts.collected_digest))


def _split(test: str) -> tuple[str, str]:
    """A test's id as file and function: `a/test_b.py::TestC::test_d[e::f]` as `a/test_b.py`, `TestC.test_d`."""
    path, _, rest = test.partition("[")[0].partition("::")
    return path, rest.replace("::", ".")


def _file(path: str, contents: Mapping[str, bytes]) -> str:
    """The file that an id means, which begins at pytest's root, wherever that is; empty where it isn't clear."""
    found = [name for name in contents if name == path or name.endswith(f"/{path}")]
    return found[0] if len(found) == 1 else ""
