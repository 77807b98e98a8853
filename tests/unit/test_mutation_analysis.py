"""What mutations build on: hand-backs, operations, names that surely have a value, the abstract run, edits."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace

import libcst as cst
import pytest

from fastlora_verify.mutations.base import KernelRoles
from fastlora_verify.mutations.build import build_mutant
from fastlora_verify.mutations.example import plan_template, with_part
from fastlora_verify.mutations.example_kernels import KERNELS, MODULE
from fastlora_verify.mutations.guards import refusing_answer
from fastlora_verify.mutations.handback import handback_at_top, handbacks
from fastlora_verify.mutations.instrument_view import InstrumentView
from fastlora_verify.mutations.kernel_view import KernelView, owner_and_input
from fastlora_verify.mutations.operations import Operation, operations
from fastlora_verify.mutations.plan import plan_views
from fastlora_verify.mutations.registry import MUTATIONS
from fastlora_verify.mutations.source import ParsedModule, SourceFile, TargetSource
from fastlora_verify.mutations.visible import bound_before, sayable

BY_ID = {mutation.id: mutation for mutation in MUTATIONS}


def parsed(text: str) -> ParsedModule:
    return ParsedModule(SourceFile("m", "m.py", textwrap.dedent(text).lstrip("\n")))


def view_of(kernel: str, **parts: str) -> KernelView:
    """An example kernel with parts replaced; `_` in a part's name stands for a space."""
    text, roles = KERNELS[kernel]
    assert roles is not None
    for name, body in parts.items():
        text = with_part(text, name.replace("_", " "), body)
    return KernelView(TargetSource({MODULE: SourceFile(MODULE, f"{MODULE}.py", text)}), roles)


def function(text: str) -> cst.FunctionDef:
    node = parsed(text).scopes["f"]
    assert isinstance(node, cst.FunctionDef)
    return node


# -- hand-backs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "back"),
    [
        ("return former(inp)", "former(inp)"),
        ("return former(inp) if more else None", "former(inp)"),
        ("result = former(inp, *more)\nreturn result", "former(inp, *more)"),
        ("before = layer._former\nreturn before(inp)", None),
        ("out = One.apply(inp)\nreturn out", None),
        ("return One.apply(inp)", None),
        ("return torch.nn.functional.relu(inp)", None),
        ("return LoraLayer.forward(layer, inp)", "LoraLayer.forward(layer, inp)"),
        ("return layer.base_layer(inp)", None),
        ("return pieces_of(layer, inp)", None),
        ("return inp.relu(inp)", None),
        ("if more: return former(inp)\nreturn layer.get_base_layer()(inp)", "former(inp)"),
    ],
)
def test_a_hand_back_is_a_captured_call_that_is_given_the_input(entry: str, back: str | None) -> None:
    view = view_of("linear", entry=entry)
    assert handback_at_top(view, view.entries[0]) == back


def test_what_a_store_hands_out_is_no_hand_back() -> None:
    view = view_of("qkv")
    assert [handback_at_top(view, e) for e in view.entries] == [f"formers[{i}](inp)" for i in range(3)]


def test_a_function_that_leads_to_the_kernel_is_no_hand_back() -> None:
    entry = """
        def fused(inp):
            return One.apply(inp, layer.weight)

        return fused(inp)
    """
    view = view_of("linear", entry=entry)
    assert view.run is not None
    assert handbacks(view, view.entries[0]) == ()


@pytest.mark.parametrize(
    ("signature", "owner", "x"),
    [
        ("x", None, "x"),
        ("self, x", "self", "x"),
        ("layer, inp, *args, **kwargs", "layer", "inp"),
        ("x, scale=1.0", None, "x"),
        ("original, layer, x", "original", "x"),
        ("*args", None, None),
    ],
)
def test_owner_and_input_of_an_entry(signature: str, owner: str | None, x: str | None) -> None:
    node = function(f"def f({signature}):\n    return original(x)\n")
    assert tuple(p and p.name.value for p in owner_and_input(node)) == (owner, x)


