"""Which lines of the mutated file ran, per test, without changing the file that `inspect` and tests read.

The file is compiled with a call before each probed statement. The marks lie in shared memory, so that threads
and forked processes of a test count for it; a new interpreter that a test starts does not.
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, cast

from fastlora_verify.harness.child.elsewhere import watch_elsewhere

HIT = "__fastlora_verify_hit__"
REACHED, TRIGGERED = 0, 1
ELSEWHERE = 2  # a new process was started, or a probed file was read as text: what ran there isn't seen
FIRST = 3  # the marks of a map's functions begin here

Marks = frozenset[int]
Block = list[ast.stmt]


class Probe:
    """The marks of one run. `files` maps a real path to its (reached, triggered) lines.

    `mapped` maps a real path to the lines of its functions' first statements: the mark of the n-th line, over all
    files in their order, is `FIRST + n`.
    """

    def __init__(
        self,
        files: dict[str, tuple[Sequence[int], Sequence[int]]],
        watched: Iterable[str] = (),
        mapped: dict[str, Sequence[int]] | None = None,
    ) -> None:
        self.files = files
        self.mapped = mapped or {}
        self._starts: dict[str, int] = {}
        count = FIRST
        for path, lines in self.mapped.items():
            self._starts[path] = count
            count += len(lines)
        self.watched = frozenset(watched) | frozenset(files)
        self.import_errors: list[tuple[str, BaseException]] = []  # (path, what its import raised)
        self.missing: list[int] = []  # probed lines that no statement covers
        self.imported: Callable[[ModuleType], object] = lambda module: None  # called after each import from a source
        self._marks = mmap.mmap(-1, count)
        self._clear = bytes(count)

    def take(self) -> Marks:
        """What was hit since the last call."""
        taken = self._marks[:]
        if taken == self._clear:
            return frozenset()
        self._marks[:] = self._clear
        return frozenset(index for index, mark in enumerate(taken) if mark)

    def put(self, marks: Marks) -> None:
        """Adds `marks` to what was hit."""
        for index in marks:
            self._marks[index] = 1

    def install(self) -> None:
        """Hooks the import of source files, pytest's assertion rewriting included."""
        marks = self._marks

        def hit(index: int) -> None:
            marks[index] = 1

        setattr(builtins, HIT, hit)
        _hook_loader(self)
        _hook_rewriting(self)
        if self.mapped:
            watch_elsewhere(lambda: hit(ELSEWHERE), frozenset(self.mapped))

    def instrumented(self, tree: ast.Module, path: str) -> ast.Module:
        """`tree` with the probes of `path` in it."""
        reached, triggered = self.files.get(path, ((), ()))
        self.missing += [line for line in reached if not insert_probe(tree, line, REACHED)]
        self.missing += [line for line in triggered if not insert_probe(tree, line, TRIGGERED)]
        for index, line in enumerate(self.mapped.get(path, ()), self._starts.get(path, 0)):
            if not insert_probe(tree, line, index):
                self.missing.append(line)
        return tree

    def probes(self, path: str) -> bool:
        """Whether any probe belongs into the file."""
        return path in self.files or path in self.mapped


def _hook_loader(probe: Probe) -> None:
    loader = cast(Any, importlib.machinery.SourceFileLoader)
    to_code, exec_module = loader.source_to_code, loader.exec_module

    def source_to_code(self: Any, data: Any, path: Any, **options: Any) -> Any:
        real = os.path.realpath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else ""
        if not probe.probes(real) or isinstance(data, ast.AST):
            return to_code(self, data, path, **options)
        tree = probe.instrumented(ast.parse(data, filename=path), real)
        return compile(tree, path, "exec", dont_inherit=True, optimize=options.get("_optimize", -1))

    def exec_module_watched(self: Any, module: ModuleType) -> None:
        try:
            exec_module(self, module)
        except BaseException as error:
            path = os.path.realpath(self.path)
            if path in probe.watched:
                probe.import_errors.append((path, error))
            raise
        probe.imported(module)

    loader.source_to_code, loader.exec_module = source_to_code, exec_module_watched


def _hook_rewriting(probe: Probe) -> None:
    try:
        from _pytest.assertion import rewrite
    except ImportError:
        return
    rewrite_asserts: Callable[..., None] = rewrite.rewrite_asserts

    def probed(mod: ast.Module, source: bytes, module_path: str | None = None, *rest: Any, **named: Any) -> None:
        real = os.path.realpath(module_path) if module_path else ""
        if probe.probes(real):
            probe.instrumented(mod, real)
        rewrite_asserts(mod, source, module_path, *rest, **named)

    rewrite.rewrite_asserts = probed


def insert_probe(tree: ast.Module, line: int, index: int) -> bool:
    """Puts a probe before the statement at `line`; False when no statement covers that line.

    Of several statements that begin on the line, *reached* takes the outermost and *triggered* the innermost:
    `if x: return y` on one line is reached at `if` and triggered at `return`.
    """
    place = _place(tree, line, outermost=index != TRIGGERED)
    if place is None:
        return False
    owner, block, statement = place
    at = _first_free(owner, block, block.index(statement))
    call = ast.Call(ast.Name(HIT, ast.Load()), [ast.Constant(index)], [])
    probe = ast.copy_location(ast.Expr(call), statement)
    block.insert(at, ast.fix_missing_locations(probe))
    return True


def _place(tree: ast.Module, line: int, *, outermost: bool) -> tuple[ast.AST, Block, ast.stmt] | None:
    spots = [
        (owner, block, stmt)
        for owner, block in _blocks(tree)
        for stmt in block
        if _begin(stmt) <= line <= (stmt.end_lineno or stmt.lineno)
    ]
    starting = [spot for spot in spots if line in (_begin(spot[2]), spot[2].lineno)]
    if starting:
        return starting[0] if outermost else starting[-1]
    headed = [  # `except E:` and `case P:` are no statements: their bodies stand for them
        (owner, block, block[0])
        for owner, block in _blocks(tree)
        if isinstance(owner, ast.ExceptHandler | ast.match_case) and _header(owner) == line
    ]
    if headed:
        return headed[-1]
    return min(spots, key=lambda spot: _span(spot[2]), default=None)


def _blocks(tree: ast.AST) -> Iterable[tuple[ast.AST, Block]]:
    """Every list of statements with its owner, outer ones before inner ones."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        block = getattr(tree, field, None)
        if not isinstance(block, list):
            continue
        if block and isinstance(block[0], ast.stmt):
            yield tree, block
        for node in block:
            yield from _blocks(node)


def _begin(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(decorator.lineno for decorator in decorators)])


def _span(statement: ast.stmt) -> int:
    return (statement.end_lineno or statement.lineno) - _begin(statement)


def _header(owner: ast.ExceptHandler | ast.match_case) -> int:
    node: Any = owner if isinstance(owner, ast.ExceptHandler) else owner.pattern
    return int(node.lineno)


def _first_free(owner: ast.AST, block: Block, at: int) -> int:
    """The first place from `at` on that is behind a docstring and the imports from `__future__`."""
    if not isinstance(owner, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return at
    if at == 0 and ast.get_docstring(owner, clean=False) is not None:
        at = 1
    while at < len(block) and _is_future(block, at):
        at += 1
    return at


def _is_future(block: Block, at: int) -> bool:
    return any(isinstance(stmt, ast.ImportFrom) and stmt.module == "__future__" for stmt in block[at:])
