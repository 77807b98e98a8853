"""What a run leaves behind for tests that it did not run, by name: two looks, before its first test and after its last.

Whatever a test may see of what another did: the copy's modules and files, wide fixtures, the classes and functions of
libraries, settings of Python, torch and the process. A name that is only there at the second look is harm on a class,
in one of the copy's modules and among the files and settings; elsewhere it is an import that came late.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Mapping
from operator import is_
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from fastlora_verify.harness.child.left import Look, own_path
from fastlora_verify.harness.child.place import real_folder
from fastlora_verify.harness.child.probe import Probe

OWN = "the target's own: "  # how names begin of what the target and its tests keep values in
_DEPTH = 4
_PATCHED = ("torch.nn", "torch.autograd", "peft", "bitsandbytes", "transformers")  # packages that kernels patch
_CALLED = (FunctionType, BuiltinFunctionType, type)
_ABSENT = object()
_TORCH = (
    "get_default_dtype",
    "get_default_device",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "is_anomaly_enabled",
    "is_autocast_cpu_enabled",
    "is_autocast_cache_enabled",
    "get_autocast_cpu_dtype",
    "are_deterministic_algorithms_enabled",
    "is_deterministic_algorithms_warn_only_enabled",
    "get_float32_matmul_precision",
    "get_num_threads",
    "get_flush_denormal",
)
_HOOKS = ("excepthook", "unraisablehook", "displayhook", "stdout", "stderr", "stdin", "dont_write_bytecode")
_OWN_ENV = frozenset({"PYTEST_CURRENT_TEST"})

Names = dict[str, Any]


class _Libraries:
    """The first look at the libraries: each namespace with its names as they were."""

    def __init__(self) -> None:
        self.modules: dict[str, ModuleType] = {}
        self.spaces: dict[str, tuple[Any, Names]] = {}

    def extend(self) -> None:
        """Looks at what no look has seen yet."""
        self.modules |= {name: module for name, module in list(sys.modules.items()) if name not in self.modules}
        spaces: Names = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in _classes()}
        spaces |= {name: module for name, module in self.modules.items() if _is_patched(name, module)}
        for name, space in spaces.items():
            if name not in self.spaces:
                self.spaces[name] = space, dict(vars(space))

    def changed(self) -> Iterable[str]:
        """What is not as it was."""
        for name, module in self.modules.items():
            if sys.modules.get(name) is not module:
                yield f"the module {name}"
        for name, (space, before) in self.spaces.items():
            now = vars(space)
            if len(now) == len(before) and all(map(is_, now.values(), before.values())):
                continue
            yield from (f"{name}.{changed}" for changed in _patched(before, dict(now), isinstance(space, type)))


_libraries = _Libraries()  # as they were in this process, or in the one that it was forked from


def keep_libraries() -> None:
    """Looks at the libraries, for this process and for every fork of it: what each would need 50 ms for."""
    _libraries.extend()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str):
            real_folder(os.path.dirname(file))


class Harm:
    """What may outlive a test, in this process and in the copy at `root`."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._own: dict[str, Names] = {}
        self._settings: Names = {}
        self._fixtures: set[str] = set()
        self._begun = False

    def begin(self, probe: Probe) -> None:
        """The first look: no test has begun. At modules that are imported later, `probe` has it looked then."""
        _libraries.extend()
        probe.imported = self._imported
        self._own = self._seen_own()
        self._settings = self._seen_settings()
        self._begun = True

    def _imported(self, module: ModuleType) -> None:
        if self._is_own(module):
            self._own.setdefault(module.__name__, self._names(module))

    def set_up(self, fixture: Any) -> None:
        """A wide fixture was set up: its value is looked at now, and before it is torn down."""
        cached = fixture.cached_result
        if cached is None or cached[2] is not None:
            return
        value, before = cached[0], self._value(cached[0])

        def look_again() -> None:
            if self._value(value) != before:
                self._fixtures.add(f"{OWN}the fixture {fixture.argname} of {fixture.baseid}")

        fixture.addfinalizer(look_again)

    def _value(self, value: Any) -> Any:
        return Look(self._root, deep=True).value(value, _DEPTH)

    def names(self) -> list[str]:
        """The second look: everything that is not as it was."""
        if not self._begun:
            return []
        return sorted({*self._fixtures, *self._changed_own(), *self._changed_settings(), *_libraries.changed()})

    # -- the copy's modules -----------------------------------------------------------------------------------

    def _is_own(self, module: Any) -> bool:
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and bool(own_path(file, self._root + os.sep))

    def _names(self, module: ModuleType) -> Names:
        return dict(Look(self._root, deep=True).names(vars(module), _DEPTH))

    def _seen_own(self) -> dict[str, Names]:
        return {name: self._names(module) for name, module in list(sys.modules.items()) if self._is_own(module)}

    def _changed_own(self) -> Iterable[str]:
        for name, before in self._own.items():
            module = sys.modules.get(name)
            after = self._names(module) if module is not None else {}
            yield from (f"{OWN}{name}.{changed}" for changed in _differing(before, after))

    # -- settings ---------------------------------------------------------------------------------------------

    def _seen_settings(self) -> Names:
        found: Names = {f"the variable {name}": value for name, value in os.environ.items() if name not in _OWN_ENV}
        found["the working folder"] = os.path.realpath(os.curdir)
        found["sys.path"] = list(sys.path)
        found |= {f"sys.{name}": id(getattr(sys, name, None)) for name in _HOOKS}
        found |= {f"the handler of signal {int(number)}": signal.getsignal(number) for number in signal.valid_signals()}
        found |= {f"the thread {re.sub(r'[0-9]+', '', thread.name)}": 1 for thread in threading.enumerate()}
        found["child processes"] = _children()
        torch = sys.modules.get("torch")
        found |= {f"torch.{name}()": _asked(torch, name) for name in _TORCH if torch is not None}
        return found | _files(self._root)

    def _changed_settings(self) -> Iterable[str]:
        return _differing(self._settings, self._seen_settings())


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    names = {**before, **after}
    return [name for name in names if before.get(name, _ABSENT) != after.get(name, _ABSENT)]