# -- operations -------------------------------------------------------------------------------------------------


def sums(text: str) -> list[Operation]:
    return [op for op in operations(view_of("linear", dX=text), "backward", "add") if op.module.line(op.node) > 165]


@pytest.mark.parametrize(
    ("text", "first_dropped", "second_dropped"),
    [
        ("d_inp = base + term", "d_inp = term", "d_inp = base"),
        ("base += term\nd_inp = base", "base = term\nd_inp = base", "pass\nd_inp = base"),
        ("d_inp = torch.add(base, term, alpha=2)", "d_inp = (term * 2)", "d_inp = base"),
        ("d_inp = base.add(term, alpha=2)", "d_inp = (term * 2)", "d_inp = base"),
        ("base.add_(term)\nd_inp = base", "base.copy_(term)\nd_inp = base", "pass\nd_inp = base"),
        ("d_inp = torch.addmm(base, back, down)", "d_inp = (back @ down)", "d_inp = base"),
        ("d_inp = base.addmm_(back, down, alpha=2)", "d_inp = base.copy_(((back @ down) * 2))", "d_inp = base"),
        ("d_inp = torch.addmm(base, back, down, beta=3)", "d_inp = (back @ down)", "d_inp = (base * 3)"),
        ("d_inp = sum([base, term])", "d_inp = sum([term])", "d_inp = sum([base])"),
        ("d_inp = sum((base, term))", "d_inp = sum((term,))", "d_inp = sum((base,))"),
        ("d_inp = (base + term).view(1)", "d_inp = term.view(1)", "d_inp = base.view(1)"),
        ("d_inp = inp - (base + term)", "d_inp = inp - term", "d_inp = inp - base"),
    ],
)
def test_a_sum_without_one_of_its_operands(text: str, first_dropped: str, second_dropped: str) -> None:
    (add,) = sums(text)
    for operand, after in zip(add.operands, (first_dropped, second_dropped), strict=True):
        source, _ = add.module.apply([add.without(operand)])
        assert textwrap.indent(after, " " * 12) in source


def test_operands_left_to_an_out_argument_or_a_star_are_not_taken_apart() -> None:
    assert sums("torch.add(base, term, out=base)\nd_inp = base") == []
    assert sums("d_inp = torch.add(*[base, term])") == []


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("d_down = back.t().mm(seen) * factor", "d_down = (back.t().mm(seen) * factor) * factor"),
        ("d_down = (back * factor).t().mm(seen)", "d_down = ((back * factor) * factor).t().mm(seen)"),
        ("back *= factor\nd_down = back.t().mm(seen)", "back *= factor * factor\nd_down = back.t().mm(seen)"),
        ("back.mul_(factor)\nd_down = back.t().mm(seen)", "back.mul_(factor).mul_(factor)\nd_down = back.t().mm(seen)"),
    ],
)
def test_a_factor_applied_once_more(text: str, after: str) -> None:
    view = view_of("linear", dA=text)
    times = [op for op in operations(view, "backward", "mul") if "back" in op.code and "factor" in op.code]
    scale = next(o for o in times[-1].operands if o.text == "factor")
    source, _ = times[-1].module.apply([times[-1].again(scale)])
    assert textwrap.indent(after, " " * 12) in source


# -- names --------------------------------------------------------------------------------------------------------

NAMES = """
    def f(x, flag):
        before = x
        if flag:
            inside = before
            at = 1
        else:
            inside = x
            other = x
        for turn, held in enumerate(x):
            kept = held
            here = 2
        if (found := x) and flag:
            there = 3
        after = inside
        return after
"""


def at(module: ParsedModule, name: str) -> cst.CSTNode:
    node = module.scopes["f"]
    stack: list[cst.CSTNode] = [node]
    while stack:
        node_ = stack.pop()
        if isinstance(node_, cst.AssignTarget) and isinstance(node_.target, cst.Name) and node_.target.value == name:
            return node_.target
        stack.extend(node_.children)
    raise LookupError(name)


