"""What the command line's words mean, and the odds and ends of being a command."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import fields
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastlora_verify.harness.errors import FileError, UsageError

if TYPE_CHECKING:
    from fastlora_verify.harness.editing.edit_options import Asked
    from fastlora_verify.harness.selection import Selection
    from fastlora_verify.harness.trees.columns import Wanted
    from fastlora_verify.reports.record import RunRecord

_PATH = re.compile(r"[^-@][^@]*(/|\.py(::.*)?$)[^@]*|[^-@][^@]*::[^@]*")  # what looks like one


def spread(argv: Sequence[str]) -> list[str]:
    """`--tests a.py b.py` as `--tests a.py --tests b.py`, and so for every option that takes several words.

    Edits come with their scopes. Raises UsageError where one has none.
    """
    if any(word.partition("=")[0] in ("--insert", "--replace", "--at", "--reverts") for word in argv):
        from fastlora_verify.harness.editing.edit_options import paired

        argv = paired(argv)
    # What else stands beside revisions can be told from them where it is a mutation.
    options = {name: fits for name, fits in _SPREAD.items() if name != "--merged-onto" or list(argv[:1]) == ["mutate"]}
    words: list[str] = []
    option: str | None = None
    for position, word in enumerate(argv):
        if option is not None and argv[position - 1] != option and options[option](word):
            words.append(option)
        elif word.startswith("-"):
            option = word if word in options else None
        elif option is not None and argv[position - 1] != option:
            option = None
        words.append(word)
    return words


def _is_path(word: str) -> bool:
    return _PATH.fullmatch(word) is not None


def _is_device(word: str) -> bool:
    return word in ("cpu", "cuda")


def _is_revision(word: str) -> bool:
    """Any word that doesn't name mutations: those stand on the same line."""
    from fastlora_verify.mutations.registry import MUTATIONS

    ids = [mutation.id for mutation in MUTATIONS]
    return not word.startswith("-") and "@" not in word and not any(fnmatch(id_, word) for id_ in ids)


_SPREAD: dict[str, Callable[[str], bool]] = {
    "--tests": _is_path,
    "--device": _is_device,
    "--merged-onto": _is_revision,
}


def selection(
    names: list[str] | None,
    kernels: list[str] | None,
    families: list[str] | None,
    asked: Asked | None = None,
    *,
    everything: bool,
) -> Selection:
    """What to run. Raises NothingToRun if nothing was named, UsageError if names stand beside --all."""
    from fastlora_verify.harness.editing import edit_options

    if everything and names:
        raise UsageError(f"--all and the name {names[0]!r} contradict each other; give one of them")
    own = asked if asked is not None else edit_options.Asked()
    return edit_options.selection(names or (), kernels or (), families or (), own, everything=everything)


def wanted(
    columns: list[str] | None,
    against: str | None,
    merged_onto: list[str] | None,
    rebased_onto: str | None,
    upstream: str | None,
) -> Wanted:
    """Which columns to run. Raises UsageError where options contradict each other."""
    from fastlora_verify.harness.trees.columns import Wanted

    found = Wanted(tuple(columns or ()), against, tuple(merged_onto or ()), rebased_onto, upstream)
    found.check()
    return found


def shard(text: str | None) -> tuple[int, int] | None:
    """`2/3` as (2, 3). Raises UsageError."""
    if text is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,5})/([1-9][0-9]{0,5})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise UsageError(f"--shard {text}: not a shard; give K/N, where K is from 1 to N, as in --shard 2/3")
    return int(found[1]), int(found[2])


def check_executor(executor: str, address: str | None) -> None:
    """Raises UsageError where Ray is asked for and not installed, or an address has no use."""
    from fastlora_verify.harness.runner.ray_cluster import check_installed

    if executor == "ray":
        check_installed()
    elif address is not None:
        raise UsageError(f"--address {address} is that of a Ray cluster; give --executor ray as well")


