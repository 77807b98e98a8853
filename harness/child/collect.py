"""Collects the target's tests and runs none: `python -m … JOB.json`, facts as JSON lines.

| event | fields |
| --- | --- |
| item | test, function (its id without the parameters), file (in the copy), defined, param, values, marks, selected |
| collect | test (a collector's id), file, category ("error" or "skipped"), exception or reason |
| internal-error | exception |
| end | status, foreign |

`defined` is [file, scope] of the function, where it is one of the copy's. `values` are the parameters' values by name,
as text, `marks` [name, text] with those of class and module, and unittest's own skips under pytest's names.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Generator
from typing import Any

import pytest

from fastlora_verify.harness.child.channel import Channel, hard_exit
from fastlora_verify.harness.child.exception import exception_fact, relative
from fastlora_verify.harness.child.place import Job, enter, foreign_modules
from fastlora_verify.harness.child.reported import failed_collection

_TEXT = 300  # characters of a value or a mark
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class Collected:
    """The plugin that tells every item, also those that are deselected."""

    def __init__(self, channel: Channel, root: str) -> None:
        self._channel = channel
        self._root = root

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> None:
        """Keeps the collection in this process."""
        if hasattr(config.option, "numprocesses"):
            config.option.numprocesses, config.option.dist, config.option.tx = 0, "no", []

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self, collector: Any) -> Generator[None, Any, None]:
        """Collection errors and modules that skip themselves."""
        outcome = yield
        fact = failed_collection(outcome.get_result(), self._root)
        if fact is not None:
            self._channel.send({**fact, "file": relative(str(collector.path), self._root)})

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Tests that the target's own arguments leave out."""
        for item in items:
            self._channel.send(_fact(item, self._root, selected=False))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The tests that would run."""
        for item in session.items:
            self._channel.send(_fact(item, self._root, selected=True))

    def pytest_internalerror(self, excinfo: Any) -> None:
        """pytest, or a plugin, broke."""
        self._channel.send({"event": "internal-error", "exception": exception_fact(excinfo.value, self._root)})


def _fact(item: pytest.Item, root: str, *, selected: bool) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    param = callspec.id if callspec is not None else None
    function = item.nodeid.removesuffix(f"[{param}]") if param is not None else item.nodeid
    return {
        "event": "item",
        "test": item.nodeid,
        "function": function,
        "file": relative(str(item.path), root),
        "defined": _defined(item, root),
        "param": param,
        "values": {name: _text(value) for name, value in getattr(callspec, "params", {}).items()},
        "marks": _marks(item),
        "selected": selected,
    }


def _defined(item: pytest.Item, root: str) -> list[str] | None:
    try:
        function = inspect.unwrap(getattr(item, "obj", None))  # type: ignore[arg-type]
        code = getattr(function, "__func__", function).__code__
        file = relative(code.co_filename, root)
        return [file, function.__qualname__.replace("<locals>.", "")] if file is not None else None
    except (AttributeError, TypeError, ValueError):
        return None


def _marks(item: pytest.Item) -> list[list[str]]:
    found = []
    for mark in item.iter_markers():
        if mark.name != "parametrize":
            words = [_text(value) for value in mark.args]
            words += [f"{name}={_text(value)}" for name, value in mark.kwargs.items()]
            found.append([mark.name, ", ".join(words)])
    for owner in (getattr(item, "obj", None), getattr(item, "cls", None)):
        if getattr(owner, "__unittest_skip__", False) is True:
            found.append(["skip", _text(getattr(owner, "__unittest_skip_why__", ""))])
            break
    if getattr(getattr(item, "obj", None), "__unittest_expecting_failure__", False) is True:
        found.append(["xfail", "unittest.expectedFailure"])
    return found


def _text(value: Any) -> str:
    try:
        return _ADDRESS.sub("", " ".join(repr(value).split()))[:_TEXT]
    except Exception as broken:
        return f"<{type(value).__name__}: its text raises {type(broken).__name__}>"


def run(job: Job) -> None:
    """Never returns."""
    channel = Channel.to_file(job["facts"])
    enter(job)
    arguments = [*job["args"], "--collect-only", "-q"]
    sys.argv = ["pytest", *arguments]
    try:
        status = int(pytest.main(arguments, plugins=[Collected(channel, job["copy"])]))
    except BaseException as error:
        channel.send({"event": "internal-error", "exception": exception_fact(error, job["copy"])})
        hard_exit(1)
    channel.send({"event": "end", "status": status, "foreign": foreign_modules(job)})
    sys.stdout.flush()
    sys.stderr.flush()
    hard_exit(0)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        run(json.load(file))
