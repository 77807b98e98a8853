"""A whole run on two machines, threads here: the record of a run on one, and no mutant judged where they differ."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from runner_trees import CPU, Recorder, copy_of, mutant_of, options_for, target_of
from threads_wire import Threads

from fastlora_verify.harness.errors import RedControl
from fastlora_verify.harness.plan import ColumnOutcome, Events, RunOptions
from fastlora_verify.harness.runner import run as runner
from fastlora_verify.harness.runner.device import Device, device_of
from fastlora_verify.harness.runner.jobs import Setting
from fastlora_verify.harness.runner.node import Answer, Node, packed
from fastlora_verify.harness.runner.nodes import Lost, Nodes, Remote
from fastlora_verify.harness.trees.tree import Master, make_master
from fastlora_verify.mutations.base import Mutant

KERNEL = "src/tiny/kernel.py"


class Mortal:
    """A node that is lost while it runs mutants, with all that it has."""

    def __init__(self, node: Node, exchanges: int) -> None:
        self._node, self._left = node, exchanges

    def ask(self, method: str, *arguments: Any) -> Answer:
        self._left -= method == "exchange"
        if self._left < 0 and method != "close":
            raise Lost
        return self._node.ask(method, *arguments)


class Two:
    """Two machines; the second has the tree of `other`, if it is given, and is lost after so many exchanges."""

    def __init__(self, master: Master, scratch: Path, note: Any, other: Master | None, exchanges: int) -> None:
        self.own = [Node(packed(master)), Node(packed(other or master))]
        handles: list[Any] = [self.own[0], Mortal(self.own[1], exchanges)]
        self._scratch = scratch
        self._nodes = Nodes(Threads(), [Remote(f"n{i}", 1, one) for i, one in enumerate(handles)], scratch, note)

    def device(self, setting: Setting) -> Device:
        return device_of(setting, self._scratch)

    def executor(self, setting: Setting, *, fork: bool, most: int) -> Nodes:
        return self._nodes.open(setting, fork=fork, most=most)

    def close(self) -> None:
        for node in self.own:
            node.close()


def on_two(patch: pytest.MonkeyPatch, *, other: Master | None = None, exchanges: int = 10_000) -> None:
    """Runs are on two machines from now on."""

    def machines(options: RunOptions, master: Master, scratch: Path, events: Events) -> Two:
        return Two(master, scratch, events.note, other, exchanges)

    patch.setattr(runner, "_machines", machines)


def some(root: Path) -> list[Mutant]:
    """Mutants that are killed, and some that no test runs."""
    found = [mutant_of(root, KERNEL, "x + x", f"x + x + {number}") for number in range(1, 5)]
    return [*found, *(mutant_of(root, KERNEL, "dy + dy", f"dy + dy + {number}") for number in range(1, 5))]


def untimed(column: ColumnOutcome) -> Any:
    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without(item) for name, item in value.items() if "seconds" not in name}
        return [without(item) for item in value] if isinstance(value, (list, tuple)) else value

    return without(dataclasses.asdict(column))


@pytest.mark.slow  # runs of the tool
def test_the_record_is_that_of_one_machine_though_one_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copy_of("tiny", tmp_path)
    target, mutants = target_of(root, "tiny.kernel"), some(root)
    local = runner.run_columns(target, mutants, [CPU], options_for(tmp_path, audit=2), Recorder())[0]
    on_two(monkeypatch, exchanges=4)
    events = Recorder()
    options = options_for(tmp_path, run_dir=tmp_path / "two", audit=2)
    assert untimed(runner.run_columns(target, mutants, [CPU], options, events)[0]) == untimed(local)
    assert any("node n1 was lost" in note for note in events.notes)
    assert len(events.done) == len(mutants)


@pytest.mark.slow  # runs of the tool
def test_machines_that_fare_otherwise_unmutated_are_a_red_control(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_of("tiny", tmp_path)
    target, mutants = target_of(root, "tiny.kernel"), some(root)
    runner.run_columns(target, mutants[:1], [CPU], options_for(tmp_path), Recorder())  # its controls are kept
    changed = copy_of("tiny", tmp_path / "changed")
    text = (changed / KERNEL).read_text(encoding="utf-8")
    (changed / KERNEL).write_text(text.replace("x + x", "x + x + 1"), encoding="utf-8")
    on_two(monkeypatch, other=make_master(target_of(changed, "tiny.kernel"), tmp_path / "other"))
    events = Recorder()
    with pytest.raises(RedControl, match="not all machines give the same"):
        runner.run_columns(target, mutants, [CPU], options_for(tmp_path), events)
    assert not [name for name, _, _ in events.done]
