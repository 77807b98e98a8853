"""Every way to seed torch, NumPy and Python is shifted once, by the offset, and only while it is meant to be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Drawn in an interpreter of its own, since what seeds a stream is replaced for good.
DRAWING = """\
import random
import sys
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, {folder!r})
import helper
from fastlora_verify.harness.child.shift import Shift


def drawn(offset):
    seen = {{}}
    torch.manual_seed(5 + offset); seen["torch.manual_seed(5)"] = torch.rand(1).item()
    torch.random.manual_seed(5 + offset); seen["torch.random"] = torch.rand(1).item()
    g = torch.Generator(device="cpu").manual_seed(6 + offset)
    assert isinstance(g, torch.Generator) and isinstance(torch.default_generator, torch.Generator)
    seen["torch.Generator.manual_seed(6)"] = torch.rand(1, generator=g).item()
    np.random.seed(7 + offset); seen["numpy.random.seed(7)"] = np.random.rand()
    seen["numpy.random.default_rng(8)"] = np.random.default_rng(8 + offset).random()
    state = np.random.RandomState(seed=9 + offset); seen["numpy.random.RandomState(9)"] = state.rand()
    assert isinstance(np.random.mtrand._rand, np.random.RandomState)
    random.seed(10 + offset); seen["random.seed(10)"] = random.random()
    seen["random.Random(11)"] = random.Random(11 + offset).random()
    seen["taken by name"] = helper.draw(12 + offset)
    return seen


plain, truth = drawn(0), drawn(3)
shift = Shift(3)
shift.install(str(Path({folder!r}).resolve()))
assert drawn(0) == plain, "shifted though it is not active"
shift.active = True
assert drawn(0) == truth
for label in plain:
    if "(" in label:
        assert shift.given[label] == 1 + (label == "torch.manual_seed(5)"), (label, shift.given)
assert shift.given["random.seed(12)"] == 1
assert not any("cuda" in label for label in shift.given), "what seeding calls is shifted again"
random.seed(); np.random.default_rng(); random.Random("text"), np.random.RandomState()
shift.active = False
shift.seed_streams()
streams = torch.rand(1).item(), np.random.rand(), random.random()
torch.manual_seed(3); np.random.seed(3); random.seed(3)
assert streams == (torch.rand(1).item(), np.random.rand(), random.random())
print("as it should be")
"""


@pytest.mark.slow
def test_every_way_to_seed_is_shifted_once(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(
        "import random\nfrom random import seed as sow\n\n\ndef draw(n):\n    sow(n)\n    return random.random()\n"
    )
    code = DRAWING.format(folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "as it should be\n", done.stderr
