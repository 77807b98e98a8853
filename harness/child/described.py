"""Kernels of a target as the oracles know kernels, from the target's description alone.

The description names functions; how they are called is told by their signatures, and confirmed: a way of calling the
patcher counts when the kernel's node is then on a sample model's output. Where none does, the oracles say why they
were not run.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from fastlora_verify.harness.child import installing
from fastlora_verify.harness.child.hosts import HOSTS, Host
from fastlora_verify.harness.child.patch_call import Call, UnclearCallError, calls_of, parsed
from fastlora_verify.kernels.info import KernelInfo
from fastlora_verify.kernels.missing import MissingLibraryError
from fastlora_verify.kernels.samples import KINDS, Sample, build
from fastlora_verify.oracles.arms import node_name, ran
from fastlora_verify.oracles.base import NotRunError, one_line
from fastlora_verify.oracles.instruments import outputs_of

TRIED: tuple[dict[str, Any], ...] = (
    {"dtype": "fp32"},
    {"dtype": "fp32", "bias": False},
    {"dtype": "fp32", "shape": (6,)},
    {"dtype": "fp32", "ranks": 4},
    {"dtype": "mixed", "bias": False},
    {"dtype": "bf16", "bias": False},
    {"dtype": "fp16", "bias": False},
    {"dtype": "bf16", "bias": False, "base": "nf4"},
)
"""Samples in one of which a kernel of use must run."""

PATCHED = "_fastlora_verify_patched"


@dataclass(frozen=True)
class Way:
    """One way of calling a patcher."""

    host: str  # of HOSTS
    call: Call


@dataclass
class Described:
    """A kernel of a description, its functions found, the way of calling them open or confirmed."""

    name: str
    kind: str
    node: str
    patcher: Callable[..., Any]
    unpatcher: Callable[..., Any] | None
    ways: list[Way]
    known: dict[type, Any] = field(default_factory=dict)  # forwards that the patcher gave to classes

    def info(self) -> KernelInfo:
        """The kernel for the oracles."""

        def patch(model: nn.Module, **options: Any) -> int:
            return self.patch(model, options)

        own = inspect.signature(self.patcher).parameters.get("allow_dropout")
        if own is not None:  # the oracle of dropout looks whether a patcher takes it
            model = inspect.Parameter("model", inspect.Parameter.POSITIONAL_ONLY)
            keyword = own.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            patch.__signature__ = inspect.Signature([model, keyword])  # type: ignore[attr-defined]
        projections = KINDS[self.kind].projections
        return KernelInfo(self.name, self.kind, self.node, patch, self.unpatch, projections, declared=False)

    def patch(self, model: nn.Module, options: Mapping[str, Any]) -> int:
        """Calls the patcher the confirmed way. Returns its count, or how many modules changed where it gives none.

        Raises NotRunError where it changes nothing of a model that was not patched before.
        """
        way = self.ways[0]
        host = HOSTS[way.host](self.kind, model)
        before = installing.look(host.model)
        result = host.call(lambda *args, **named: self.patcher(*args, **named, **options), way.call)
        changed = installing.changes(before, self.known)
        if not changed and PATCHED not in vars(model):
            raise NotRunError(f"the patcher left the model to PEFT: it returned {_told(result)}")
        if names := installing.renamed(before):
            raise NotRunError(f"the patcher renames parameters: {', '.join(names[:3])}")
        if host.block is not host.sample and "forward" in vars(host.block):
            vars(host.sample)["forward"] = vars(host.block)["forward"]
        if changed:
            vars(model)[PATCHED] = _Mark(host)
        return result if type(result) is int else changed

    def unpatch(self, model: nn.Module) -> int:
        """Calls the unpatcher on what the patcher was called on. Raises NotRunError without one."""
        if self.unpatcher is None:
            raise NotRunError("the description names no unpatcher")
        if self.known:
            raise NotRunError("the patcher assigns to classes, which an unpatcher undoes for every model")
        mark = vars(model).pop(PATCHED, None)
        host = mark.host if mark is not None else HOSTS[self.ways[0].host](self.kind, model)
        try:
            calls = calls_of(self.unpatcher)
        except UnclearCallError as error:
            raise NotRunError(f"how the unpatcher is called is not known: {error}") from error
        before, changed, result = installing.look(host.model), 0, None
        for call in calls:
            result = host.call(self.unpatcher, call)
            changed = installing.changes(before, self.known)
            if changed:
                break
        if host.block is not host.sample:
            vars(host.sample).pop("forward", None)
        return result if type(result) is int else changed


@dataclass(eq=False)
class _Mark:
    """On a patched model: what the patcher was called on. A copy of the model is patched as its original was."""

    host: Host

    def __deepcopy__(self, memo: dict[int, Any]) -> _Mark:
        return self


def _told(result: Any) -> str:
    return repr(result)[:60] if isinstance(result, int | str | None | bool) else type(result).__name__


def kernels(described: Sequence[Mapping[str, str]], device: str = "cpu") -> Iterator[tuple[str, KernelInfo | str]]:
    """Each kernel's name, and the kernel for the oracles or why they can't be asked about it."""
    for kernel in described:
        try:
            yield kernel["name"], found(kernel, device).info()
        except NotRunError as reason:
            yield kernel["name"], f"not run: {reason}"


def found(kernel: Mapping[str, str], device: str = "cpu") -> Described:
    """A kernel of the description, the way of calling its patcher confirmed on `device`. Raises NotRunError."""
    if kernel["kind"] not in KINDS:
        raise NotRunError(f"there is no sample model of kind {kernel['kind']!r}")
    if not kernel["patcher"]:
        raise NotRunError("the description names no patcher")
    patcher = function_at(kernel["patcher"])
    unpatcher = function_at(kernel["unpatcher"]) if kernel["unpatcher"] else None
    try:
        calls = (parsed(kernel["patch_call"]),) if kernel["patch_call"] else calls_of(patcher)
    except UnclearCallError as error:
        raise NotRunError(f"how {kernel['patcher']} is called is not known: {error}") from error
    ways = [Way(host, call) for host in HOSTS for call in calls]
    described = Described(kernel["name"], kernel["kind"], kernel["node"], patcher, unpatcher, ways)
    described.ways = [confirmed(described, device)]
    return described


def function_at(scope: str) -> Callable[..., Any]:
    """The function that a scope `package.module:outer.inner` names. Raises NotRunError where it can't be had."""
    module, _, path = scope.partition(":")
    try:
        value: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise NotRunError(f"importing {module} raises {one_line(error)}") from error
    for part in path.split("."):
        value = getattr(value, part, None)
    if not callable(value):
        raise NotRunError(f"{scope} is not there to be called")
    function: Callable[..., Any] = value
    return function


