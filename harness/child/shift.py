"""Adds an offset to every seed that a test gives: torch's, NumPy's and Python's, module helpers included."""

from __future__ import annotations

import functools
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

_WORDS = ("torch", "numpy")


class Shift:
    """With offset 0 nothing changes, and the seeds given are noted all the same."""

    def __init__(self, offset: int) -> None:
        self.given: Counter[str] = Counter()  # "torch.manual_seed(3)": how often
        self.active = False
        self._offset = offset
        self._inside = False
        self._replaced: dict[int, tuple[Any, Any]] = {}  # by the original's id

    def install(self, root: str) -> None:
        """Puts itself in the place of what seeds a stream, also where a module of `root` took it by name."""
        modules = list(_modules_under(root))
        for name in _WORDS:
            if name in sys.modules or any(name in _source(module) for module in modules):
                self._patch(name)
        self._patch("random")
        for module in modules:
            for name, value in list(vars(module).items()):
                original, mine = self._replaced.get(id(value), (None, None))
                if original is value and original is not None:
                    setattr(module, name, mine)

    def seed_streams(self) -> None:
        """Starts the global streams at the offset, for tests that draw without having seeded."""
        random.seed(self._offset)
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed(self._offset)
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(self._offset)

    def _patch(self, name: str) -> None:
        try:
            module = __import__(name)
        except Exception:  # the test meets it itself
            return
        {"random": self._python, "numpy": self._numpy, "torch": self._torch}[name](module)

    def _python(self, module: ModuleType) -> None:
        self._replace(module, "seed", "random.seed")
        generator: Any = random.Random
        seed = generator.seed

        def shifted(instance: Any, a: Any = None, *args: Any, **kwargs: Any) -> Any:
            return self._call(functools.partial(seed, instance), "random.Random", (a, *args), kwargs)

        generator.seed = shifted

    def _numpy(self, module: Any) -> None:
        self._replace(module.random, "seed", "numpy.random.seed")
        self._replace(module.random, "default_rng", "numpy.random.default_rng")
        base = module.random.RandomState
        call = self._call

        def begin(instance: Any, *args: Any, **kwargs: Any) -> None:
            call(functools.partial(base.__init__, instance), "numpy.random.RandomState", args, kwargs)

        self._put(module.random, "RandomState", _stand_in(base, {"__init__": begin}))

    def _torch(self, module: Any) -> None:
        mine = self._replace(module, "manual_seed", "torch.manual_seed")
        self._put(module.random, "manual_seed", mine)
        for name in ("manual_seed", "manual_seed_all"):
            mine = self._replace(module.cuda, name, f"torch.cuda.{name}")
            self._put(module.cuda.random, name, mine)
        base = module.Generator
        call = self._call

        def manual_seed(instance: Any, *args: Any, **kwargs: Any) -> Any:
            return call(functools.partial(base.manual_seed, instance), "torch.Generator.manual_seed", args, kwargs)

        self._put(module, "Generator", _stand_in(base, {"manual_seed": manual_seed}))

    def _replace(self, holder: Any, name: str, label: str) -> Any:
        original = getattr(holder, name)

        @functools.wraps(original)
        def shifted(*args: Any, **kwargs: Any) -> Any:
            return self._call(original, label, args, kwargs)

        self._put(holder, name, shifted)
        return shifted

    def _put(self, holder: Any, name: str, mine: Any) -> None:
        original = getattr(holder, name)
        self._replaced[id(original)] = (original, mine)
        setattr(holder, name, mine)

    def _call(self, original: Callable[..., Any], label: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls it with its seed shifted; what seeding calls in its turn is shifted once, not twice."""
        key = next((key for key in ("seed", "a") if key in kwargs), None)
        seed = kwargs[key] if key else (args[0] if args else None)
        if not self.active or self._inside or type(seed) is not int:
            return original(*args, **kwargs)
        self.given[f"{label}({seed})"] += 1
        moved = {**kwargs, key: seed + self._offset} if key else kwargs
        self._inside = True
        try:
            return original(*(args if key else (seed + self._offset, *args[1:])), **moved)
        finally:
            self._inside = False


def _stand_in(base: Any, methods: dict[str, Any]) -> type:
    """A class that behaves as `base` but for `methods`, and that instances of `base` are instances of, too."""

    def is_instance(cls: type, instance: Any) -> bool:
        return isinstance(instance, base)

    alike = type(base.__name__, (type(base),), {"__instancecheck__": is_instance})
    made: type = alike(base.__name__, (base,), methods)
    return made


def _modules_under(root: str) -> Iterator[ModuleType]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and os.path.realpath(file).startswith(root + os.sep):
            yield module


def _source(module: ModuleType) -> str:
    try:
        with open(str(module.__file__), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