@pytest.mark.parametrize(
    ("place", "has", "lacks"),
    [
        ("at", {"x", "flag", "before", "inside"}, {"other", "turn", "after"}),
        ("after", {"before", "inside"}, {"at", "other", "kept", "there"}),
        ("here", {"before", "inside", "kept"}, {"other", "found", "after"}),
        ("there", {"before", "found"}, {"kept", "after"}),
    ],
)
def test_names_that_surely_have_a_value(place: str, has: set[str], lacks: set[str]) -> None:
    module = parsed(NAMES)
    found = bound_before(module, at(module, place))
    assert has <= found
    assert not lacks & found


def test_what_has_no_value_yet_is_not_said() -> None:
    module = parsed("def f(x):\n    one = x\n    if x:\n        s = 2\n    two = s\n    s = 3\n    return s\n")
    lines = [line.body[0] for line in module.scopes["f"].body.body if isinstance(line, cst.SimpleStatementLine)]
    two, last = lines[1], lines[3]
    assert isinstance(two, cst.Assign)
    assert not sayable(module, two.value, lines[0])
    assert not sayable(module, two.value, two)
    assert sayable(module, two.value, last)


def test_a_loops_name_is_said_in_a_loop_over_the_same_only() -> None:
    module = parsed("""
        def f(rows, others):
            for s in rows:
                one = s
            for s in rows:
                two = s
            for s in others:
                three = s
            return one
    """)
    loops = [s for s in module.scopes["f"].body.body if isinstance(s, cst.For)]
    lines = [loop.body.body[0] for loop in loops]
    reads = [line.body[0].value for line in lines if isinstance(line, cst.SimpleStatementLine)]  # type: ignore[union-attr]
    assert isinstance(reads[0], cst.Name)
    assert sayable(module, reads[0], lines[1])
    assert not sayable(module, reads[0], lines[2])
    assert not sayable(module, reads[0], module.scopes["f"].body.body[-1])


# -- the abstract run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "returned",
    [
        "return d_inp, None, *[None] * size, *[None] * size, *d_downs, *d_ups",
        "rows = [d_inp, None] + [None] * (2 * size)\nreturn (*rows, *d_downs, *d_ups)",
        "g = [None] * (2 + 4 * size)\ng[0], g[8:11], g[11:14] = d_inp, d_downs, d_ups\nreturn tuple(g)",
        "grads = {'x': d_inp, 'A': d_downs, 'B': d_ups}\nreturn grads['x'], *[None] * 7, *grads.get('A'), *grads['B']",
        "if not grads:\n    return (None,) * len(ctx.needs_input_grad)\nreturn d_inp, *[None] * 7, *d_downs, *d_ups",
        "match d_inp:\n    case None: return None\n    case other: return other, *[None] * 7, *d_downs, *d_ups",
    ],
)
def test_the_gradients_are_found_however_they_are_returned(returned: str) -> None:
    view = view_of("qkv", **{"return": returned})
    names = ("q_proj", "k_proj", "v_proj")
    assert [(s.kind, s.sibling) for s in view.slots] == [
        ("X", ""), *(("A", n) for n in names), *(("B", n) for n in names)
    ]  # fmt: skip


SAVED_IN_TWO_WAYS = """
if not tensors:
    ctx.save_for_backward(inp, kernel, down, up, code, *((kept,) if kept is not None else ()))
else:
    ctx.save_for_backward(inp, kernel, down, up, code, *((kept,) if kept is not None else ()), *tensors)
ctx.masked = kept is not None
"""
READ_BACK = """
saved = ctx.saved_tensors
saved = (saved[0], saved[5] if ctx.masked else None, *saved[1:5], *saved[5 + ctx.masked:])
"""


