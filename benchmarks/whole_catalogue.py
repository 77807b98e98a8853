"""How long the whole catalogue takes, as a multiple of one plain pytest run of the same suite.

    python -P benchmarks/whole_catalogue.py [--target FILE] [--json FILE]

Both sides alternate within one run, since a shared machine's speed wanders: a plain pytest on an unmutated copy, the
mutants of one family, a plain pytest, the next family. A family's time is that of the command: planning, copies,
controls and oracles included, so the sum is a little more than one `mutate --all` would take.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

TOOL = Path(sys.executable).with_name("fastlora-verify")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=Path)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    where = ["--target", str(options.target)] if options.target else []
    with tempfile.TemporaryDirectory(prefix="fastlora-verify-benchmark-") as folder:
        figures = measured(Path(folder), where)
    for key, value in figures.items():
        print(f"{key}: {value}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


def measured(folder: Path, where: list[str]) -> dict[str, float]:
    """Seconds of both sides, and their ratio."""
    plain = unmutated(folder / "tree", where)
    by_hand = [seconds(*plain)]
    ours, mutants = 0.0, 0
    for family in families():
        record = folder / f"{family}.json"
        words = ["mutate", "--family", family, "--json", str(record), "--run-dir", str(folder / "run"), *where]
        ours += seconds([str(TOOL), *words], folder, may_fail=True)
        mutants += len(json.loads(record.read_text("utf-8"))["mutants"]) if record.exists() else 0
        by_hand.append(seconds(*plain))
    one = statistics.median(by_hand)
    return {
        "mutants": mutants,
        "plain pytest, s, median": round(one, 1),
        "whole catalogue, s": round(ours, 1),
        "whole catalogue / plain pytest": round(ours / one, 1),
        "one mutant / plain pytest": round(ours / one / max(mutants, 1), 3),
        "processors": len(os.sched_getaffinity(0)),
    }


def unmutated(tree: Path, where: list[str]) -> tuple[list[str], Path]:
    """A plain pytest's command and folder, on a copy from which the mutant is taken out again."""
    listed = subprocess.run([TOOL, "diff", "*", *where], check=True, capture_output=True, text=True).stdout
    name = listed.partition("# ")[2].partition(": ")[0]
    done = subprocess.run(
        [TOOL, "apply", name, "--to", tree, *where], check=True, capture_output=True, text=True
    ).stdout
    diff = subprocess.run([TOOL, "diff", name, *where], check=True, capture_output=True, text=True).stdout
    subprocess.run(["patch", "-s", "-R", "-p1"], input=diff, cwd=tree, check=True, text=True)
    command = next(line for line in done.splitlines() if "pytest" in line).strip()
    return ["sh", "-c", command], tree


def families() -> list[str]:
    """The catalogue's families, in its order."""
    text = subprocess.run([TOOL, "list", "--format", "json"], check=True, capture_output=True, text=True).stdout
    return list(dict.fromkeys(entry["family"] for entry in json.loads(text)))


def seconds(command: list[str], folder: Path, *, may_fail: bool = False) -> float:
    """Wall time of a command; exits with its output where it fails."""
    start = monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if (done.returncode and not may_fail) or done.returncode > 5:
        sys.exit(f"{command} exits with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return monotonic() - start


if __name__ == "__main__":
    sys.exit(main())
