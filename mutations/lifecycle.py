"""Patching and unpatching: what is left behind, patched twice, or owned by two.

In the reviews an unpatched module kept an instance forward, and two patchers wanted one projection. Public: a class
patched whose instances were not, a patched forward that stayed for the next model in the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst
import libcst.matchers as m

from fastlora_verify.mutations.attributes import LAYER_ATTRIBUTES
from fastlora_verify.mutations.base import Mutation, Site
from fastlora_verify.mutations.exits import Exit, exits, never
from fastlora_verify.mutations.kernel_view import KernelView, Place
from fastlora_verify.mutations.lifecycle_examples import EXAMPLES
from fastlora_verify.mutations.names import assigned_names, parameter_names, read_names
from fastlora_verify.mutations.terms import one_line
from fastlora_verify.mutations.tree import children, small_statements
from fastlora_verify.mutations.values import Value, alternatives


def _mentions_forward(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Attribute):
        return node.attr.value == "forward"
    return isinstance(node, cst.SimpleString) and node.evaluated_value == "forward"


def deletes_forward(place: Place, small: cst.BaseSmallStatement) -> bool:
    """`del m.forward`, `del vars(m)["forward"]`, `delattr(m, "forward")`, `m.__dict__.pop("forward")`."""
    if isinstance(small, cst.Del):
        target = small.target
        if isinstance(target, cst.Attribute):
            return target.attr.value == "forward"
        return isinstance(target, cst.Subscript) and any(
            _mentions_forward(n) for n in m.findall(target.slice[0], m.SimpleString())
        )
    if not isinstance(small, cst.Expr) or not isinstance(small.value, cst.Call):
        return False
    call = small.value
    name = call.func.attr.value if isinstance(call.func, cst.Attribute) else getattr(call.func, "value", "")
    return name in {"delattr", "pop", "__delattr__"} and any(_mentions_forward(a.value) for a in call.args)


def puts_forward_back(small: cst.BaseSmallStatement) -> bool:
    """`m.forward = original`, `vars(m)["forward"] = original`, `setattr(m, "forward", original)`."""
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        target = small.targets[0].target
        if isinstance(target, cst.Subscript):
            return any(_mentions_forward(n) for n in m.findall(target.slice[0], m.SimpleString()))
        return isinstance(target, cst.Attribute) and target.attr.value == "forward"
    by_name = m.Call(m.Name("setattr"), args=[m.Arg(), m.Arg(m.MatchIfTrue(_mentions_forward)), m.Arg()])
    return isinstance(small, cst.Expr) and m.matches(small.value, by_name)


def forward_left(view: KernelView) -> Iterator[Site]:
    for place, small in _unpatching(view):
        if deletes_forward(place, small):
            yield _skipped(place, small)


def forward_not_restored(view: KernelView) -> Iterator[Site]:
    for place, small in _unpatching(view):
        if puts_forward_back(small):
            yield _skipped(place, small)


def _unpatching(view: KernelView) -> Iterator[tuple[Place, cst.BaseSmallStatement]]:
    for place in view.reach("unpatcher"):
        yield from ((place, small) for small in small_statements(place.node))


def _skipped(place: Place, small: cst.BaseSmallStatement) -> Site:
    gist = f"`{one_line(place.module.code(small))}` is skipped"
    return Site(place.module, place.scope, "", small, (place.module.replace(small, "pass"),), gist)


# -- the mark ---------------------------------------------------------------------------------------------


def patched_twice(view: KernelView) -> Iterator[Site]:
    """The exit that finds a module already patched: it looks up what the patcher itself sets."""
    written = view.interpreter.writes["patcher"]
    for found in _patcher_exits(view):
        if _asks_for_parts(found.node.test):
            continue
        kept = {name for place in view.reach("patcher") for name in _kept_outside(place)}
        if view.interpreter.reads[found.node.test] & written or read_names(found.node.test) & kept:
            yield _never(found)
    yield from _mark_not_set(view)


def _asks_for_parts(test: cst.BaseExpression) -> bool:
    """`not hasattr(module, "q_proj")`: it turns away what lacks a part, not what is patched already."""
    return m.matches(test, m.UnaryOperation(operator=m.Not())) and bool(m.findall(test, m.Call(m.Name("hasattr"))))


def _kept_outside(place: Place) -> Iterator[str]:
    """Names of the module that a function changes: `global original`, `ORIGINALS[cls] = …`, `PATCHED.add(cls)`."""
    own = parameter_names(place.node) | assigned_names(place.node.body)
    for small in small_statements(place.node):
        if isinstance(small, cst.Global):
            yield from (item.name.value for item in small.names)
        for target in small.targets if isinstance(small, cst.Assign) else ():
            if isinstance(target.target, cst.Subscript) and isinstance(target.target.value, cst.Name):
                yield from {target.target.value.value} - own
        added = m.Call(func=m.Attribute(value=m.Name(), attr=m.Name("add") | m.Name("append") | m.Name("setdefault")))
        if isinstance(small, cst.Expr) and m.matches(small.value, added):
            assert isinstance(small.value, cst.Call) and isinstance(small.value.func, cst.Attribute)
            yield from read_names(small.value.func.value) - own


def _mark_not_set(view: KernelView) -> Iterator[Site]:
    """Statements that set a flag which the patcher looks up (`setattr(module, MARK, True)`)."""
    looked_up = {n for found in _patcher_exits(view) for n in view.interpreter.reads[found.node.test]}
    for place in view.reach("patcher"):
        for small in small_statements(place.node):
            if not isinstance(small, cst.Expr) or not m.matches(small.value, m.Call(func=m.Name("setattr"))):
                continue
            assert isinstance(small.value, cst.Call)
            key, value = small.value.args[1].value, small.value.args[2].value
            keys = {o.const for v in view.seen("patcher").get(key, []) for o in alternatives(v) if o.kind == "const"}
            if keys & looked_up and m.matches(value, m.Name("True")):
                gist = f"`{one_line(place.module.code(small))}` is skipped: the patch leaves no mark"
                yield Site(place.module, place.scope, "mark", small, (place.module.replace(small, "pass"),), gist)


def _patcher_exits(view: KernelView) -> list[Exit]:
    return [e for e in exits(view) if view.patcher is not None and e.place.node is view.patcher.node]


def _never(found: Exit) -> Site:
    place, test = found.place, found.node.test
    gist = f"`if {one_line(place.module.code(test), 100)}` never holds"
    return Site(place.module, place.scope, found.subject, test, (place.module.replace(test, never(found)),), gist)


# -- ownership --------------------------------------------------------------------------------------------


def ownership_ignored(view: KernelView) -> Iterator[Site]:
    if view.roles.kind == "linear":
        yield from _takes_owned(view)
        return
    for place in view.reach("patcher"):
        for small in small_statements(place.node):
            if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call) and _releases(view, small.value):
                gist = f"`{one_line(place.module.code(small))}` is skipped: the projection keeps its single kernel"
                edit = place.module.replace(small, "pass")
                yield Site(place.module, place.scope, "", small, (edit,), gist)


def _releases(view: KernelView, call: cst.Call) -> bool:
    """A call, by its bare name, of a function of the target that takes an instance forward away."""
    if not isinstance(call.func, cst.Name):
        return False
    for value in view.seen("patcher").get(call.func, []):
        for option in alternatives(value):
            if option.kind != "function" or option.scope is None:
                continue
            module = view.source.modules[option.scope[0]]
            node = module.scopes[option.scope[1]]
            if isinstance(node, cst.FunctionDef):
                place = Place(module, option.scope[1], node)
                if any(deletes_forward(place, s) for s in small_statements(place.node)):
                    return True
    return False


def _takes_owned(view: KernelView) -> Iterator[Site]:
    """The single patcher's exit for a projection that a group owns: a mark it doesn't set, or a set of ids."""
    written = view.interpreter.writes["patcher"]
    by_id = m.Comparison(left=m.Call(func=m.Name("id")), comparisons=[m.ComparisonTarget(operator=m.In())])
    for found in _patcher_exits(view):
        keys = view.interpreter.reads[found.node.test] - set(LAYER_ATTRIBUTES)
        if (keys and not keys & written and not m.findall(found.node.test, m.Name("isinstance"))) or m.matches(
            found.node.test, by_id
        ):
            yield _never(found)


# -- the opt-in -------------------------------------------------------------------------------------------


def optin_leaks(view: KernelView) -> Iterator[Site]:
    """A guard's flag, off by default, that decides about dropout: on by default."""
    called = {id(o.node) for e in view.entries for o in _functions_called(view, e)}
    for guard in view.guards:
        if id(guard.node) not in called or view.roles.kind == "linear":
            continue
        params = guard.node.params
        for param in (*params.params, *params.kwonly_params):
            if (
                param.default is not None
                and m.matches(param.default, m.Name("False"))
                and _decides_dropout(view, param)
            ):
                edit = guard.module.replace(param.default, "True")
                gist = f"`{param.name.value}=False` becomes True: every kernel opts in"
                yield Site(guard.module, guard.scope, param.name.value, param.default, (edit,), gist)


