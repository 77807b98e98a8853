"""Parsed target modules: scopes by name, text by node, edits by span.

An edit is made on the text and found on the tree: everything outside the edited span keeps its bytes,
so a mutant's diff is as small as the one that a reviewer would make by hand.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from fastlora_verify.mutations.symbols import Symbols, symbols
from fastlora_verify.mutations.tree import children


@dataclass(frozen=True)
class SourceFile:
    """One source file of the target."""

    module: str  # dotted name
    path: str  # relative to the scratch copy
    text: str  # newlines as in the file


@dataclass(frozen=True)
class Edit:
    """Replace the bytes `start:end` of a module's text. `fires` marks the text whose running triggers the mutant."""

    start: int
    end: int
    text: str
    fires: int | None = 0  # offset into `text` of the statement that triggers; None: this edit triggers nothing


Definition = cst.FunctionDef | cst.ClassDef


class ParsedModule:
    """A module's tree with positions, parents and scopes."""

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.name = file.module
        self.tree: cst.Module = cst.parse_module(file.text)
        # A freshly parsed tree holds no node twice, so it needn't be copied.
        self._spans = MetadataWrapper(self.tree, unsafe_skip_copy=True).resolve(ByteSpanPositionProvider)
        self._parents = _parents(self.tree)
        self._bytes = file.text.encode()
        self.line_starts = line_starts(self._bytes)
        self.newline = self.tree.default_newline

    def holds(self, node: cst.CSTNode) -> bool:
        """Whether a node, white space aside, is one of this module's."""
        return node in self._parents

    @cached_property
    def python(self) -> ast.Module:
        """The module as Python's own parser sees it."""
        return ast.parse(self.file.text)

    @cached_property
    def symbols(self) -> Symbols:
        return symbols(self.file.text)

    @cached_property
    def scopes(self) -> Mapping[str, Definition]:
        """Every function and class by its dotted name inside the module; of two with one name the last wins."""
        found: dict[str, Definition] = {}
        stack: list[tuple[str, cst.CSTNode]] = [("", self.tree)]
        while stack:
            prefix, node = stack.pop()
            for child in children(node):
                inner = prefix
                if isinstance(child, cst.FunctionDef | cst.ClassDef):
                    inner = f"{prefix}.{child.name.value}" if prefix else child.name.value
                    found[inner] = child
                stack.append((inner, child))
        return found

    @cached_property
    def _names(self) -> Mapping[cst.CSTNode, str]:
        return {node: name for name, node in self.scopes.items()}

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self._parents.get(node)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around `node`, the nearest first."""
        above = self.parent(node)
        while above is not None:
            yield above
            above = self.parent(above)

    def enclosing(self, node: cst.CSTNode) -> str:
        """The dotted name of the function or class around `node` ("" at module level)."""
        return next((self._names[a] for a in self.ancestors(node) if a in self._names), "")

    def statement(self, node: cst.CSTNode) -> cst.BaseStatement:
        """The whole statement (a line, or a compound one) that `node` stands in."""
        for candidate in (node, *self.ancestors(node)):
            if isinstance(candidate, cst.BaseStatement):
                return candidate
        raise ValueError("a module is not inside a statement")

    def code(self, node: cst.CSTNode) -> str:
        """The node's own text, parentheses around it included, as it stands in the file."""
        start, end = self.span(node)
        return self._bytes[start:end].decode()

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        span = self._spans[node]
        start, end = span.start, span.start + span.length
        if isinstance(node, cst.BaseExpression):
            # A position leaves the node's own parentheses out; an edit must not tear them.
            if node.lpar:
                start = self._spans[node.lpar[0]].start
            if node.rpar:
                last = self._spans[node.rpar[-1]]
                end = last.start + last.length
        return start, end

    def word(self, node: cst.CSTNode) -> tuple[int, int]:
        """The bytes of a node alone, parentheses around it left out."""
        span = self._spans[node]
        return span.start, span.start + span.length

    def text_between(self, start: int, end: int) -> str:
        return self._bytes[start:end].decode()

    def line(self, node: cst.CSTNode) -> int:
        """The line, from 1, that a node starts on."""
        return self.line_at(self._spans[node].start)

    def line_at(self, offset: int) -> int:
        """The line, from 1, of a byte."""
        return bisect_right(self.line_starts, offset)

    def indent(self, statement: cst.CSTNode) -> str:
        """The white space in front of a statement."""
        start, _ = self.span(statement)
        line_start = self._bytes.rfind(b"\n", 0, start) + 1
        head = self._bytes[line_start:start].decode()
        return head[: len(head) - len(head.lstrip())]

    # -- edits ------------------------------------------------------------------------------------------

    def replace(self, node: cst.CSTNode, text: str, *, fires: bool = True) -> Edit:
        """Put `text` in a node's place, in parentheses where it would otherwise come apart."""
        start, end = self.span(node)
        if isinstance(node, cst.BaseExpression) and self._binds(node) and not is_closed(text):
            text = f"({text})"
        return Edit(start, end, text, 0 if fires else None)

    def _binds(self, node: cst.BaseExpression) -> bool:
        """Whether what stands around an expression binds tighter than some operators."""
        around = self.parent(node)
        if isinstance(around, cst.Attribute | cst.Subscript):
            return around.value is node
        if isinstance(around, cst.Call):
            return around.func is node
        tight = cst.BinaryOperation | cst.UnaryOperation | cst.Comparison | cst.ComparisonTarget | cst.Await
        return isinstance(around, tight)

    def insert_before(self, statement: cst.CSTNode, lines: Sequence[str], *, fires: int | None = 0) -> Edit:
        """Put `lines` (indented against each other only) in front of a statement.

        `fires` is the index of the line whose running triggers the mutant.
        """
        decorators = getattr(statement, "decorators", ())
        start, _ = self.span(decorators[0] if decorators else statement)
        pad = self.indent(statement)
        body = "".join(f"{line}{self.newline}{pad}" for line in lines)
        if fires is None:
            return Edit(start, start, body, None)
        skipped = sum(len(f"{line}{self.newline}{pad}".encode()) for line in lines[:fires])
        skipped += len(lines[fires]) - len(lines[fires].lstrip())
        return Edit(start, start, body, skipped)

    def apply(self, edits: Sequence[Edit]) -> tuple[str, tuple[int, ...]]:
        """The edited text, and the byte offsets in it that trigger the mutant."""
        out = bytearray()
        cursor, fired = 0, []
        for edit in sorted(edits, key=lambda e: e.start):
            if edit.start < cursor:
                raise ValueError("overlapping edits")
            out += self._bytes[cursor : edit.start]
            if edit.fires is not None:
                fired.append(len(out) + edit.fires)
            out += edit.text.encode()
            cursor = edit.end
        out += self._bytes[cursor:]
        return out.decode(), tuple(fired)


