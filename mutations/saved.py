"""Saved for the backward: one tensor too many, a dense weight, or past the saved-tensor mechanism.

What a kernel saves is its whole point: two [N, f] tensors fewer than autograd. One more is invisible to every parity
test (in the review a single test of 88 saw it). A tensor on `ctx` is invisible to saved-tensor hooks: with streamed
weights the backward then reads a slot that was refilled (public, in a 4-bit library).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import libcst as cst

from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.kernel_view import KernelView
from fastlora_verify.mutations.names import read_names
from fastlora_verify.mutations.quant_state import dense_calls
from fastlora_verify.mutations.saved_examples import EXAMPLES
from fastlora_verify.mutations.source import Edit, ParsedModule
from fastlora_verify.mutations.terms import is_lora_term, is_pure, kinds, named, one_line, siblings
from fastlora_verify.mutations.tree import small_statements
from fastlora_verify.mutations.values import resolve
from fastlora_verify.mutations.visible import bound_before, sayable


def save_calls(view: KernelView) -> list[cst.Call]:
    """`ctx.save_for_backward(…)` in forward."""
    return [
        node
        for node in list(view.seen("forward"))
        if isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value == "save_for_backward"
    ]


def _one_more(view: KernelView, texts: dict[cst.Call, str]) -> tuple[Edit, ...] | None:
    """A text saved behind the rest by each call, and left out again where backward reads."""
    module = view.forward.module
    reads = [
        node
        for node in list(view.seen("backward"))
        if isinstance(node, cst.Attribute) and node.attr.value == "saved_tensors" and view.in_backward(node)
    ]
    if not reads or not all(call.args for call in texts):
        return None
    edits = []
    for call, text in texts.items():
        end = module.span(call.args[-1].value)[1]
        edits.append(Edit(end, end, f", {text}", 2))
    edits += [module.replace(read, f"{module.code(read)}[:-1]", fires=False) for read in reads]
    return tuple(edits)


def activation_saved(view: KernelView) -> Iterator[Site]:
    texts = {call: _unsaved_activation(view, call) for call in save_calls(view)}
    known = {call: text for call, text in texts.items() if text is not None}
    edits = _one_more(view, known) if known and len(known) == len(texts) else None
    if edits is not None:
        gist = f"`{', '.join(dict.fromkeys(known.values()))}` is saved too, and never read"
        first = next(iter(known))
        yield Site(view.forward.module, view.forward.module.enclosing(first), "", first, edits, gist)


def _unsaved_activation(view: KernelView, call: cst.Call) -> str | None:
    """A local that holds an activation ([N, f]), not yet saved; one that isn't returned if there is."""
    module, function = view.module_of(call), _around(view, call)
    if function is not view.forward.node:
        return _of_setup(view, function)
    bound, saved = bound_before(module, call), read_names(call)
    returned = [r for small in small_statements(function) if isinstance(small, cst.Return) and (r := small.value)]
    found: dict[str, str] = {}
    for small in small_statements(function):
        if not isinstance(small, cst.Assign) or not isinstance(small.targets[0].target, cst.Name):
            continue
        name = small.targets[0].target.value
        values = view.seen("forward").get(small.value, [])
        wide = values and all({"W", "X"} <= kinds(v) and not is_lora_term(v, "A") for v in values)
        if wide and name in bound - saved:
            found[name] = f"{name}[0]" if any(resolve(v).kind == "seq" for v in values) else name
    given = set().union(*(read_names(value) for value in returned))
    best = [text for name, text in found.items() if name not in given] or list(found.values())
    return best[-1] if best else _first_output(module, call, returned)


def _first_output(module: ParsedModule, call: cst.Call, returned: Sequence[cst.BaseExpression]) -> str | None:
    """What forward returns, or the first of several."""
    for value in returned:
        first, index = value, ""
        if isinstance(value, cst.Tuple):
            first = value.elements[0].value
        elif isinstance(value, cst.Call) and len(value.args) == 1:  # tuple(outs)
            first, index = value.args[0].value, "[0]"
        if isinstance(first, cst.Name) and sayable(module, first, call):
            return f"{first.value}{index}"
    return None


