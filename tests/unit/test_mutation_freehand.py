"""Code inserted, text replaced: what becomes of it, where it triggers, and what is refused."""

from __future__ import annotations

import libcst as cst
import pytest

from fastlora_verify.mutations.base import KernelRoles, Mutant
from fastlora_verify.mutations.edited import BadEditError
from fastlora_verify.mutations.freehand import Place, insert, replace
from fastlora_verify.mutations.source import ParsedModule, SourceFile

MODULE = '''\
"""Kernels."""
from __future__ import annotations

import helper

TABLE = {
    "one": 1,
}


def make(original):
    def forward(self, x, *args):
        """Forward.

        Of a kernel.
        """
        if args:
            return original(x, *args)
        state = helper.state(x)  # é
        return original(state)

    return forward


class Function:
    @staticmethod
    @helper.once
    def backward(ctx, dy):
        return dy + dy


def one_line(x): return x


def documented():
    """Nothing but words."""


def declares():
    """Words."""
    global TABLE
    TABLE = {}
'''
ROLES = KernelRoles(
    "mlp", "swiglu-mlp", "m:Function", ("m:make.forward",), ("m:one_line",), (), "m:make", "", "FunctionBackward"
)
OTHER = KernelRoles("qkv", "qkv", "m:Other", ("n:entry",), (), ("m:one_line",), "", "", "OtherBackward")


def place(scope: str, text: str = MODULE) -> Place:
    module = ParsedModule(SourceFile("m", "src/m.py", text))
    node = module.scopes.get(scope)
    assert isinstance(node, cst.FunctionDef | cst.ClassDef | None)
    return Place(module, scope, node)


def lines(mutant: Mutant) -> list[str]:
    """The lines that a mutant adds and takes away."""
    rows = mutant.diff.splitlines()[2:]
    return [row for row in rows if row[0] in "+-"]


def at(mutant: Mutant, numbers: tuple[int, ...]) -> list[str]:
    text = mutant.source.splitlines()
    return [text[number - 1].strip() for number in numbers]


def test_code_is_put_behind_the_docstring_and_nothing_else_changes() -> None:
    mutant = insert("if x.is_cuda: return original(x)", place("make.forward"), [ROLES, OTHER])
    assert lines(mutant) == ["+        if x.is_cuda: return original(x)"]
    assert mutant.source.replace("        if x.is_cuda: return original(x)\n", "") == MODULE
    assert mutant.name.startswith("insert@m:make.forward[")
    assert (mutant.line, mutant.path, mutant.scope, mutant.kernels) == (17, "src/m.py", "make.forward", ("mlp",))
    assert mutant.gist == "if x.is_cuda: return original(x)"
    assert at(mutant, mutant.probes.reached) == ["if x.is_cuda: return original(x)"]
    assert {"is_cuda", "original", "x"} == set(mutant.new_names)


def test_a_name_is_that_of_its_content_and_not_of_its_layout_or_place() -> None:
    one = insert("if x: return original(x)", place("make.forward"), [])
    other = insert(
        "  if x:  return original( x )  # why", place("make.forward", MODULE.replace("TABLE", "A = 1\n\nTABLE", 1)), []
    )
    third = insert("if x: return original(1)", place("make.forward"), [])
    assert one.name == other.name != third.name


@pytest.mark.parametrize(
    ("code", "triggers"),
    [
        ("if x: return original(x)", "if x: return original(x)"),
        ("if x:\n    y = 1\n    return original(x)", "y = 1"),
        ("if x:\n    if args:\n        return original(x)", "return original(x)"),
        ("if x:\n    pass\nelse:\n    x = 1", "if x:"),
        ("y = x\nif y:\n    return y", "return y"),
        ("x = x + 1\nx = x + 2", "x = x + 1"),
        ("for y in x:\n    return y", "return y"),
        ("with helper.lock:\n    return x", "with helper.lock:"),
    ],
)
def test_what_an_inserted_condition_guards_is_what_triggers(code: str, triggers: str) -> None:
    mutant = insert(code, place("make.forward"), [])
    assert at(mutant, mutant.probes.triggered) == [triggers]


def test_code_of_several_lines_is_indented_and_text_in_it_is_not() -> None:
    mutant = insert('if x:\n    y = """a\nb"""\n    return y\n', place("make.forward"), [])
    assert lines(mutant) == ["+        if x:", '+            y = """a', '+b"""', "+            return y"]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("one_line", ["-def one_line(x): return x", "+def one_line(x): ", "+    return 7", "+    return x"]),
        ("documented", ["+    return 7"]),
        ("declares", ["+    return 7"]),
        ("Function.backward", ["+        return 7"]),
        ("make", ["+    return 7"]),
    ],
)
def test_where_the_top_of_a_function_is(scope: str, expected: list[str]) -> None:
    assert lines(insert("return 7", place(scope), [])) == expected


def test_code_may_end_a_file_without_a_last_newline() -> None:
    text = 'def f():\n    "words"'
    mutant = insert("return 7", place("f", text), [])
    assert mutant.source == 'def f():\n    "words"\n    return 7\n'


@pytest.mark.parametrize("newline", ["\r\n", "\n"])
def test_newlines_and_tabs_are_those_of_the_file(newline: str) -> None:
    text = "def f(x):\n\tif x:\n\t\treturn 1\n\treturn 2\n".replace("\n", newline)
    mutant = insert("if x > 1:\n    return 3", place("f", text), [])
    assert mutant.source == text.replace("\tif x:", f"\tif x > 1:{newline}\t    return 3{newline}\tif x:", 1)
    replaced = replace("if x:\n\t\treturn 1", "if x:\n\t\treturn 4", place("f", text), [])
    assert replaced.source == text.replace("1", "4")


