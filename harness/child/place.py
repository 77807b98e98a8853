"""Puts a child into its scratch copy: folder, import path, environment, threads."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any

from fastlora_verify.harness.child.probe import Probe

Job = Mapping[str, Any]
"""What the parent asks for, as JSON. Paths are absolute and real.

kind        "suite" | "oracle"
copy        the scratch copy, the child's working folder
roots       the copy's source roots, first on the path
bridge      the folder that makes this package importable, right after them
facts       file that the facts go to
args        pytest's arguments
env         environment variables to set
threads     of torch, where it is loaded
files       [{"path", "reached", "triggered"}]: the mutated files, relative to the copy
mapped      {path: lines}: functions whose running is told test by test
only        {"tests", "collected", "backwards", "as_listed"} or null: the tests to run, the digest of all that they
            were chosen from, whether the last is run first, whether they are run in the order of "tests"
until       {"passed", "files", "names", "more"} or null: when the run may end early, see `stopping.Until`
printed     whether what tests print is told
sweep       null, or what `sweep.py` needs to run one test under one seed
stir        whether every test begins with random states of its own
harm        whether it is told what the run leaves behind
libraries   whether it is told what the tests use: modules from elsewhere than the copy, files of the copy as text
preload     for a host: modules to import before anything is collected
cache       pytest's cache folder
watch       files, relative to the copy, whose failing import is reported
modules     dotted names that must come from the copy
gpu_marker  the marker of tests that need a card
kernels     for oracles: names, none for all
described   for oracles: [{"name", "kind", "node", "patcher", "unpatcher", "patch_call"}], or null: the copy's database
quick       for oracles: the smallest run that is a verdict
"""


# How a test is run alone: its arms are only listed; it is run as written; so, the seeds noted that it sets; with a
# seed that it is given.
LIST, AS_WRITTEN, NOTED, SEEDED = "list", "as written", "noted", "seeded"

COLD_JOB = "FASTLORA_VERIFY_COLD_JOB"
"""The variable that names the job's file to the plugin of a plain pytest."""


def enter(job: Job) -> None:
    """Makes this process one that was started in the copy with its roots on PYTHONPATH."""
    os.chdir(job["copy"])
    os.environ.update(job["env"])
    first = [*job["roots"], job["bridge"]]
    os.environ["PYTHONPATH"] = os.pathsep.join(first)
    sys.path[:] = [*first, *(entry for entry in sys.path if entry not in first)]
    importlib.invalidate_caches()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(job["threads"])


def probe_of(job: Job) -> Probe:
    """The installed probe for the job's files."""
    files = {_real(job, file["path"]): (file["reached"], file["triggered"]) for file in job["files"]}
    mapped = {_real(job, path): lines for path, lines in job["mapped"].items()}
    probe = Probe(files, [_real(job, path) for path in job["watch"]], mapped)
    probe.install()
    return probe


def _real(job: Job, path: str) -> str:
    return os.path.realpath(os.path.join(job["copy"], *path.split("/")))


def foreign_modules(job: Job) -> dict[str, str]:
    """Modules of the target that were imported from elsewhere than the copy: name to file."""
    found = {}
    for name in job["modules"]:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and not os.path.realpath(file).startswith(job["copy"] + os.sep):
            found[name] = file
    return found


def files_in_memory(copy: str) -> list[str]:
    """The copy's files that modules were made of, relative to it."""
    found = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not real_folder(os.path.dirname(file)).startswith(copy + os.sep):
            continue
        if (real := os.path.realpath(file)).startswith(copy + os.sep):
            found.add(os.path.relpath(real, copy).replace(os.sep, "/"))
    return sorted(found)


@cache
def real_folder(folder: str) -> str:
    """The real path of a folder, with a separator at its end. Thousands of modules lie in some hundred folders."""
    return os.path.realpath(folder) + os.sep


def libraries_since(before: frozenset[str], copy: str) -> list[str]:
    """Modules that were imported since, from files that are not the copy's, in their order."""
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        known = name in before or name.partition(".")[0] in ("__main__", "__mp_main__", "fastlora_verify")
        if not known and isinstance(file, str) and not os.path.realpath(file).startswith(copy + os.sep):
            found.append(name)
    return found