def confirmed(described: Described, device: str) -> Way:
    """The first way after which the kernel runs on a sample model. Raises NotRunError with what each came to."""
    reasons: dict[str, str] = {}
    for way in described.ways:
        for fields in TRIED:
            reason = attempt(described, way, tried(described.kind, fields, device))
            if reason is None:
                return way
            reasons.setdefault(f"called as {way.call} on {way.host}", reason)
    raise NotRunError("; ".join(f"{way}, {reason}" for way, reason in reasons.items()))


def tried(kind: str, fields: Mapping[str, Any], device: str) -> Sample:
    """A sample of TRIED."""
    ranks = (fields["ranks"],) * len(KINDS[kind].projections) if "ranks" in fields else ()
    return Sample(**{**fields, "ranks": ranks, "device": device})


def attempt(described: Described, way: Way, sample: Sample) -> str | None:
    """Why the kernel does not run on a sample that is patched this way; None if it does."""
    try:
        model, x = build(described.kind, sample)
    except (MissingLibraryError, AssertionError, RuntimeError) as reason:  # torch without the device asserts
        return str(reason)
    expected = [tuple(out.shape) for out in outputs_of(model(x))]
    trial = Described(**{**vars(described), "ways": [way]})
    try:
        trial.patch(model, {})
        outputs = outputs_of(model(x))
    except NotRunError as reason:
        return str(reason)
    except Exception as error:
        return f"raises {one_line(error)}"
    if [tuple(out.shape) for out in outputs] != expected:
        return "the patched block gives outputs of other shapes"
    info = KernelInfo(trial.name, trial.kind, trial.node, trial.unpatch, trial.unpatch, (), declared=False)
    if not ran(info, model, x):
        return f"no {trial.node} on the output, whose node is {' and '.join(sorted(set(map(node_name, outputs))))}"
    return None
