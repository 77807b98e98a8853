"""Reads a target file into `Target`; every key is checked before anything runs.

    [target]
    name = "reference"
    root = "."                    # optional; a folder that is copied whole, relative to the file
    include = ["data/*.bin"]      # optional; what git ignores and a scratch copy needs: paths and patterns below root
    source-roots = ["src"]        # in the copy; first on the path of the target's interpreter
    modules = ["package.module"]  # that mutations look into
    instruments = []              # modules of test helpers and oracles
    tests = ["tests"]             # in the copy; an empty list: the target can be listed, not run
    pytest-args = []
    gpu-marker = "gpu"
    python = "venv/bin/python"    # optional; runs the target; relative to the file, or a command on the path
    [target.place]                # optional; more folders of the copy: a path, or an installed package
    "src/package" = "package:package"
    [target.env]
    OMP_NUM_THREADS = "1"
    [[kernel]]
    name = "mlp"
    kind = "swiglu-mlp"           # linear, qkv, swiglu-mlp, other
    function = "package.module:Function"               # the autograd Function; with a forward and a backward
    entries = ["package.module:make_forward.forward"]  # the functions that become a module's forward
    owner = ["transformers.models.llama.modeling_llama:LlamaMLP"]  # optional; the classes whose forward that is
    guards = []                   # optional; functions that decide whether PEFT must run
    helpers = []                  # optional; functions that the Function calls
    patcher = "package.module:patch"      # optional; installs the entries
    patch-call = "patch(model)"   # optional; where its parameters' names don't say what the oracles give it:
                                  # model, block, cls, config, lora_config, adapter_name, or literals
    unpatcher = "package.module:unpatch"  # optional; takes them away
    node = "FunctionBackward"     # grad_fn name of the kernel's output
    [[allow]]                     # optional; a survivor that is right
    mutant = "guard-skipped@*"    # a mutant's name, * for any text
    reason = "why"

In a `pyproject.toml` the same tables stand under `[tool.fastlora-verify]`. A scope is written
`package.module:outer.inner`.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

from fastlora_verify.harness.child.patch_call import ROLES, UnclearCallError, parsed
from fastlora_verify.harness.errors import TargetError
from fastlora_verify.harness.targets.keys import Keys, shown
from fastlora_verify.harness.targets.listing import included
from fastlora_verify.harness.targets.target import Allowance, Target
from fastlora_verify.mutations.base import KernelRoles

KINDS = ("linear", "qkv", "swiglu-mlp", "other")
FILE_NAME = "fastlora-verify.toml"
SECTION = "fastlora-verify"
INCLUDE_RULE = "paths and patterns of files below root"
DEFAULT = ("fastlora_verify.kernels", "reference.toml")

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_SCOPE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def load_target(path: Path | None) -> Target:
    """The target that `path` describes: a TOML file, or a folder with one; None: the reference kernels.

    Raises TargetError where the file can't be read or a key is wrong.
    """
    file, data = _read(_default_file() if path is None else path)
    top = Keys(file, "", data)
    table = top.table("target")
    modules = _dotted(table, "modules", some=True)
    instruments = _dotted(table, "instruments")
    place = tuple(
        (_inside(table, "place", to), _placed(table, file, to, source)) for to, source in table.strings("place").items()
    )
    root = table.optional_text("root")
    if root is None and not place:
        raise table.error("root", "is missing, and so is place: nothing would be copied")
    target = Target(
        name=table.text("name"),
        file=file,
        root=_folder(table, "root", file.parent / root) if root is not None else None,
        place=place,
        source_roots=_inner(table, "source-roots", default=["."]),
        modules=modules,
        instruments=instruments,
        tests=_inner(table, "tests", some=False),
        pytest_args=table.texts("pytest-args", default=()),
        gpu_marker=table.text("gpu-marker", "gpu"),
        env=_env(table),
        python=_python(table, file),
        kernels=_kernels(top, modules),
        allowances=_allowances(top),
        include=_included(table, file, root),
    )
    table.finish()
    top.finish()
    return target


def _default_file() -> Path:
    package, name = DEFAULT
    folder = package_folder(package)
    assert folder is not None  # it is ours
    return folder / name


def _read(path: Path) -> tuple[Path, Any]:
    """The file and its tables; a folder stands for the target file in it."""
    if os.path.isdir(path):  # unlike Path.is_dir, also where the name is too long
        own, project = path / FILE_NAME, path / "pyproject.toml"
        if not own.exists() and not project.exists():
            problem = f"the folder has neither {FILE_NAME} nor pyproject.toml; `fastlora-verify init` writes one"
            raise TargetError(path, problem)
        path = own if own.exists() else project
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TargetError(path, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TargetError(path, f"is not UTF-8 (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise TargetError(path, f"is not TOML: {error}") from error
    if path.name == "pyproject.toml":
        tool = data.get("tool")
        if not isinstance(tool, dict) or SECTION not in tool:
            raise TargetError(path, f"has no [tool.{SECTION}] table; `fastlora-verify init` writes one")
        data = tool[SECTION]
    return path.resolve(), data


def _kernels(top: Keys, modules: tuple[str, ...]) -> tuple[KernelRoles, ...]:
    kernels: dict[str, KernelRoles] = {}
    for table in top.tables("kernel", some=True):
        table.name = table.text("name")
        kernel = KernelRoles(
            name=table.name,
            kind=table.choice("kind", KINDS),
            function=_scope(table, "function", table.text("function"), modules),
            entries=_scopes(table, "entries", modules, some=True),
            guards=_scopes(table, "guards", modules),
            helpers=_scopes(table, "helpers", modules),
            patcher=_optional_scope(table, "patcher", modules),
            unpatcher=_optional_scope(table, "unpatcher", modules),
            node=table.text("node"),
            owner=_owner(table),
            patch_call=_patch_call(table),
        )
        if kernel.name in kernels:
            raise table.error("name", f"{kernel.name!r} is the name of two kernels")
        kernels[kernel.name] = kernel
        table.finish()
    return tuple(kernels.values())


def _patch_call(table: Keys) -> str:
    text = table.optional_text("patch-call") or ""
    try:
        if text:
            parsed(text)
    except UnclearCallError as error:
        raise table.error("patch-call", str(error), f"a call with {', '.join(ROLES)} or literals") from error
    return text


def _allowances(top: Keys) -> tuple[Allowance, ...]:
    found = []
    for table in top.tables("allow"):
        found.append(Allowance(mutant=table.text("mutant"), reason=table.text("reason")))
        table.finish()
    return tuple(found)


def _scopes(table: Keys, key: str, modules: tuple[str, ...], *, some: bool = False) -> tuple[str, ...]:
    texts = table.texts(key, default=None if some else (), some=some)
    return tuple(_scope(table, key, text, modules) for text in texts)


def _optional_scope(table: Keys, key: str, modules: tuple[str, ...]) -> str:
    """A scope, or nothing where the target has no such function."""
    text = table.optional_text(key)
    return _scope(table, key, text, modules) if text else ""


def _owner(table: Keys) -> tuple[str, ...]:
    """Classes, of the target's modules or of any other."""
    found = table.texts("owner", default=())
    for text in found:
        if not _SCOPE.fullmatch(text):
            raise table.error("owner", f"found {shown(text)}", "classes, package.module:Class")
    return found


