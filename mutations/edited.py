"""Any edit as a mutant: texts before and after, checked as those of the catalogue are, and more strictly for names.

What a person writes, a diff holds or a revision had is not made by us, so every name that it reads must have a value at
its place: a local that is bound further down, a name behind `if TYPE_CHECKING:` or one that the edit itself takes away
would fail every test, and tell nothing.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from fastlora_verify.mutations.base import Changed, KernelRoles, Mutant
from fastlora_verify.mutations.build import unified
from fastlora_verify.mutations.part import same
from fastlora_verify.mutations.places import FileEdit, common_scope, first_line, probes_of, scopes_of
from fastlora_verify.mutations.reads import Unbound, unbound


class BadEditError(Exception):
    """An edit that is no mutant; `unbound` are the names that it lacks, where that is why.

    `is_same`: it changes comments, docstrings and white space at most.
    """

    def __init__(self, problem: str, names: Sequence[Unbound] = (), *, is_same: bool = False) -> None:
        super().__init__(problem)
        self.unbound = tuple(names)
        self.is_same = is_same


@dataclass(frozen=True)
class Label:
    """What a mutant is called."""

    mutation: str
    what: str
    gist: str
    scope: str | None = None  # None: the one that all places of the first file have in common


def build_edit(label: Label, edits: Sequence[FileEdit], kernels: Sequence[KernelRoles]) -> Mutant:
    """The mutant that all the edits make together. Raises `BadEditError`."""
    edits = sorted(edits, key=lambda e: (e.after is None, e.before is None))
    first = edits[0]
    if first.after is None:
        raise BadEditError("only takes files away")
    for edit in edits:
        _check(edit)
    if all(_is_same(edit) for edit in edits):
        raise BadEditError("does not differ once comments, docstrings and white space are gone", is_same=True)
    names = [name for edit in edits for name in _unbound(edit)]
    if names:
        raise BadEditError("; ".join(dict.fromkeys(map(_told, names))), names)
    scope = common_scope(first) if label.scope is None else label.scope
    place = f"{first.module}:{scope}" if scope else first.module
    changed = [Changed(e.path, e.after, probes_of(e)) for e in edits]
    return Mutant(
        name=f"{label.mutation}@{place}[{label.what}]",
        mutation=label.mutation,
        family=label.mutation,
        kernels=tuple(dict.fromkeys(k for e in edits for s in scopes_of(e) or [""] for k in touched(kernels, e, s))),
        module=first.module,
        path=first.path,
        line=first_line(first),
        scope=scope,
        source=first.after,
        diff="".join(unified(e.before or "", e.after or "", e.path) for e in edits),
        gist=label.gist,
        probes=changed[0].probes,
        new_names=tuple(sorted({name for e in edits for name in _words(e)})),
        also=tuple(changed[1:]),
    )


def _check(edit: FileEdit) -> None:
    if edit.after is None:
        return
    try:
        compile(edit.after, edit.path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise BadEditError(f"does not compile: {error.msg}, line {error.lineno} of {edit.path}") from error
    except (ValueError, RecursionError) as error:
        raise BadEditError(f"does not compile: {error}, in {edit.path}") from error
    encoding = _encoding(edit.before if edit.before is not None else edit.after)
    try:
        edit.after.encode(encoding)
    except UnicodeEncodeError as error:
        sign = edit.after[error.start]
        raise BadEditError(f"brings {sign!r} into {edit.path}, which is written in {encoding}") from error


def _encoding(text: str) -> str:
    try:
        return tokenize.detect_encoding(io.BytesIO(text.encode()).readline)[0]
    except SyntaxError:
        return "utf-8"


def _is_same(edit: FileEdit) -> bool:
    return edit.before is not None and edit.after is not None and same(_bare(edit.before), _bare(edit.after))


def _bare(text: str) -> ast.Module:
    """A module without its docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            node.body[:1] = [ast.Pass()]
    return tree


def _unbound(edit: FileEdit) -> list[Unbound]:
    if edit.after is None:
        return []
    return unbound(edit.before or "", edit.after, [span.new for span in edit.spans])


def _told(name: Unbound) -> str:
    where = f" in {name.where}" if name.where else ""
    if name.said:
        return f"brings in the unbound name {name.name!r}, which has no value there{where}"
    leaves = "may leave" if name.perhaps else "leaves"
    return f"{leaves} the name {name.name!r} unbound{where}, where other code reads it"


def _words(edit: FileEdit) -> set[str]:
    """Names in the edit's old and new text: a NameError on one of them is the edit's own."""
    old, new = (edit.before or "").encode(), (edit.after or "").encode()
    texts = [old[slice(*s.old)] for s in edit.spans] + [new[slice(*s.new)] for s in edit.spans]
    words = {w for text in texts for w in re.findall(r"[^\W\d]\w*", text.decode(errors="ignore"))}
    return {word for word in words if not keyword.iskeyword(word)}


def touched(kernels: Sequence[KernelRoles], edit: FileEdit, scope: str) -> list[str]:
    """Kernels with a role there; without one, those with a role in the module; without any, none in particular."""
    by_kernel = {
        k.name: [r.partition(":")[2] for r in _roles(k) if r.partition(":")[0] == edit.module] for k in kernels
    }
    near = [name for name, roles in by_kernel.items() if scope and any(_nested(scope, role) for role in roles)]
    return near or [name for name, roles in by_kernel.items() if roles]


def _roles(kernel: KernelRoles) -> list[str]:
    every = (kernel.function, *kernel.entries, *kernel.guards, *kernel.helpers, kernel.patcher, kernel.unpatcher)
    return [role for role in every if role]


def _nested(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