def _patched(before: Names, now: Names, is_class: bool) -> Iterable[str]:
    """Names of a class that are others than before; of a module only functions and classes, and none that is new."""
    for name in {**before, **now}:
        old, new = before.get(name, _ABSENT), now.get(name, _ABSENT)
        if old is new or name.startswith(("__", "_abc_")):
            continue
        if is_class or (old is not _ABSENT and (isinstance(old, _CALLED) or isinstance(new, _CALLED))):
            yield name


def _is_patched(name: str, module: Any) -> bool:
    """Whether a module's functions are looked at: Python's own, torch itself, and the packages that kernels patch."""
    if not isinstance(module, ModuleType):
        return False
    top = name.partition(".")[0]
    if "." not in name:
        return name in sys.stdlib_module_names or name in ("torch", *_PATCHED)
    return top in _PATCHED or name.startswith(("torch.nn.", "torch.autograd."))


def _classes() -> set[type]:
    """PyTorch's module classes that exist, tensors and functions, and the classes of PEFT and bitsandbytes."""
    torch = sys.modules.get("torch")
    found: set[type] = set()
    if torch is not None and hasattr(torch, "nn"):
        found |= {torch.Tensor, torch.autograd.Function}
        _add_subclasses(torch.nn.Module, found)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("peft", "bitsandbytes") and isinstance(module, ModuleType):
            found |= {value for value in list(vars(module).values()) if isinstance(value, type)}
    return found


def _add_subclasses(kind: type, found: set[type]) -> None:
    found.add(kind)
    inner: type
    for inner in type.__subclasses__(kind):
        if inner not in found:
            _add_subclasses(inner, found)


def _asked(torch: Any, name: str) -> str:
    try:
        return str(getattr(torch, name)())
    except Exception:
        return ""


def _children() -> int:
    """How many child processes this one has (Linux; elsewhere 0)."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return len(file.read().split())
    except OSError:
        return 0


def _files(root: str) -> Names:
    """Size, mode and time of every file and folder of the copy."""
    found: Names = {}
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    info = entry.stat(follow_symlinks=False)
                    is_folder = entry.is_dir(follow_symlinks=False)
                    told = info.st_mode if is_folder else (info.st_mode, info.st_size, info.st_mtime_ns)
                    found[f"the file {os.path.relpath(entry.path, root)}"] = told
                    if is_folder:
                        waiting.append(entry.path)
        except OSError:
            continue
    return found