def test_what_is_saved_is_known_though_branches_save_more_or_less() -> None:
    """A mask that is saved only when there is one, a quant state's tensors after it: the places before them stand."""
    text = with_part(with_part(KERNELS["linear"][0], "save", SAVED_IN_TWO_WAYS), "read", READ_BACK)
    found = {mutant.mutation for mutant in plan_template("linear", text).mutants}
    assert {m.mutation for m in plan_template("linear", KERNELS["linear"][0]).mutants} - found == set()
    assert {"dropout-mask-dropped-in-dx", "dropout-mask-dropped-in-da", "lora-term-dropped-from-dx"} <= found


@pytest.mark.parametrize(
    "layers",
    [
        "layers = [getattr(attention, name) for name in NAMES]",
        'layers = [getattr(attention, f"{letter}_proj") for letter in "qkv"]',
        "layers = list(map(lambda name: getattr(attention, name), NAMES))",
        "layers = attention.q_proj, attention.k_proj, attention.v_proj",
        'layers = [*{n: getattr(attention, n + "_proj") for n in ("q", "k", "v")}.values()]',
    ],
)
def test_projections_are_told_apart_however_they_are_reached(layers: str) -> None:
    text, roles = KERNELS["qkv"]
    assert roles is not None
    text = text.replace("layers = [getattr(attention, name) for name in NAMES]", layers)
    view = KernelView(TargetSource({MODULE: SourceFile(MODULE, f"{MODULE}.py", text)}), roles)
    assert view.siblings == ("q_proj", "k_proj", "v_proj")


@pytest.mark.parametrize(
    "text",
    [
        "d_inp = unknown.addmm_(back, down, alpha=factor)",
        "d_inp = unknown.add(term)\nd_inp = torch.add(d_inp)",
        "d_inp = torch.einsum('ij,jk', unknown)",
        "d_inp = torch.linalg.multi_dot([])",
        "d_inp = sum([])\nd_inp, *rest = unknown[0]",
        "d_inp = base.addmm()",
        "async def later(): await base\nglobal kept_for_ever\nkept_for_ever = later",
        "d_inp = [*unknown][0] if unknown else {**unknown}['a']\nassert d_inp, f'{d_inp!r:>{len(saved)}}'",
        "while (d_inp := base):\n    break\nelse:\n    raise ValueError from None",
        "type_ = lambda *a, b=1, **c: (yield)\nd_inp = type_(base, *unknown, **unknown)",
        "del base\nd_inp = (lambda: base)()",
    ],
)
def test_what_cannot_be_followed_breaks_nothing(text: str) -> None:
    plan = plan_template("linear", with_part(KERNELS["linear"][0], "dX", text))
    assert plan.faults == ()
    assert len(plan.mutants) > 45


def test_a_role_that_is_not_there_is_named_with_its_neighbours() -> None:
    text, roles = KERNELS["linear"]
    assert roles is not None
    source = TargetSource({MODULE: SourceFile(MODULE, f"{MODULE}.py", text.replace("def backward(", "def backwards("))})
    with pytest.raises(LookupError, match=r"no scope 'One.backward' in kernel; the nearest are \['One.backwards'"):
        KernelView(source, roles)


@pytest.mark.parametrize(
    ("predicate", "caller", "refusal"),
    [
        ("return False if layer is None else True", "if not plain(layer):\n    return None", "False"),
        ("if layer.merged:\n    return True\nreturn False", "if plain(layer):\n    return None", "True"),
        (
            "if layer.merged:\n    return True\nreturn False",
            "if layer is None or not not plain(layer):\n    return None",
            "True",
        ),
        ("if not layer.merged:\n    return False\nreturn True", "name = layer.name", "False"),
        ("if layer.merged:\n    return True\nreturn False", "name = layer.name", "True"),
    ],
)
def test_which_answer_of_a_predicate_refuses(predicate: str, caller: str, refusal: str) -> None:
    text, roles = KERNELS["linear"]
    assert roles is not None
    text = text.replace("    if not plain(layer):\n        return None\n", "").replace(
        "        if not plain(layer):\n            continue\n", ""
    )
    text = with_part(with_part(text, "predicate", predicate), "guard", caller)
    view = KernelView(TargetSource({MODULE: SourceFile(MODULE, f"{MODULE}.py", text)}), roles)
    if predicate.startswith("return"):
        predicate_ = "if layer is None:\n    return False\nreturn True"
        view = view_of("linear", predicate=predicate_)
    place = next(g for g in view.guards if g.scope == "plain")
    assert refusing_answer(view, place) == refusal


