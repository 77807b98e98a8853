"""Every failure that a user sees, in one line: what happened, where, what follows, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from fastlora_verify.harness.exit_code import ExitCode
from fastlora_verify.reports.names import counted


class Failure(Exception):  # noqa: N818 - its subclasses name what failed
    """A failure with a message for the user; `exit_code` is the command's status."""

    exit_code = ExitCode.USAGE


class TargetError(Failure):
    """A target can't be read or asks for what isn't there."""

    def __init__(self, file: Path | str, problem: str, *, key: str | None = None, allowed: str | None = None) -> None:
        self.problem = problem
        where = f"target {file}" + (f", key {key}" if key else "")
        super().__init__(f"{where}: {problem}" + (f"; allowed: {allowed}" if allowed else ""))


class UnknownName(Failure):
    """A mutation, kernel, family, oracle or format that doesn't exist; names the nearest that do."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, see: str = "") -> None:
        names = list(dict.fromkeys(known))
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        if not near:
            near = [other for other in names if name and name.lower() in other.lower()][:3]
        if near:
            hint = f"nearest: {', '.join(near)}"
        elif len(names) <= 12:
            hint = f"known: {', '.join(names) or 'none'}"
        else:
            hint = see or f"{len(names)} are known"
        super().__init__(f"unknown {kind} {name!r}; {hint}")


def check_names(kind: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Raises UnknownName for the first name that isn't known."""
    for name in names:
        if name not in known:
            raise UnknownName(kind, name, known)


class UnknownDevice(Failure):
    """A device that no suite can be run on."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown device {name!r}; allowed: cpu, cuda")


class NoDevice(Failure):
    """The only column asked for needs a device that the target's interpreter doesn't see."""

    def __init__(self, device: str, reason: str) -> None:
        super().__init__(
            f"--device {device}: {reason}, so nothing can run; "
            f"add --device cpu, or use a machine and a torch build with {device.upper()}"
        )


class PythonError(Failure):
    """The interpreter that is to run the target doesn't start or lacks what the run needs."""

    def __init__(self, python: str, problem: str) -> None:
        super().__init__(
            f"--python {python}: {problem}; give an interpreter that has pytest and the target's libraries"
        )


class NodeError(Failure):
    """Machines of a cluster that can't be used together, or are gone."""


class FileError(Failure):
    """A file of the command line can't be read or written."""

    def __init__(self, path: Path | str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


class UsageError(Failure):
    """Options that don't fit together."""


class GitError(Failure):
    """A revision that isn't there, a folder in no repository, or what git refuses."""


class EditError(Failure):
    """An edit of the command line that makes no mutant; `option` is how it was given."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"{option}: {problem}; nothing was run")


class RedControl(Failure):
    """A control is red, so that no mutant's outcome would mean anything."""

    exit_code = ExitCode.RED_CONTROL

    def __init__(self, column: str, control: str, problem: str, hint: str = "") -> None:
        self.control, self.problem = control, problem
        text = f"control {control!r} is red in column {column}: {problem}; no mutant was judged"
        super().__init__(text + (f"; {hint}" if hint else ""))


class NoTree(Failure):
    """A merge or a rebase conflicts, so that there is nothing that a test could be run on."""

    exit_code = ExitCode.RED_CONTROL

    def __init__(self, step: str, conflicts: Sequence[tuple[str, str]]) -> None:
        told = ", ".join(f"{path} ({kind})" for path, kind in conflicts[:5])
        more = f" and {len(conflicts) - 5} more" if len(conflicts) > 5 else ""
        super().__init__(f"{step} conflicts in {told}{more}; nothing was run")


class NothingToRun(Failure):
    """The selection is empty."""

    exit_code = ExitCode.NOTHING_TO_RUN


class NoKernel(Failure):
    """A repository in which `init` found nothing to describe."""

    exit_code = ExitCode.NOTHING_TO_RUN

    def __init__(self, root: Path, files: int, unread: Sequence[str] = ()) -> None:
        but = f" ({'; '.join(unread[:3])})" if unread else ""
        super().__init__(
            f"{root}: no autograd Function that takes LoRA adapters is applied in its {counted(files, 'module')}{but}; "
            "describe the target by hand, or give the folder that holds the sources"
        )


class FaultOfOurs(Failure):
    """An unexpected exception of this tool; `saved` is where its traceback lies."""

    exit_code = ExitCode.FAULT

    def __init__(self, error: BaseException, saved: Path | None) -> None:
        where = f"the traceback is in {saved}" if saved else "its traceback could not be saved"
        super().__init__(f"a fault of ours, not of your target: {type(error).__name__}; {where}")
