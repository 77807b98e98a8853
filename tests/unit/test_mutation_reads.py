"""Every name that an edit reads has a value at its place, or it is told: scopes, order, deletions, type checking."""

from __future__ import annotations

import builtins
from importlib.util import find_spec
from pathlib import Path

import pytest

from fastlora_verify.mutations.reads import binding, reads, unbound
from fastlora_verify.mutations.states import NEVER, PERHAPS, SURELY

MODULE = '''\
"""A kernel's module."""
from __future__ import annotations

from typing import TYPE_CHECKING

import helper
from package import (
    first,
    second as renamed,
)

if TYPE_CHECKING:
    import torch
    from package import Narrow

COUNT = 1
gone = 2
del gone


class Owner:
    rank = 8

    def method(self, x):
        return x


def make(original, scale=COUNT):
    before = helper.get()

    def forward(self, x: torch.Tensor, *args):
        # top
        if x is None:
            return original(x)
        out = original(x)
        if args:
            late = 2
        rows = [row for row in x]
        try:
            risky = first(x)
        except ValueError as error:
            handled = error
        for turn in rows:
            last = turn
        del out
        # end
        return rows, COUNT, before

    after = 3
    return forward


def early(function):
    def inner():
        # inner
        return 1

    inner()
    bound_too_late = 1
    return inner, bound_too_late


def bind():
    global made
    made = 1


def imports():
    import package.tools as tools
    return tools
'''


def inserted(mark: str, code: str, module: str = MODULE) -> dict[tuple[str, bool], bool]:
    """{(name, the edit's own text reads it): it has a value on some path} of what `code` in place of a mark lacks."""
    line = next(line for line in module.splitlines(keepends=True) if line.strip() == f"# {mark}")
    pad = line[: len(line) - len(line.lstrip())]
    text = "".join(f"{pad}{part}\n" for part in code.split("\n"))
    start = len(module[: module.index(line)].encode())
    found = unbound(module, module.replace(line, text), [(start, start + len(text.encode()))])
    return {(name.name, name.said): name.perhaps for name in found}


@pytest.mark.parametrize(
    ("mark", "code", "missing"),
    [
        ("top", "return original(x)", []),
        ("top", "return scale, before, after, COUNT, helper, first, renamed, Owner, len, __name__, make, early", []),
        ("top", "return forward", []),  # a function may call itself
        ("top", "return made", []),  # a function binds it as global
        ("top", "if x.dtype == torch.float16: return original(x)", ["torch"]),  # for type checkers alone
        ("top", "y: Narrow = x", []),  # postponed
        ("top", "isinstance(x, Narrow)", ["Narrow"]),
        ("top", "return gone", ["gone"]),  # deleted
        ("top", "return rank", ["rank"]),  # a class's
        ("top", "return Owner.rank", []),
        ("top", "return out", ["out"]),  # bound further down
        ("top", "return row", ["row"]),  # a comprehension's own
        ("top", "return [row for row in x if row]", []),
        ("top", "return {k: v for k, v in x}, k", ["k"]),
        ("top", "return error", ["error"]),
        ("top", "return nowhere, __nowhere", ["__nowhere", "nowhere"]),
        ("top", "return (lambda y: y + out)", []),  # runs later
        ("top", "return (lambda y: y + nowhere)", ["nowhere"]),
        ("top", "def own(y):\n    return y + x + own(nowhere)", ["nowhere"]),
        ("top", "y = 1\nif (z := y) > 0: return z", []),
        ("top", "import torch\nif x.dtype == torch.float16: return original(x)", []),
        ("end", "return out", ["out"]),  # deleted before
        ("end", "return late", []),  # bound on a path
        ("end", "return handled, risky, last, turn", []),
        ("end", "return error", ["error"]),  # gone behind its handler
        ("inner", "return bound_too_late", ["bound_too_late"]),  # called before it is bound
        ("inner", "return function", []),
    ],
)
def test_what_inserted_code_reads(mark: str, code: str, missing: list[str]) -> None:
    found = inserted(mark, code)
    assert sorted(name for name, said in found if said) == missing
    assert not any(not said for _, said in found)


@pytest.mark.parametrize(
    ("code", "taken"),
    [
        ("COUNT = 2", {}),  # bound wherever it is read
        ("if args: COUNT = 2", {"COUNT": True}),  # local now, and not always bound
        ("for COUNT in args: pass", {"COUNT": True}),
        ("del x", {"x": False}),
        ("if args: before = 2", {"before": True}),
        ("def original(y): return y", {}),
        ("return None", {}),  # the rest never runs
        ("global COUNT\nCOUNT = 2", {}),
    ],
)
def test_what_inserted_code_takes_from_the_code_behind_it(code: str, taken: dict[str, bool]) -> None:
    found = inserted("top", code)
    assert {name: perhaps for (name, said), perhaps in found.items() if not said} == taken


