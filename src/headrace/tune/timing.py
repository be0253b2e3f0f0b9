"""Timing what a process does as if nobody else wanted its cores.

Other programs come and go while the tuner measures. Linux knows how long each thread was ready to run and did not get
its core; that time is taken off. What an environment spends asleep, waiting for something outside, counts in full.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

TASKS = Path("/proc/self/task")


class Moment(NamedTuple):
    """What this process has had so far, in seconds."""

    wall: float
    cpu: float
    delayed: float

    @staticmethod
    def now() -> Moment:
        return Moment(time.perf_counter(), time.process_time(), _delayed())

    def since(self, before: Moment, threads: int) -> float:
        """The seconds that passed, without those in which `threads` threads were kept from running."""
        wall, cpu, delayed = (mine - theirs for mine, theirs in zip(self, before, strict=True))
        return min(wall, max(cpu / threads, wall - delayed / threads))

    def told(self, before: Moment, threads: int, times: float) -> dict[str, float]:
        """What a probe tells of doing something so many times: the `seconds` of one, and of the clock's, `wall`."""
        return {"seconds": self.since(before, threads) / times, "wall": (self.wall - before.wall) / times}


def _delayed() -> float:
    total = 0
    for task in TASKS.iterdir() if TASKS.exists() else ():
        try:
            total += int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue  # a thread that ended meanwhile, or a kernel that does not count
    return total / 1e9
