"""DQN and PPO catch a falling block from 84 x 84 pixels: seconds and steps to a return of 0.9.

    python bench/pixels.py [ALGO ...]

The environment and the settings are those of the test; here for three seeds, under `single`, judged over 40 episodes.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import report
from tests.envs.catch import SETTINGS, Catch

import headrace

SEEDS = (1, 2, 3)
GOAL = 0.9


def main() -> None:
    figures: dict[str, object] = {}
    for name in sys.argv[1:] or SETTINGS:
        algorithm = {"dqn": headrace.DQN, "ppo": headrace.PPO}[name](**SETTINGS[name])
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                began = time.monotonic()
                run = headrace.train(
                    algorithm,
                    Catch,
                    policy="single",
                    until=GOAL,
                    seconds=300,
                    seed=seed,
                    eval_every=500,
                    eval_episodes=40,
                    out=f"{folder}/run",
                    progress=False,
                )
                taken, last = time.monotonic() - began, run.metrics[-1]
            verdict = "reached" if run.reached else "NOT reached"
            score, steps = last["eval/mean_reward"], last["time/env_steps"]
            figures[f"{name} seed {seed}"] = f"{verdict} {score:.2f} in {taken:.1f} s, {steps:,} steps"
    report("pixels", figures)


if __name__ == "__main__":
    main()
