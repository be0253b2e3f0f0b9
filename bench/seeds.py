"""Five seeds of PPO on gymnax CartPole: as one program, and as five runs one after the other.

    python bench/seeds.py [steps] [rounds]        default: 200,000 and 3

Whole commands, from the start of Python to the last evaluation, with programs compiled before; and, of the same runs,
the seconds of training alone (`time/elapsed_s`). Both evaluate within 5 % of their time.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import in_turn, report

STEPS = int(float(sys.argv[1])) if len(sys.argv) > 1 else 200_000  # it is solved by then
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
SEEDS = 5
COMMAND = ["train", "ppo", "gymnax:CartPole-v1", "--steps", str(STEPS)]


def run(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "headrace", *COMMAND, "--quiet", *words], check=True, capture_output=True)


def elapsed(path: Path) -> float:
    return json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])["time/elapsed_s"]


def main() -> None:
    training: dict[str, list[float]] = {"together": [], "in turn": []}
    with tempfile.TemporaryDirectory() as scratch:

        def new() -> Path:
            return Path(tempfile.mkdtemp(dir=scratch))

        def together() -> None:
            out = new() / "run"
            run("--seeds", str(SEEDS), "--out", str(out))
            training["together"].append(max(elapsed(out / f"seed-{n}") for n in range(SEEDS)))

        def one_by_one() -> None:
            out = new()
            for n in range(SEEDS):
                run("--seed", str(n), "--out", str(out / str(n)))
            training["in turn"].append(sum(elapsed(out / str(n)) for n in range(SEEDS)))

        taken = in_turn({"together": together, "in turn": one_by_one}, ROUNDS)
    whole = {name: statistics.median(times) for name, times in taken.items()}
    alone = {name: statistics.median(times[1:]) for name, times in training.items()}
    report(
        "seeds",
        {
            "command": f"headrace {' '.join(COMMAND)} --seeds {SEEDS}",
            "one program, seconds": whole["together"],
            "one run after the other, seconds": whole["in turn"],
            "ratio (at most 0.6)": whole["together"] / whole["in turn"],
            "one program, seconds of training": alone["together"],
            "one run after the other, seconds of training": alone["in turn"],
            "ratio of training alone": alone["together"] / alone["in turn"],
        },
    )


if __name__ == "__main__":
    main()
