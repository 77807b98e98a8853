"""A run on a local Ray cluster of two nodes, one of them killed in the middle: its record is a local run's."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runner_trees import CPU, Recorder, copy_of, mutant_of, options_for, target_of

from fastlora_verify.harness.errors import NodeError, NoDevice
from fastlora_verify.harness.plan import RAY, Column, ColumnOutcome
from fastlora_verify.harness.runner.run import run_columns
from fastlora_verify.mutations.base import Mutant

pytestmark = [
    pytest.mark.slow,  # a cluster is started
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra [ray]"),
]


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        yield found
    finally:
        found.shutdown()


def untimed(column: ColumnOutcome) -> dict[str, Any]:
    """A column's outcome as data, without its times."""
    return _without_times(dataclasses.asdict(column))  # type: ignore[no-any-return]


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(item) for name, item in value.items() if "seconds" not in name}
    return [_without_times(item) for item in value] if isinstance(value, (list, tuple)) else value


class Killing(Recorder):
    """Events; one node goes after the first mutants."""

    def __init__(self, cluster: Any, node: Any, after: int) -> None:
        super().__init__()
        self._cluster, self._node, self._after = cluster, node, after

    def mutant_done(self, name: str, column: str, status: str) -> None:
        super().mutant_done(name, column, status)
        if len(self.done) == self._after:
            self._cluster.remove_node(self._node, allow_graceful=False)


def _mutants(root: Path) -> list[Mutant]:
    """Some that are killed, some that no test runs."""
    path, found = "src/tiny/kernel.py", []
    for number in range(1, 7):
        found.append(mutant_of(root, path, "x + x", f"x + x + {number}"))
        found.append(mutant_of(root, path, "dy + dy", f"dy + dy + {number}"))
    return found


def test_a_node_killed_in_the_middle_changes_nothing(tmp_path: Path, cluster: Any) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    root = copy_of("tiny", tmp_path)
    mutants = _mutants(root)
    target = target_of(root, "tiny.kernel")
    here = options_for(tmp_path, run_dir=tmp_path / "here", audit=2)
    local = run_columns(target, mutants, [CPU], here, Recorder())[0]
    events = Killing(cluster, node, 4)
    there = options_for(tmp_path, run_dir=tmp_path / "there", audit=2, executor=RAY, address=cluster.address)
    far = run_columns(target, mutants, [CPU], there, events)[0]
    assert untimed(far) == untimed(local)
    assert len(events.done) == len(mutants)
    assert any("was lost" in note for note in events.notes)


def test_where_no_cluster_answers_one_line_says_so(tmp_path: Path) -> None:
    root = copy_of("tiny", tmp_path)
    options = options_for(tmp_path, executor=RAY, address="127.0.0.1:1")
    with pytest.raises(NodeError, match=r"--address 127\.0\.0\.1:1: no Ray cluster answers"):
        run_columns(target_of(root, "tiny.kernel"), _mutants(root), [CPU], options, Recorder())


def test_without_a_card_there_is_no_cuda_column(tmp_path: Path, cluster: Any) -> None:
    root = copy_of("tiny", tmp_path)
    options = options_for(tmp_path, executor=RAY, address=cluster.address)
    with pytest.raises(NoDevice, match="no node of the Ray cluster has a card"):
        run_columns(target_of(root, "tiny.kernel"), _mutants(root), [Column("head:cuda", "cuda")], options, Recorder())
