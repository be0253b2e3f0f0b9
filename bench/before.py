"""This checkout against an earlier commit: what a change costs, or gains, in what runs.

    python bench/before.py REVISION [pairs] [seconds] [workload ...]      default: 40 pairs of 2 x 2.5 s, all workloads

Both run side by side, each stopped (SIGSTOP) while the other goes on, in turn (A/B/B/A), so that both halves of a pair
see the same moment of a noisy machine. After a few pairs both are started anew, the other one first: a process keeps
what luck it had with its memory for as long as it lives. The earlier commit is checked out for as long as it takes.
Untuned plans, nobody watching.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measure import report

ROOT = Path(__file__).parents[1]
Seen = np.ndarray[tuple[int], np.dtype[np.int64]]
SETTLE = 0.3
"""Seconds after a side goes on before its steps count."""
START = 120.0
TOGETHER = 4
"""Pairs between two starts."""
WORKLOADS = {
    "sac HalfCheetah-v5 desktop": ("SAC()", "HalfCheetah-v5", "desktop"),
    "sac HalfCheetah-v5 dual_device": ("SAC()", "HalfCheetah-v5", "dual_device"),
    "ppo CartPole-v1 desktop": ("PPO()", "CartPole-v1", "desktop"),
    "ppo HalfCheetah-v5 desktop": ("PPO()", "HalfCheetah-v5", "desktop"),
    "dqn CartPole-v1 desktop": ("DQN()", "CartPole-v1", "desktop"),
    "sac Pendulum-v1 multiple_learners": ("SAC()", "Pendulum-v1", "multiple_learners"),
    "ppo gymnax:CartPole-v1 device_only": ("PPO(num_envs=64, horizon=32)", "gymnax:CartPole-v1", "device_only"),
}
SIDE = """
import sys, time, headrace, numpy as np
from headrace.runtimes import RUNTIMES, Options
if __name__ == "__main__":
    algorithm, env, policy, counter = eval("headrace." + sys.argv[1]), *sys.argv[2:]
    plan = headrace.plan(algorithm, env, policy)
    alone = len(plan.fragments) == 1 and (plan.graph.spec.pure or plan.fragments[0].replicas == 1)
    running = RUNTIMES["inline" if alone else "processes"](plan, algorithm, env, 0, Options(evaluate=False))
    seen = np.memmap(counter, np.int64, "r+")
    while True:
        running.advance()
        running.progress.episodes = []
        if running.progress.update_frames != seen[0]:
            seen[:] = running.progress.update_frames, time.monotonic_ns()
"""


class Side:
    """A run with the code of one checkout, in a session of its own."""

    def __init__(self, checkout: Path, workload: str, counter: Path):
        counter.write_bytes(bytes(16))
        self.counter = np.memmap(counter, np.int64, "r")
        words = [sys.executable, "-c", SIDE, *WORKLOADS[workload], str(counter)]
        environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
        self.process = subprocess.Popen(words, env=environment, start_new_session=True)
        end = time.monotonic() + START
        while self.counter[0] == 0:
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{workload} learned nothing in {checkout}")
            time.sleep(0.1)
        self.signal(signal.SIGSTOP)

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def speed(self, seconds: float) -> float:
        """Update frames a second while this side alone goes on."""
        self.signal(signal.SIGCONT)
        time.sleep(SETTLE)
        began = self.seen()
        time.sleep(seconds)
        frames, nanoseconds = self.seen() - began
        self.signal(signal.SIGSTOP)
        return float(frames / nanoseconds * 1e9)

    def seen(self) -> Seen:
        """Frames, and when there came to be so many: they come many at a time, a few percent of a pair's."""
        while True:
            first, second = self.counter.copy(), self.counter.copy()
            if np.array_equal(first, second):
                return first

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()


def ratios(before: Path, workload: str, pairs: int, seconds: float, folder: Path) -> list[float]:
    """Now / before, of each pair."""
    found: list[float] = []
    while len(found) < pairs:
        found += together(before, workload, min(TOGETHER, pairs - len(found)), seconds, folder, len(found))
        print(f"{workload}, {len(found)} pairs: {statistics.median(found):.3f}", file=sys.stderr, flush=True)
    return found


def together(before: Path, workload: str, pairs: int, seconds: float, folder: Path, done: int) -> list[float]:
    """The ratios of some pairs of the same two processes."""
    sides: dict[Path, Side] = {}
    order = [ROOT, before][:: 1 if done // TOGETHER % 2 == 0 else -1]
    try:
        for i, checkout in enumerate(order):
            sides[checkout] = Side(checkout, workload, folder / f"counter-{i}")
        for side in sides.values():
            side.speed(seconds)
        found = []
        for _ in range(pairs):
            speeds = {checkout: sides[checkout].speed(seconds) for checkout in order}
            found.append(speeds[ROOT] / speeds[before])
            order.reverse()
        return found
    finally:
        for side in sides.values():
            side.end()


def main() -> None:
    revision, *rest = sys.argv[1:]
    pairs, seconds = int(rest[0]) if rest else 40, float(rest[1]) if len(rest) > 1 else 2.5
    git = ["git", "-C", str(ROOT)]
    commit = subprocess.run([*git, "rev-parse", "--short", revision], check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder) / "before"
        subprocess.run([*git, "worktree", "add", "--detach", "--quiet", str(before), revision], check=True)
        try:
            names = rest[2:] or WORKLOADS
            found = {name: ratios(before, name, pairs, seconds, Path(folder)) for name in names}
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(before)], check=True)
    figures: dict[str, object] = {"before": commit.strip(), "pairs": pairs, "seconds": seconds}
    for name, values in found.items():
        spread = statistics.quantiles(values, n=4)
        figures[f"{name}, now / before"] = statistics.median(values)
        figures[f"{name}, quartiles"] = json.dumps([round(spread[0], 3), round(spread[2], 3)])
    report("before", figures)


if __name__ == "__main__":
    main()