def line_starts(text: bytes) -> list[int]:
    """The offset of every line, as Python counts lines."""
    return [0, *(match.end() for match in re.finditer(rb"\r\n|\r|\n", text))]


def _parents(tree: cst.Module) -> dict[cst.CSTNode, cst.CSTNode]:
    """The parent of every node but white space."""
    parents: dict[cst.CSTNode, cst.CSTNode] = {}
    stack: list[cst.CSTNode] = [tree]
    while stack:
        node = stack.pop()
        for child in children(node):
            parents[child] = node
            stack.append(child)
    return parents


CLOSED = (ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Call, ast.List, ast.Dict, ast.Set, ast.ListComp)


def is_closed(text: str) -> bool:
    """Whether an expression holds together wherever it is put."""
    try:
        tree = ast.parse(text, mode="eval").body
        bare = ast.parse(f"{text} .a", mode="eval").body
    except SyntaxError:
        return False
    if isinstance(tree, CLOSED):
        return True
    # Text in parentheses of its own: an attribute of it is one of the whole.
    return isinstance(bare, ast.Attribute) and ast.dump(bare.value) == ast.dump(tree)


class TargetSource:
    """All parsed modules of a target."""

    def __init__(self, files: Mapping[str, SourceFile]) -> None:
        self.modules = {name: ParsedModule(file) for name, file in files.items()}

    @cached_property
    def methods(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """(module, scope) of every method, by its bare name."""
        found: dict[str, list[tuple[str, str]]] = {}
        for module in self.modules.values():
            for scope, node in module.scopes.items():
                outer = module.scopes.get(scope.rpartition(".")[0])
                if isinstance(node, cst.FunctionDef) and isinstance(outer, cst.ClassDef):
                    found.setdefault(node.name.value, []).append((module.name, scope))
        return found

    def resolve(self, scope: str) -> tuple[ParsedModule, str, Definition]:
        """`package.module:outer.inner` to its module and definition. Raises `LookupError` with the nearest names."""
        module_name, _, inner = scope.partition(":")
        module = self.modules.get(module_name)
        if module is None:
            raise LookupError(f"no module {module_name!r} among {sorted(self.modules)}")
        node = module.scopes.get(inner)
        if node is None:
            import difflib

            near = difflib.get_close_matches(inner, module.scopes, n=3, cutoff=0.3)
            raise LookupError(f"no scope {inner!r} in {module_name}; the nearest are {near or sorted(module.scopes)}")
        return module, inner, node