def seeds(text: str | None) -> tuple[int, ...]:
    """`20` is 20 seeds from 0; `5,13` and `3-11` are those. Raises UsageError."""
    if text is None:
        return ()
    wrong = UsageError(f"--seeds {text}: not a number of seeds (20), a list (5,13) or a range (3-11)")
    if text.isdecimal():
        if not int(text):
            raise wrong
        return tuple(range(int(text)))
    found: list[int] = []
    for part in text.strip(",").split(","):
        first, _, last = part.partition("-")
        if not first.strip().isdecimal() or (last and not last.strip().isdecimal()):
            raise wrong
        if int(last or first) < int(first):
            raise wrong
        found += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(found))


def fixture(pairs: Sequence[str]) -> dict[str, Any]:
    """`FIELD=VALUE` words as fields of the oracles' fixture. Raises UsageError."""
    from fastlora_verify.oracles.base import Fixture

    known = {field.name: getattr(Fixture(), field.name) for field in fields(Fixture)}
    values: dict[str, Any] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if name not in known:
            raise UsageError(f"--fixture {pair}: no field {name!r}; fields: {', '.join(known)}")
        kind = type(known[name])
        try:
            values[name] = [int(part) for part in text.split(",")] if kind is tuple else kind(text)
        except ValueError:
            example = ",".join(map(str, known[name])) if kind is tuple else known[name]
            raise UsageError(f"--fixture {pair}: not a value like {name}={example}") from None
    return values


def read_record(path: Path) -> RunRecord:
    """The run record in a file. Raises FileError."""
    from fastlora_verify.reports.record import RecordError, loads

    try:
        return loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(path, f"cannot be read: {error.strerror}") from error
    except (RecordError, UnicodeDecodeError) as error:
        raise FileError(path, f"cannot be read as a run record: {error}") from error


def check_writable(*paths: Path | None) -> None:
    """Raises FileError now rather than after an hour, where a file of the command line can't be written."""
    for path in paths:
        if path is None:
            continue
        folder = path.parent
        if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
            problem = "is a folder" if os.path.isdir(path) else f"cannot be written: no writable folder {folder}"
            raise FileError(path, problem)


def close_stdout() -> None:
    """Keeps the interpreter from complaining at its end about a reader that went away."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_usage_error(error: Exception) -> bool:
    """True for the exceptions of click, which typer brings in its own copy or as the package."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def usage_text(error: Any) -> str:
    """What click says, and where help is."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "fastlora-verify"
    return f"{error.format_message().rstrip('.')}; see `{path} --help`"


def save_traceback(error: BaseException) -> Path | None:
    """Writes the traceback beside the runs, or where temporary files go; None if neither takes it."""
    text = "".join(traceback.format_exception(error))
    for folder in (Path.cwd() / ".fastlora-verify", Path(tempfile.gettempdir())):
        try:
            if folder.is_dir():
                handle, name = tempfile.mkstemp(prefix="fault-", suffix=".txt", dir=folder)
                with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(text)
                return Path(name)
        except OSError:
            continue
    return None


def one_line(error: BaseException) -> str:
    """A message without line ends or control signs."""
    from fastlora_verify.reports.escape import one_line as flat

    return flat(str(error), 2000)


def existing_folder(path: Path) -> Path:
    """A folder of the command line. Raises FileError where there is none."""
    if not os.path.isdir(path):  # unlike Path.is_dir, also where the name is too long
        raise FileError(path, "is not a folder")
    return path.resolve()


def write_new(path: Path, text: str) -> None:
    """Writes a file that must not be there yet: nothing of the user's is overwritten. Raises FileError."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise FileError(path, "is there already and is kept; give another --output") from error
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror or error}") from error


def relative(folder: Path, base: Path) -> str:
    """A folder as a target file in `base` names it."""
    return Path(os.path.relpath(folder, base)).as_posix()
