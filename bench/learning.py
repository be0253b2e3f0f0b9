"""Seconds to the goal with default settings, through the command a user types.

    python bench/learning.py [ALGO ...]

Each run is `headrace train ALGO ENV --until GOAL --seed S`, judged by the evaluator over 10 episodes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import report

GOALS = {
    "ppo": ("CartPole-v1", 475),
    "dqn": ("CartPole-v1", 400),
    "sac": ("Pendulum-v1", -200),
    "td3": ("Pendulum-v1", -200),
}
SEEDS = (1, 2, 3)
LIMIT = 180


def main() -> None:
    figures: dict[str, object] = {}
    for name in sys.argv[1:] or GOALS:
        env, goal = GOALS[name]
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                words = ["train", name, env, "--until", str(goal), "--seconds", str(LIMIT), "--seed", str(seed)]
                began = time.monotonic()
                subprocess.run(
                    [sys.executable, "-m", "headrace", *words, "--out", f"{folder}/run", "--quiet"],
                    check=True,
                    stdout=subprocess.DEVNULL,
                )
                whole = time.monotonic() - began
                last = json.loads((Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()[-1])
            score, steps = last["eval/mean_reward"], last["time/env_steps"]
            verdict = "reached" if score >= goal else "NOT reached"
            figures[f"{name} {env} seed {seed}"] = f"{verdict} {score:.0f} in {whole:.1f} s, {steps:,} steps"
            print(f"{name} {env} seed {seed}: {figures[f'{name} {env} seed {seed}']}", flush=True)
    report("learning", figures)


if __name__ == "__main__":
    main()
