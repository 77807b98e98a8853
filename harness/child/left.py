"""What one test leaves for the next: values of the copy's modules and of wide fixtures, environment, files.

Only whether anything changed is told. Names that begin with `__` don't count, nor do modules that a value is.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from fastlora_verify.harness.child.place import real_folder

_DEPTH = 4
_MOST = 20_000  # values looked at; what lies beyond is taken to be unchanged
_ARRAY = 1 << 20  # B of a NumPy array that is read
_CONTAINERS = (list, tuple, set, frozenset)
_CHANGED_ENV = frozenset({"PYTEST_CURRENT_TEST"})


class Left:
    """Looks at what outlives a test, in the modules of `root` but for the files `leaving_out`."""

    def __init__(self, root: str, leaving_out: Iterable[str] = ()) -> None:
        self._root = root + os.sep
        self._leaving_out = frozenset(leaving_out)
        self._written: set[str] = set()
        self._before: dict[str, Any] = {}
        self._after: dict[str, Any] | None = None  # as the last test left everything
        self._fixtures: dict[Any, Any] = {}  # what wide fixtures gave, by definition
        self._found = False
        self._listens = bool(self._leaving_out)
        if self._listens:
            sys.addaudithook(self._heard)

    def begin(self) -> None:
        """A test begins: where the one before it ended."""
        self._found = False
        self._look(self._after)

    def leaves(self) -> bool:
        """Whether the test has changed what a later one may see. A module that is new is no change, a new name is."""
        if self._listens:
            self._after = after = self._seen()
            changed = any(name in after and after[name] != seen for name, seen in self._before.items())
            self._found |= self._wrote() or changed
        return self._found

    @contextlib.contextmanager
    def apart(self, fixture: Any) -> Iterator[None]:
        """What the set-up of a wide fixture changes isn't the test's: it counts for all that use the fixture."""
        self.leaves()
        yield
        if self._listens:
            self._fixtures[fixture] = fixture.cached_result
        self._look()

    def _look(self, seen: dict[str, Any] | None = None) -> None:
        if self._listens:
            self._written.clear()
            self._before = self._seen() if seen is None else seen

    def _wrote(self) -> bool:
        """Whether files were written that are still there, pytest's own folders left out."""
        return any("pytest-of-" not in path and os.path.isfile(path) for path in self._written)

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str | bytes):
            flags = args[2] if isinstance(args[2], int) else 0
            if flags & (os.O_WRONLY | os.O_RDWR):
                self._written.add(os.path.abspath(os.fsdecode(args[0])))
        elif event == "os.rename" and isinstance(args[1], str | bytes | os.PathLike):
            self._written.add(os.path.abspath(os.fsdecode(args[1])))

    def _seen(self) -> dict[str, Any]:
        look = Look(self._root)
        environ = {name: value for name, value in os.environ.items() if name not in _CHANGED_ENV}
        found: dict[str, Any] = {"": (environ, os.path.realpath(os.curdir), _torch_state())}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if isinstance(file, str) and (path := own_path(file, self._root)) and path not in self._leaving_out:
                found[name] = look.names(vars(module), _DEPTH)
        for definition, value in self._fixtures.items():
            found[f"fixture {id(definition)}"] = look.value(value, _DEPTH)
        return found


@cache
def own_path(file: str, root: str) -> str:
    """The real path of a file under `root`, else empty. A look asks for thousands of modules: each once a process."""
    if not real_folder(os.path.dirname(file)).startswith(root):
        return ""
    path = os.path.realpath(file)
    return path if path.startswith(root) else ""


def _torch_state() -> Any:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_default_dtype"):
        return None
    return str(torch.get_default_dtype()), torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled()


class Look:
    """One look: each value is entered once, and told by its identity from then on. `deep`: PyTorch's modules too."""

    def __init__(self, root: str, *, deep: bool = False) -> None:
        self._root = root
        self._deep = deep
        self._seen: set[int] = set()

    def names(self, names: Mapping[str, Any], depth: int) -> list[Any]:
        """A namespace; lazily imported modules don't change it."""
        kept = [(name, value) for name, value in list(names.items()) if not str(name).startswith("__")]
        return [(name, self.value(value, depth)) for name, value in kept if not isinstance(value, ModuleType)]

    def value(self, value: Any, depth: int) -> Any:
        """Something that is equal when looked at again, unless the value changed."""
        if isinstance(value, ModuleType):
            return ""
        if isinstance(value, int | float | str | bytes | bool | type(None)):
            return value if not isinstance(value, float) else repr(value)
        inner = id(value)
        if depth == 0 or inner in self._seen or len(self._seen) > _MOST:
            return inner
        self._seen.add(inner)
        try:
            return inner, list(self._inside(value, depth - 1))
        except Exception:  # a value that can't be looked at is told by its identity
            return inner

    def _inside(self, value: Any, depth: int) -> Iterator[Any]:
        if isinstance(value, _CONTAINERS):
            yield [self.value(item, depth) for item in value]
        elif isinstance(value, Mapping):
            yield [(self.value(key, depth), self.value(item, depth)) for key, item in list(value.items())]
        elif isinstance(value, FunctionType):
            yield self.names(vars(value), depth)
            yield id(value.__code__)
            yield self.value(value.__defaults__, depth)
            yield [self.value(cell.cell_contents, depth) for cell in value.__closure__ or ()]
        elif hasattr(value, "cache_info") and not isinstance(value, type):
            yield tuple(value.cache_info())
        elif not isinstance(value, BuiltinFunctionType):
            yield from _stream(value)
            if self._is_own(value if isinstance(value, type) else type(value)):
                yield self.names(vars(value), depth)
            elif self._deep and hasattr(value, "named_modules") and not isinstance(value, type):
                modules = [module for _, module in value.named_modules()]
                self._seen.update(map(id, modules))
                yield [self._parts(module) for module in modules]

    def _parts(self, module: Any) -> Any:
        """A PyTorch module: its class, the forward that it may have of its own, its hooks and parameters."""
        return type(module), [(name, self.value(value, 2)) for name, value in list(vars(module).items())]

    def _is_own(self, kind: type) -> bool:
        module = sys.modules.get(kind.__module__)
        file = getattr(module, "__file__", None)
        return isinstance(file, str) and bool(own_path(file, self._root))


def _stream(value: Any) -> Iterator[Any]:
    """The states of random generators, tensors, arrays, iterators' like."""
    kind = f"{type(value).__module__}.{type(value).__name__}"
    if kind == "numpy.random._generator.Generator":
        yield repr(value.bit_generator.state)
    elif kind in ("random.Random", "numpy.random.mtrand.RandomState"):
        yield repr(value.getstate() if hasattr(value, "getstate") else value.get_state())
    elif kind in ("torch._C.Generator", "torch.Generator"):
        yield value.get_state().numpy().tobytes()
    elif kind == "numpy.ndarray" and value.nbytes <= _ARRAY:
        yield value.tobytes()
    elif hasattr(value, "_version") and hasattr(value, "data_ptr"):
        yield value._version
    elif kind in ("collections.deque", "builtins.bytearray"):
        yield list(value)
    elif kind == "itertools.count":
        yield repr(value)