# -- plans --------------------------------------------------------------------------------------------------------


def test_a_cell_whose_edits_are_anothers_says_so() -> None:
    view = view_of("linear")
    guard = BY_ID["guard-count-weakened"]
    plan = plan_views([view], InstrumentView([]), (guard, replace(guard, id="again-weakened")))
    assert [m.mutation for m in plan.mutants] == [guard.id]
    (empty,) = plan.no_sites
    assert (empty.mutation, empty.kernel) == ("again-weakened", "linear")
    assert empty.reason == f"the same edit as {plan.mutants[0].name}"


def test_same_edits_at_two_places_of_one_function_have_names_of_their_own() -> None:
    body = "if layer.merged:\n    return None\nif layer.merged:\n    return None\nif layer.merged:\n    return None\n"
    text = with_part(KERNELS["linear"][0], "guard", body)
    names = [m.name for m in plan_template("linear", text, (BY_ID["guard-skipped"],)).mutants]
    assert len([n for n in names if "[merged" in n]) == 3
    assert len(set(names)) == len(names)


def test_a_definition_gets_the_line_before_its_decorators() -> None:
    entry = """
        @torch.no_grad()
        def last():
            return inp

        return former(inp)
    """
    text = with_part(KERNELS["linear"][0], "entry", entry)
    (mutant,) = plan_template("linear", text, (BY_ID["delegates-always"],)).mutants
    assert "        return former(inp)\n        @torch.no_grad()\n" in mutant.source
    compile(mutant.source, "kernel.py", "exec")


@pytest.mark.parametrize("written", [str, lambda text: text.replace("\n", "\r\n")], ids=["lf", "crlf"])
def test_probes_stand_where_the_edit_does(written: Callable[[str], str]) -> None:
    text, _ = KERNELS["linear"]
    for mutant in plan_template("linear", written(text)).mutants:
        lines = mutant.source.split("\n")
        changed = [line[1:].strip() for line in mutant.diff.splitlines()[2:] if line.startswith("+")]
        for line in mutant.probes.triggered:
            if mutant.mutation not in {"once-differentiable-dropped", "nested-state-dropped"} and changed:
                assert lines[line - 1].strip() in changed, mutant.name


def test_roles_may_lack_patchers() -> None:
    text, roles = KERNELS["linear"]
    assert roles is not None
    bare = replace(roles, patcher="", unpatcher="", guards=(), helpers=())
    view = KernelView(TargetSource({MODULE: SourceFile(MODULE, f"{MODULE}.py", text)}), bare)
    plan = plan_views([view], InstrumentView([]))
    assert plan.faults == ()
    assert "delegates-always" in {m.mutation for m in plan.mutants}
    assert isinstance(bare, KernelRoles)


def test_nothing_is_built_of_edits_that_overlap() -> None:
    module = parsed("def f(x):\n    return x + 1\n")
    (statement,) = module.scopes["f"].body.body
    assert isinstance(statement, cst.SimpleStatementLine)
    edits = (module.replace(statement, "return 2"), module.replace(statement.body[0], "return 3"))
    from fastlora_verify.mutations.base import Site
    from fastlora_verify.mutations.build import BadMutantError

    site = Site(module, "f", "", statement, edits, "")
    with pytest.raises(BadMutantError, match="overlapping"):
        build_mutant(MUTATIONS[0], site, (), "name")
