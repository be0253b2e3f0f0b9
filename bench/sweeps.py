"""Many runs in one process: do memory and memory maps stay as they are?

    python bench/sweeps.py [LOADS TRAININGS]        default: 1000 100

Loads one run again and again, asking its actor each time, then trains short ones; prints resident memory and the lines
of /proc/self/maps (the kernel allows 65,530) over the course, and what has grown since the first tenth of it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measure import report

import headrace

SETTINGS = {"num_envs": 2, "warmup": 32, "batch_size": 16, "hidden": (16,), "replay_capacity": 500}


def train(out: Path, seed: int) -> headrace.Run:
    return headrace.train(
        headrace.DQN(**SETTINGS),
        "CartPole-v1",
        policy="single",
        steps=100,
        seed=seed,
        out=out,
        progress=False,
        evaluate=False,
    )


def course(name: str, times: int, once: Callable[[int], object]) -> dict[str, float]:
    """Do it again and again; what has grown since the first tenth."""
    tenth = max(1, times // 10)
    for i in range(1, times + 1):
        once(i)
        if i % tenth == 0:
            megabytes = int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6
            maps = len(Path("/proc/self/maps").read_text().splitlines())
            print(f"{name} {i}: {megabytes:.0f} MB, {maps} maps", flush=True)
            if i == tenth:
                first = megabytes, maps
    return {f"{name}: MB more than after {tenth}": megabytes - first[0], f"{name}: maps more": maps - first[1]}


def main() -> None:
    loads, trainings = (int(word) for word in sys.argv[1:3]) if len(sys.argv) > 2 else (1000, 100)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        train(out, 0)
        grown = course("loads", loads, lambda i: headrace.Run.load(out).actor(np.zeros(4, np.float32)))
        grown |= course("trainings", trainings, lambda i: train(Path(folder) / str(i), i))
    report("sweeps", grown)


if __name__ == "__main__":
    main()
