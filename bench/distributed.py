"""Learning under distribution: the return is reached under every policy, by the same unchanged algorithm, three seeds.

    python bench/distributed.py [seeds]        default: 1 2 3

Seconds are those of the whole `headrace train` command, untuned.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import report

SEEDS = sys.argv[1:] or ["1", "2", "3"]
SPREAD = "pettingzoo:mpe2.simple_spread_v3"
RANDOM_TEAM, MARGIN = -26.2, 5.0
"""The mean return of a team that acts at random, over 480 episodes, and what a trained one must be better by."""
CASES = [
    *(
        ("ppo", "CartPole-v1", 475, policy, [])
        for policy in (
            "single",
            "desktop",
            "single_learner_coarse",
            "single_learner_fine",
            "multiple_learners",
            "environments",
        )
    ),
    *(
        ("sac", "Pendulum-v1", -200, policy, [])
        for policy in ("desktop", "dual_device", "single_learner_coarse", "single_learner_fine", "multiple_learners")
    ),
    ("a3c", "CartPole-v1", 400, "central", []),
    ("impala", "CartPole-v1", 450, "single_learner_coarse", ["--staleness", "2"]),
    ("mappo", SPREAD, RANDOM_TEAM + MARGIN, "environments", ["--set", "share_parameters=False"]),
]


def main() -> None:
    figures: dict[str, object] = {}
    for algorithm, env, goal, policy, more in CASES:
        name = f"{algorithm} {env} to {goal:g} under {policy}{' ' * bool(more)}{' '.join(more)}"
        seconds, reached = [], 0
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "run"
                words = [sys.executable, "-m", "headrace", "train", algorithm, env, "--policy", policy, *more]
                words += ["--until", str(goal), "--seed", seed, "--seconds", "180", "--no-tune", "--quiet"]
                began = time.monotonic()
                subprocess.run([*words, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
                seconds.append(time.monotonic() - began)
                last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
                reached += last["eval/mean_reward"] >= goal
        figures[f"{name}, seeds that reached it"] = f"{reached} of {len(SEEDS)}"
        figures[f"{name}, seconds"] = ", ".join(f"{one:.0f}" for one in seconds)
        print(f"{name}: {reached} of {len(SEEDS)}, {seconds}", flush=True)
    report("distributed", figures)


if __name__ == "__main__":
    main()
