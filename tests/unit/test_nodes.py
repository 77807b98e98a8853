"""Several machines as one executor, machines being threads here: tasks, losses, differences. No Ray."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runner_trees import copy_of, options_for, target_of
from threads_wire import Threads

from fastlora_verify.harness import errors
from fastlora_verify.harness.arguments import check_executor
from fastlora_verify.harness.cli import run
from fastlora_verify.harness.runner import jobs, ray_cluster
from fastlora_verify.harness.runner.device import Device
from fastlora_verify.harness.runner.evidence import suite_facts
from fastlora_verify.harness.runner.jobs import Setting
from fastlora_verify.harness.runner.judge import End
from fastlora_verify.harness.runner.node import Answer, Ended, Node, packed
from fastlora_verify.harness.runner.nodes import Lost, Nodes, Remote
from fastlora_verify.harness.runner.pool import Stage, StageResult, Task
from fastlora_verify.harness.runner.store import runner_digest
from fastlora_verify.harness.runner.warm import Limits
from fastlora_verify.harness.trees.tree import Master, make_master, snapshot

LIMITS = Limits(60.0, 60.0, 1 << 33)
NAMES = [f"mutant {number}" for number in range(12)]


class Machine:
    """One that ends each task as soon as it is told so, and may be lost after some."""

    def __init__(self, lost_after: int = 1000, **answers: Any) -> None:
        self.given: list[list[str]] = []
        self.asked: list[str] = []
        self.ended = 0
        self._lost_after = lost_after
        self._tasks: list[Task] = []
        self._answers = {"same": ("code", "tree"), "open": (True, ""), "host": "", "unhost": None} | answers

    def ask(self, method: str, *arguments: Any) -> Answer:
        self.asked.append(method)
        if method != "exchange":
            return Answer(self._answers.get(method))
        (tasks,) = arguments
        self.given.append([task.name for task in tasks])
        self._tasks += tasks
        if self.ended >= self._lost_after:
            raise Lost
        task = self._tasks.pop(0)
        self.ended += 1
        end = StageResult(jobs.SUITE, End("exit", 0, None, 0.0, 0.0, "", ""), [], "", Path("copy"), Path("scratch"))
        return Answer([Ended(task.name, [end], b"<junit/>" if task.name == "audit" else None)])


def nodes_of(folder: Path, *machines: Any, size: int = 1) -> tuple[Nodes, Threads, list[str]]:
    wire, notes = Threads(), []  # type: tuple[Threads, list[str]]
    remotes = [Remote(f"n{number}", size, machine) for number, machine in enumerate(machines)]
    return Nodes(wire, remotes, folder, notes.append), wire, notes


def tasks(names: Sequence[str] = NAMES) -> Iterator[Task]:
    return (Task(name, (Stage(jobs.SUITE, LIMITS),)) for name in names)


def ran(nodes: Nodes, names: Sequence[str] = NAMES) -> list[str]:
    found: list[str] = []
    nodes.run(tasks(names), lambda task, _: found.append(task.name))
    return found


def test_every_task_ends_once_and_all_machines_have_some(tmp_path: Path) -> None:
    machines = [Machine(), Machine(), Machine()]
    nodes, _, notes = nodes_of(tmp_path, *machines)
    assert sorted(ran(nodes)) == sorted(NAMES)
    assert all(machine.ended for machine in machines)
    assert not notes
    assert ran(nodes, ["once more"]) == ["once more"]


def test_as_many_tasks_as_run_at_once_are_one_for_each_place(tmp_path: Path) -> None:
    machines = [Machine(), Machine()]
    nodes, _, _ = nodes_of(tmp_path, *machines, size=2)
    ran(nodes, NAMES[: nodes.size])
    assert [machine.given[0] for machine in machines] == [NAMES[:2], NAMES[2:4]]


def test_a_lost_machines_tasks_are_run_on_the_others(tmp_path: Path) -> None:
    machines = [Machine(lost_after=2), Machine()]
    nodes, wire, notes = nodes_of(tmp_path, *machines)
    assert sorted(ran(nodes)) == sorted(NAMES)
    assert machines[0].ended == 2
    assert wire.ended == ["n0"]
    assert len(notes) == 1 and "node n0 was lost" in notes[0]
    assert nodes.size == 1


def test_a_machine_that_is_lost_last_is_taken_over_by_one_that_had_nothing_left(tmp_path: Path) -> None:
    nodes, _, _ = nodes_of(tmp_path, Machine(lost_after=0), Machine())
    assert sorted(ran(nodes, NAMES[:2])) == NAMES[:2]


def test_all_machines_lost_is_told_in_one_line(tmp_path: Path) -> None:
    nodes, _, _ = nodes_of(tmp_path, Machine(lost_after=1), Machine(lost_after=1))
    found: list[str] = []
    with pytest.raises(errors.NodeError, match="no other is left; the same command goes on from here"):
        nodes.run(tasks(), lambda task, _: found.append(task.name))
    assert len(found) == 2


def test_machines_that_differ_are_refused(tmp_path: Path) -> None:
    setting = Setting(target_of(tmp_path, "m"), options_for(tmp_path), "cpu", tmp_path, ())
    one = Device("", "", {"torch": "2.13.0", "pytest": "9"})
    for other, told in (
        (
            Machine(device=replace(one, versions={"torch": "2.12.0", "pytest": "9"})),
            "differ in torch: 2.13.0 and 2.12.0",
        ),
        (Machine(device=replace(one, device_name="A Card")), "differ in the device: cpu and A Card"),
        (Machine(same=("other", "tree"), device=one), "node n1 has another fastlora-verify than this machine"),
        (Machine(same=("code", "other"), device=one), "node n1 has another tree than this machine"),
    ):
        nodes, _, _ = nodes_of(tmp_path, Machine(device=one), other)
        with pytest.raises(errors.NodeError, match=told):
            nodes.device(setting, ("code", "tree"))
    nodes, _, _ = nodes_of(tmp_path, Machine(device=one), Machine(device=one))
    assert nodes.device(setting, ("code", "tree")) == one


def test_children_are_forked_everywhere_or_nowhere(tmp_path: Path) -> None:
    setting = Setting(target_of(tmp_path, "m"), options_for(tmp_path), "cpu", tmp_path, ())
    forking, other = Machine(), Machine(open=(False, "a thread"))
    nodes, _, _ = nodes_of(tmp_path, forking, other, size=4)
    opened = nodes.open(setting, fork=True, most=3)
    assert (opened.forks, opened.why_new, opened.size, opened.elsewhere) == (False, "a thread", 6, True)
    assert forking.asked == ["open", "use_new_interpreters"]
    assert nodes_of(tmp_path, Machine(), Machine())[0].open(setting, fork=True, most=9).forks
    hosts, _, _ = nodes_of(tmp_path, Machine(), Machine(host="no time"))
    assert hosts.host(()) == "no time"


def test_what_an_audit_wrote_lies_here(tmp_path: Path) -> None:
    nodes, _, _ = nodes_of(tmp_path, Machine())
    found: dict[str, bool] = {}

    def done(task: Task, results: list[StageResult]) -> None:
        found[task.name] = (results[0].scratch / "junit.xml").exists()

    nodes.run(tasks(["audit", "none"]), done)
    assert found == {"audit": True, "none": False}


def test_a_tree_is_the_same_after_its_journey(tmp_path: Path) -> None:
    root = copy_of("tiny", tmp_path)
    (root / "run.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("run.sh")
    (root / "empty").mkdir()
    master = make_master(target_of(root, "tiny.kernel"), tmp_path / "master")
    node = Node(packed(master))
    try:
        assert node.same() == (runner_digest(), master.digest)
        assert snapshot(master.path)["run.sh"].mode == 0o755
    finally:
        node.close()


def test_tasks_run_on_real_nodes(tmp_path: Path) -> None:
    root = copy_of("tiny", tmp_path)
    target = target_of(root, "tiny.kernel")
    setting = Setting(target, options_for(tmp_path), "cpu", tmp_path / "nowhere", ())
    master = make_master(target, tmp_path / "master")
    own = [Node(packed(master)), Node(packed(master))]
    nodes, _, _ = nodes_of(tmp_path, *own)
    try:
        assert nodes.device(setting, (runner_digest(), master.digest)).versions["pytest"]
        assert (own[0]._own(setting).bridge / "fastlora_verify/harness").is_dir()
        opened = nodes.open(setting, fork=True, most=9)
        before, broken = _facts(opened, master, {}), _facts(opened, master, {"src/tiny/kernel.py": b"1 / 0\n"})
        assert before.counts.passed and not before.counts.failed
        assert broken.counts.passed < before.counts.passed
        assert _facts(opened, master, {}).counts == before.counts
        reason = _failure(own[0].ask("device", replace(setting, target=replace(target, python="/no/python"))))
        assert "/no/python" in reason
    finally:
        for node in own:
            node.close()
    assert not any(node._scratch.exists() for node in own)


def _facts(nodes: Nodes, master: Master, edits: dict[str, bytes]) -> Any:
    found: list[StageResult] = []
    task = Task("one", (Stage(jobs.SUITE, LIMITS),), edits)
    nodes.run([task], lambda _, results: found.extend(results))
    return suite_facts(found[0].lines, str(found[0].copy))


def _failure(answer: Answer) -> str:
    assert answer.value is None and not answer.fault
    return answer.failure


def test_without_ray_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_cluster.importlib.util, "find_spec", lambda name: None)
    assert run(["mutate", "--all", "--executor", "ray"]) == 2
    err = capsys.readouterr().err
    assert "pip install 'fastlora-verify[ray]'" in err
    assert err.count("\n") == 1
    assert run(["mutate", "--all", "--address", "here:1"]) == 2
    assert "give --executor ray as well" in capsys.readouterr().err
    check_executor("local", None)
