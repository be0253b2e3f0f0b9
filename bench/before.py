"""This checkout against an earlier commit, in pairs (A/B then B/A): what a change costs, or gains, in what runs.

    python bench/before.py REVISION [rounds] [seconds] [workload ...]        default: 6 rounds of 8 s, all workloads

The earlier commit is checked out beside this one for as long as it takes. Untuned plans, nobody watching.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import report

ROOT = Path(__file__).parents[1]
WORKLOADS = {
    "sac HalfCheetah-v5 desktop": ("SAC()", "HalfCheetah-v5", "desktop", "update_frames"),
    "sac HalfCheetah-v5 dual_device": ("SAC()", "HalfCheetah-v5", "dual_device", "update_frames"),
    "ppo CartPole-v1 desktop": ("PPO()", "CartPole-v1", "desktop", "env_steps"),
    "ppo HalfCheetah-v5 desktop": ("PPO()", "HalfCheetah-v5", "desktop", "env_steps"),
    "dqn CartPole-v1 desktop": ("DQN()", "CartPole-v1", "desktop", "update_frames"),
    "sac Pendulum-v1 multiple_learners": ("SAC()", "Pendulum-v1", "multiple_learners", "update_frames"),
    "ppo gymnax:CartPole-v1 device_only": (
        "PPO(num_envs=64, horizon=32)",
        "gymnax:CartPole-v1",
        "device_only",
        "env_steps",
    ),
}
TRIAL = """
import sys, headrace
from headrace.trial import try_out
if __name__ == "__main__":
    algorithm, (env, policy, seconds) = eval("headrace." + sys.argv[1]), sys.argv[2:5]
    plan = headrace.plan(algorithm, env, policy)
    speed = try_out(plan, algorithm, env, seconds=float(seconds), warm=2)
    print(getattr(speed, sys.argv[5]))
"""


def speed(checkout: Path, workload: str, seconds: float) -> float:
    """What a workload does a second with the code of a checkout."""
    algorithm, env, policy, figure = WORKLOADS[workload]
    done = subprocess.run(
        [sys.executable, "-c", TRIAL, algorithm, env, policy, str(seconds), figure],
        env=os.environ | {"PYTHONPATH": str(checkout / "src")},
        check=True,
        capture_output=True,
        text=True,
    )
    return float(done.stdout.split()[-1])


def ratios(before: Path, workload: str, rounds: int, seconds: float) -> list[float]:
    """Now / before, of each round."""
    found = []
    for i in range(rounds):
        order = [ROOT, before] if i % 2 == 0 else [before, ROOT]
        speeds = {checkout: speed(checkout, workload, seconds) for checkout in order}
        found.append(speeds[ROOT] / speeds[before])
        print(f"{workload}: {speeds[ROOT]:,.0f} against {speeds[before]:,.0f} before", file=sys.stderr, flush=True)
    return found


def main() -> None:
    revision, *rest = sys.argv[1:]
    numbers = [float(word) for word in rest[:2]]
    rounds, seconds = int(numbers[0]) if numbers else 6, numbers[1] if len(numbers) > 1 else 8.0
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short", revision], check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run([*git, "worktree", "add", "--detach", "--quiet", str(before), revision], check=True)
        try:
            found = {name: ratios(before, name, rounds, seconds) for name in rest[2:] or WORKLOADS}
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(before)], check=True)
    figures: dict[str, object] = {"before": commit.strip(), "rounds": rounds, "seconds": seconds}
    for name, values in found.items():
        figures[f"{name}, now / before"] = statistics.median(values)
        figures[f"{name}, every round"] = json.dumps([round(value, 3) for value in values])
    report("before", figures)


if __name__ == "__main__":
    main()