def _scope(table: Keys, key: str, text: str, modules: tuple[str, ...]) -> str:
    if not _SCOPE.fullmatch(text):
        raise table.error(key, f"found {shown(text)}", "a scope, package.module:outer.inner")
    module = text.partition(":")[0]
    if module not in modules:
        raise table.error(key, f"{module} is not one of target.modules", ", ".join(modules))
    return text


def _dotted(table: Keys, key: str, *, some: bool = False) -> tuple[str, ...]:
    names = table.texts(key, default=None if some else (), some=some)
    for name in names:
        if not _DOTTED.fullmatch(name):
            raise table.error(key, f"found {shown(name)}", "dotted module names")
    return names


def _inner(table: Keys, key: str, *, default: list[str] | None = None, some: bool = True) -> tuple[str, ...]:
    return tuple(_inside(table, key, text) for text in table.texts(key, default=default, some=some))


def _included(table: Keys, file: Path, root: str | None) -> tuple[str, ...]:
    """Paths and patterns below the root, each with something there."""
    found = tuple(_inside(table, "include", text) for text in table.texts("include", default=()))
    if found and root is None:
        raise table.error("include", "is relative to root, which is missing")
    for pattern in found:
        try:
            is_there = bool(included(file.parent / (root or "."), [pattern]))
        except (ValueError, NotImplementedError):  # pathlib's, about the pattern
            raise table.error("include", f"found {shown(pattern)}", INCLUDE_RULE) from None
        if not is_there:
            raise table.error("include", f"nothing is at {shown(pattern)}", INCLUDE_RULE)
    return found


def _inside(table: Keys, key: str, text: str) -> str:
    """A path in the copy: relative, and nowhere above it."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts:
        raise table.error(key, f"found {shown(text)}", "paths inside of the copy, without ..")
    return str(path)


def _folder(table: Keys, key: str, path: Path) -> Path:
    if not os.path.isdir(path):
        raise table.error(key, f"{path} is not a folder")
    return path.resolve()


def _placed(table: Keys, file: Path, to: str, source: str) -> Path:
    """A folder on disk: of an installed package, found without importing it, or relative to the file."""
    kind, colon, name = source.partition(":")
    if not (colon and kind == "package"):
        return _folder(table, f"place.{to}", file.parent / source)
    folder = package_folder(name)
    if folder is None:
        raise table.error(f"place.{to}", f"no package {name!r} is installed here")
    return folder.resolve()


def package_folder(name: str) -> Path | None:
    """The folder of an installed package, its parents not imported either; None if there is none."""
    search: list[str] | None = None
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        full = ".".join(parts[:end])
        specs = (finder.find_spec(full, search) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is None or spec.submodule_search_locations is None:
            return None
        search = list(spec.submodule_search_locations)
    folders = [Path(place) for place in search or [] if Path(place).is_dir()]
    return folders[0] if folders else None


def _env(table: Keys) -> tuple[tuple[str, str], ...]:
    """Variables that a process can have."""
    env = tuple(table.strings("env").items())
    for name, value in env:
        if not name or "=" in name or "\0" in name + value:
            raise table.error("env", f"found {shown({name: value})}", "names without =, and no NUL")
    return env


def _python(table: Keys, file: Path) -> str | None:
    text = table.optional_text("python")
    if text is None:
        return None
    found = find_executable(text, file.parent)
    if found is None:
        raise table.error("python", f"{text} is not an executable file")
    return found


def find_executable(text: str, base: Path) -> str | None:
    """A path relative to `base`, or a command on the search path; None if that can't be run."""
    path = Path(os.path.expanduser(text))
    found = str(base / path) if os.path.dirname(text) else shutil.which(text)
    return found if found is not None and os.path.isfile(found) and os.access(found, os.X_OK) else None
