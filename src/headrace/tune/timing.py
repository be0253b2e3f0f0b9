"""Timing what a process does as if nobody else wanted its cores.

Other programs come and go while the tuner measures. Linux knows how long each thread was ready to run and did not get
its core; that time is taken off. What an environment spends asleep, waiting for something outside, counts in full.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

TASKS = Path("/proc/self/task")

WINDOW, WINDOWS, LONG = 0.1, 4, 1.0
"""Seconds of one measurement; how many there are of the same in a row; seconds after which fewer are enough."""

Tell = Callable[..., None]


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


class Enough(Exception):  # noqa: N818 - nothing went wrong
    """So many measurements are enough."""


class Stopwatch:
    """Called before everything that is measured: tells the `seconds` of one, and those of the clock, `wall`."""

    def __init__(self, tell: Tell, threads: int, times: int = 1):
        """`times` is how many calls it takes to do it once."""
        self.tell, self.threads, self.times = tell, threads, times
        self.seconds: list[float] = []
        self.began: Moment | None = None
        self.calls = 0

    def __call__(self) -> None:
        if self.began is None:  # compiling came before the first call
            self.began = self.since = Moment.now()
            return
        self.calls += 1
        if time.perf_counter() - self.since.wall >= WINDOW:
            now, done = Moment.now(), self.calls / self.times
            self.seconds.append(now.since(self.since, self.threads) / done)
            self.tell(seconds=self.seconds[-1], wall=(now.wall - self.since.wall) / done)
            self.since, self.calls = now, 0
            if len(self.seconds) == WINDOWS or now.wall - self.began.wall > LONG:
                raise Enough


def _delayed() -> float:
    total = 0
    for task in TASKS.iterdir() if TASKS.exists() else ():
        try:
            total += int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue  # a thread that ended meanwhile, or a kernel that does not count
    return total / 1e9