def _functions_called(view: KernelView, entry: Place) -> Iterator[Value]:
    for node, values in list(view.seen(f"entry {entry.scope}").items()):
        if isinstance(node, cst.Name) and any(a is entry.node for a in entry.module.ancestors(node)):
            yield from (o for v in values for o in alternatives(v) if o.kind == "function")


def _decides_dropout(view: KernelView, param: cst.Param) -> bool:
    """Whether the default's value meets a dropout layer, or its p, in one test or one call."""
    for entry in view.entries:
        seen = view.seen(f"entry {entry.scope}")
        for node in list(seen):
            if not isinstance(node, cst.Call | cst.BooleanOperation):
                continue
            values = [o for n in _inside(node) for v in seen.get(n, []) for o in alternatives(v)]
            if any(v.node is param.default for v in values) and any("dropout" in v.kinds for v in values):
                return True
    return False


def _inside(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    for child in children(node):
        yield child
        yield from _inside(child)


def _mutation(
    ident: str,
    fault: str,
    imitates: str,
    seen_by: str,
    find: Callable[[KernelView], Iterator[Site]],
    absent: str,
) -> Mutation:
    return Mutation(ident, "lifecycle", fault, imitates, seen_by, find, absent, examples=EXAMPLES[ident])


MUTATIONS = (
    _mutation("forward-left-behind", "Unpatching leaves an instance forward on the module.",
              "The review of the SwiGLU kernel: the bound method was written back as an instance attribute.",
              "no `forward` in vars(module) after unpatching", forward_left,
              "the unpatcher removes no instance forward"),
    _mutation("forward-not-restored", "Unpatching doesn't put back the forward that it replaced.",
              "Public: a patched class whose forward stayed for the next model in the process.",
              "the original forward after unpatching", forward_not_restored,
              "the unpatcher puts no forward back"),
    _mutation("patched-twice", "A module that is patched already is patched again.",
              "A marker lost in a refactor: the kernel delegates to itself.", "patching twice: 0 the second time",
              patched_twice, "the patcher looks nothing up that it sets"),
    _mutation("group-ownership-ignored", "A projection of a group kernel is given to the single kernel too.",
              "The reviews: two patchers want one projection, in either order.",
              "patching in both orders; unpatching in any", ownership_ignored, "the patcher knows of no other kernel"),
    _mutation("dropout-optin-leaks", "A group kernel takes layers with dropout, and ignores it.",
              "The reviews: a shared dropout guard relaxed for the single projection only.",
              "dropout > 0 on a group kernel is handed back", optin_leaks,
              "the guard has no opt-in, or this is the kernel that opts in"),
)  # fmt: skip