def test_a_name_that_the_original_has_from_a_star_import_is_bound_and_another_is_not() -> None:
    module = "from package import *\n\n\ndef f(x):\n    # top\n    return shown(x)\n"
    assert inserted("top", "return shown(1)", module) == {}
    assert inserted("top", "return hidden(1)", module) == {("hidden", True): False}


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("import helper\n", "", ["helper"]),
        ("        out = original(x)\n", "", []),  # only deleted, never read
        ("    before = helper.get()\n", "", ["before"]),
        ("        rows = [row for row in x]\n", "", ["rows"]),
        ("            late = 2\n", "            pass\n", []),
        ("def make(original, ", "def make(", ["original"]),
        ("if TYPE_CHECKING:\n    import torch\n    from", "if TYPE_CHECKING:\n    from", []),
    ],
)
def test_what_an_edit_leaves_unbound_elsewhere(old: str, new: str, names: list[str]) -> None:
    assert MODULE.count(old) == 1
    start = MODULE.index(old)
    found = unbound(MODULE, MODULE.replace(old, new), [(start, start + len(new))])
    assert sorted(name.name for name in found) == names


def test_names_of_a_module_level_statement_are_read_in_order() -> None:
    text = "def f():\n    return late\n\nf\nearly\nlate = 1\nearly = late\n"
    levels = {(read.name, read.scope): read.level for read in reads(text)}
    assert levels == {("late", "f"): SURELY, ("f", ""): SURELY, ("early", ""): NEVER, ("late", ""): SURELY}


def test_a_class_body_reads_its_own_names_and_a_method_does_not() -> None:
    body = "    a = 1\n    b = a\n    c = [a for _ in 'x']\n    d = d\n\n    def f(self):\n        return a\n"
    text = f"d = 0\nclass C:\n{body}"
    assert [read.level for read in reads(text) if read.name == "d"] == [SURELY]
    assert sorted((read.scope, read.level) for read in reads(text) if read.name == "a") == [
        ("C", NEVER), ("C", SURELY), ("C.f", NEVER),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "level"),
    [
        ("while True:\n        y = 1\n        break\n    return y", SURELY),
        ("while x:\n        y = 1\n    return y", PERHAPS),
        ("for _ in x:\n        y = 1\n    else:\n        y = 2\n    return y", SURELY),
        ("try:\n        y = 1\n    finally:\n        pass\n    return y", SURELY),
        ("try:\n        y = f()\n    except E:\n        pass\n    return y", PERHAPS),
        ("try:\n        y = f()\n    except E:\n        raise\n    return y", SURELY),
        ("try:\n        f()\n    finally:\n        y = 1\n    return y", SURELY),
        ("with x as y:\n        pass\n    return y", SURELY),
        ("match x:\n        case [y]:\n            pass\n        case _:\n            return 0\n    return y", SURELY),
        ("match x:\n        case {'a': y}:\n            pass\n    return y", PERHAPS),
        ("x and (y := 1)\n    return y", PERHAPS),
        ("if (y := x):\n        pass\n    return y", SURELY),
        ("y: int\n    return y", NEVER),
        ("y += 1", NEVER),
        ("if x:\n        y = 1\n    else:\n        raise E\n    return y", SURELY),
        ("return 0\n    return y\n    y = 1", SURELY),
        ("for _ in x:\n        if x:\n            return y\n        y = 1", PERHAPS),
        ("for _ in x:\n        y += 1", NEVER),
        ("for _ in x:\n        y = f(y)", NEVER),
        ("while x:\n        y = y if x else 0", PERHAPS),
        ("for y, *z in x:\n        return y, z\n    y = 0", SURELY),
        ("import y.z\n    return y", SURELY),
        ("class y: pass\n    return y", SURELY),
        ("y = 1\n    del y\n    return y", NEVER),
    ],
)
def test_paths_through_a_function(body: str, level: int) -> None:
    text = f"from m import E, f\ndef g(x):\n    {body}\n"
    compile(text, "m.py", "exec")
    assert [read.level for read in reads(text) if read.name == "y"] == [level]


@pytest.mark.parametrize("package", ["fastlora_verify.mutations", "json", "logging", "unittest", "importlib"])
def test_no_name_of_code_that_runs_is_taken_for_unbound(package: str) -> None:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    files = sorted(Path(spec.origin).parent.glob("*.py"))
    assert len(files) > 2
    for path in files:
        assert {read.name for read in reads(path.read_text("utf-8")) if read.level == NEVER} <= STARRED, path


STARRED = frozenset({"_bootstrap", "_bootstrap_external", "sys", "_imp", "_io", "_warnings", "marshal", "posix",
                     "nt", "winreg", "_thread", "_weakref"})  # what importlib sets from outside  # fmt: skip


@pytest.mark.parametrize(
    ("name", "has_attribute", "line"),
    [
        ("torch", True, "import torch"),
        ("torch", False, "import torch"),
        ("F", True, "import torch.nn.functional as F"),
        ("F", False, None),  # not read as a module
        ("math", True, "import math"),
        ("tools", False, "import package.tools as tools"),  # the module itself imports it, elsewhere
        ("renamed", False, "from package import second as renamed"),
        ("Narrow", False, None),  # for type checkers alone: it may not even be installed
        ("nowhere", True, None),
    ],
)
def test_what_can_be_bound_safely(name: str, has_attribute: bool, line: str | None) -> None:
    assert binding(MODULE, name, has_attribute=has_attribute) == line


def test_an_import_that_may_fail_or_that_has_two_meanings_binds_nothing() -> None:
    optional = "def f():\n    try:\n        import fast\n    except ImportError:\n        pass\n"
    assert binding(optional, "fast", has_attribute=True) is None
    two = "def f():\n    import torch\n\ndef g():\n    from fake import torch\n"
    assert binding(two, "torch", has_attribute=True) is None
    assert binding("from .here import torch\n", "torch", has_attribute=True) == "from .here import torch"
    assert not hasattr(builtins, "torch")
