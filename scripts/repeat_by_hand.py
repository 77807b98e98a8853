"""Repeats mutants of a run by hand, and compares every count with the record's.

    python -P scripts/repeat_by_hand.py run.json --count 20 --seed 1 [--target FILE] [--python EXE]

Each mutant is written with `fastlora-verify apply` into a new copy of the target, and a plain `pytest` runs there in a
new process: nothing of the runner takes part. Exits 1 if any count or any killer differs.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

NUMBERS = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed")
LAST = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed)")
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--column", default="head:cpu")
    parser.add_argument("--target", type=Path)
    options = parser.parse_args()
    record = json.loads(options.record.read_text(encoding="utf-8"))
    judged = [m for m in record["mutants"] if m["results"][options.column]["status"] in {"killed", "survived"}]
    chosen = random.Random(options.seed).sample(judged, min(options.count, len(judged)))
    wrong = sum(not agrees(mutant, options.column, options.target) for mutant in chosen)
    print(f"{len(chosen) - wrong} of {len(chosen)} equal by hand")
    return 1 if wrong else 0


def agrees(mutant: dict, column: str, target: Path | None) -> bool:
    recorded = {name: mutant["results"][column][name] for name in NUMBERS}
    counted, killers = by_hand(mutant["name"], target)
    named = {_in_file(killer["test"]) for killer in mutant["results"][column]["killers"]}
    same = counted == recorded and (killers == named or not named)
    print(f"{'equal' if same else 'DIFFERS'}  {mutant['name']}  {_text(recorded)}", flush=True)
    if not same:
        print(f"  by hand: {_text(counted)}; killers that differ: {sorted(killers ^ named)[:5]}")
    return same


def by_hand(name: str, target: Path | None) -> tuple[dict[str, int], set[str]]:
    """Counts and failed tests of a plain pytest on a copy that has the mutant."""
    where = ["--target", str(target)] if target is not None else []
    with tempfile.TemporaryDirectory(prefix="by-hand-") as folder:
        tree = Path(folder) / "tree"
        tool = Path(sys.executable).with_name("fastlora-verify")
        done = subprocess.run([tool, "apply", name, "--to", tree, *where], check=True, capture_output=True, text=True)
        command = next(line for line in done.stdout.splitlines() if "pytest" in line).strip()
        run = subprocess.run(
            f"{command} -p no:cacheprovider -rfE", shell=True, cwd=folder, capture_output=True, text=True
        )
    lines = run.stdout.strip().splitlines()
    counts = dict.fromkeys(NUMBERS, 0)
    for number, word in LAST.findall(lines[-1]):
        counts["errors" if word.startswith("error") else word] = int(number)
    return counts, {_in_file(match.group(1)) for line in lines if (match := FAILED.match(line))}


def _in_file(test: str) -> str:
    """A test's id from its file's name on: pytest prints it from where it was started, not from its root."""
    path, colons, rest = test.partition("::")
    return path.rpartition("/")[2] + colons + rest


def _text(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)


if __name__ == "__main__":
    sys.exit(main())