def _of_setup(view: KernelView, function: cst.FunctionDef | None) -> str | None:
    """The output that `setup_context(ctx, inputs, output)` is given."""
    if function is None or function.name.value != "setup_context" or view.run is None:
        return None
    if len(function.params.params) < 3:
        return None
    name = function.params.params[2].name.value
    return f"{name}[0]" if resolve(view.run.output).kind == "seq" else name


def _around(view: KernelView, node: cst.CSTNode) -> cst.FunctionDef | None:
    return next((a for a in view.module_of(node).ancestors(node) if isinstance(a, cst.FunctionDef)), None)


def dense_saved(view: KernelView) -> Iterator[Site]:
    module = view.forward.module
    calls = save_calls(view)
    for sibling, dense, _ in dense_calls(view, "forward"):
        here = [call for call in calls if sayable(module, dense, call) and _follows(module, dense, call)]
        text = one_line(module.code(dense), 10_000)
        edits = _one_more(view, {call: text if call in here else "None" for call in calls}) if here else None
        if edits is not None:
            gist = f"the dense weight `{one_line(module.code(dense), 90)}` is saved too"
            yield Site(module, module.enclosing(here[0]), named(view, frozenset({sibling})), here[0], edits, gist)


def _follows(module: ParsedModule, earlier: cst.CSTNode, call: cst.CSTNode) -> bool:
    """Whether `call` stands in the same block as `earlier`, or in one around it, so that both run."""
    blocks = [a for a in module.ancestors(earlier) if isinstance(a, cst.IndentedBlock)]
    own = next(a for a in module.ancestors(call) if isinstance(a, cst.IndentedBlock))
    return own in blocks or any(b in list(module.ancestors(call)) for b in blocks[:1])


def kept_on_ctx(view: KernelView) -> Iterator[Site]:
    module = view.forward.module
    for call in save_calls(view):
        assert isinstance(call.func, cst.Attribute)
        ctx = module.code(call.func.value)
        for arg in call.args:
            values = view.seen("forward").get(arg.value, [])
            if arg.star == "**" or not values or not all(is_pure(v, "W") for v in values):
                continue
            names = frozenset().union(*(siblings(v, "W") for v in values))
            weight = module.code(arg.value)
            line = f"{ctx}.kept_weight = {f'list({weight})' if arg.star else weight}"
            edit = module.insert_before(module.statement(call), [line])
            yield Site(module, module.enclosing(call), named(view, names), call, (edit,), line)


def _mutation(
    ident: str,
    fault: str,
    imitates: str,
    seen_by: str,
    find: Callable[[KernelView], Iterator[Site]],
    absent: str,
) -> Mutation:
    return Mutation(ident, "memory and streaming", fault, imitates, seen_by, find, absent, examples=EXAMPLES[ident])


MUTATIONS = (
    _mutation("activation-saved", "One more [N, f] tensor is saved for the backward.",
              "The review of the SwiGLU kernel: m added to save_for_backward; one test saw it.",
              "saved bytes against their predicted sum; the oracle saved-bytes", activation_saved,
              "every activation is saved already, or forward saves nothing"),
    _mutation("dense-weight-saved", "A dequantised weight is kept until the backward.",
              "A 4-bit kernel that saves what it dequantised: a quarter of the memory gain is gone.",
              "saved bytes of an NF4 layer; the oracle saved-bytes", dense_saved,
              "forward dequantises nothing that could be saved where it saves"),
    _mutation("weight-kept-on-ctx", "A weight stands on ctx, where saved-tensor hooks and version checks don't see it.",
              "bitsandbytes: a packed weight on ctx gave wrong gradients when weights were streamed.",
              "no tensor reachable from ctx", kept_on_ctx, "forward saves no weight"),
)  # fmt: skip