def test_torch_is_bound_in_the_function_that_says_it() -> None:
    mutant = insert("if x.dtype == torch.float16: return original(x)", place("make.forward"), [])
    assert lines(mutant) == ["+        import torch", "+        if x.dtype == torch.float16: return original(x)"]
    assert mutant.gist == "if x.dtype == torch.float16: return original(x)  # with import torch"
    assert at(mutant, mutant.probes.reached) == ["import torch"]
    assert at(mutant, mutant.probes.triggered) == ["if x.dtype == torch.float16: return original(x)"]
    assert "torch" in mutant.new_names


def test_torch_is_bound_for_replaced_text_too_and_the_import_triggers_nothing() -> None:
    mutant = replace("return dy + dy", "return torch.zeros_like(dy)", place("Function"), [])
    assert lines(mutant) == ["-        return dy + dy", "+        import torch", "+        return torch.zeros_like(dy)"]
    assert at(mutant, mutant.probes.triggered) == ["return torch.zeros_like(dy)"]


@pytest.mark.parametrize(
    ("scope", "code", "message"),
    [
        ("make.forward", "if nowhere: return x", "brings in the unbound name 'nowhere'"),
        ("make.forward", "if torch.x and nowhere: return x", "unbound name 'nowhere'"),
        ("make.forward", "return state", "'state', which has no value there in make.forward"),
        ("make.forward", "if x: helper = 1", "may leave the name 'helper' unbound in make.forward"),
        ("make.forward", "del original", "leaves the name 'original' unbound in make.forward"),
        ("make.forward", "if x return", "is not Python: invalid syntax"),
        ("make.forward", "# nothing", "holds no statement"),
        ("make.forward", "break", "does not compile: 'break' outside loop"),
        ("Function", "return 1", "Function is a class"),
        ("", "return 1", "m is a module"),
    ],
)
def test_what_is_refused(scope: str, code: str, message: str) -> None:
    with pytest.raises(BadEditError, match=message):
        insert(code, place(scope), [])


def test_replaced_text_stands_exactly_once_and_else_the_lines_are_told() -> None:
    mutant = replace("original(state)", "original(x)", place("make.forward"), [ROLES, OTHER])
    assert lines(mutant) == ["-        return original(state)", "+        return original(x)"]
    assert (mutant.scope, mutant.line, mutant.kernels) == ("make.forward", 20, ("mlp",))
    assert mutant.gist == "original(state) -> original(x)"
    with pytest.raises(BadEditError, match=r"'original\(' stands 2 times in m:make\.forward \(lines 18, 20\)"):
        replace("original(", "helper(", place("make.forward"), [])
    with pytest.raises(BadEditError, match=r"'dy - dy' stands nowhere in m:Function"):
        replace("dy - dy", "dy", place("Function"), [])
    with pytest.raises(BadEditError, match=r"stands 3 times in m:Function\.backward \(lines 28, 29, 29\)"):
        replace("dy", "ctx", place("Function.backward"), [])


@pytest.mark.parametrize(
    ("scope", "old", "new", "message"),
    [
        ("make", "return forward", "return forward  # same", "does not differ"),
        ("make", "state = helper.state(x)", "pass", "leaves the name 'state' unbound in make.forward"),
        ("", "import helper\n", "", "leaves the name 'helper' unbound"),
        ("make", "if args:", "if args", "does not compile: expected ':', line 17 of src/m.py"),
        ("make", "", "x", "stands nowhere"),
    ],
)
def test_replacements_that_are_refused(scope: str, old: str, new: str, message: str) -> None:
    with pytest.raises(BadEditError, match=message):
        replace(old, new, place(scope), [])


def test_decorators_and_module_level_text_can_be_replaced() -> None:
    mutant = replace("    @helper.once\n", "", place("Function.backward"), [])
    assert lines(mutant) == ["-    @helper.once"]
    constant = replace('"one": 1', '"one": 2', place(""), [ROLES])
    assert lines(constant) == ['-    "one": 1,', '+    "one": 2,']
    assert (constant.name[:10], constant.scope, constant.kernels) == ("replace@m[", "", ("mlp",))
    assert at(constant, constant.probes.triggered) == ["TABLE = {"]


def test_a_condition_that_is_replaced_triggers_where_it_is_tested() -> None:
    mutant = replace("if args:", "if not args:", place("make.forward"), [])
    assert at(mutant, mutant.probes.triggered) == ["if not args:"]


def test_signs_that_the_file_cannot_hold_are_refused() -> None:
    text = "# -*- coding: latin-1 -*-\ndef f(x):\n    return x\n"
    with pytest.raises(BadEditError, match=r"brings '→' into src/m\.py, which is written in iso-8859-1"):
        insert("return '→'", place("f", text), [])


def test_kernels_are_those_with_a_role_there() -> None:
    assert insert("return 7", place("one_line"), [ROLES, OTHER]).kernels == ("mlp", "qkv")
    assert insert("return 7", place("declares"), [ROLES, OTHER]).kernels == ("mlp", "qkv")  # none there: the module's
    assert insert("return 7", place("Function.backward"), [ROLES, OTHER]).kernels == ("mlp",)
