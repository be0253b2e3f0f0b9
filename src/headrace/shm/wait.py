"""Waiting for another process: with a timeout, and not for one that has ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.errors import OverdueError, PeerGone
from headrace.shm.memory import fence

Alive = Callable[[], bool]
"""Whether the process waited for is still running."""

SPINS = 40
"""Checks before the first sleep, about 10 us: what a hand-over between two running processes takes."""

SHORTEST, LONGEST = 20e-6, 1e-3
"""Seconds of the first sleep, and of the longest. Linux adds about 50 us to each."""

LEISURE = 2e-3, 20e-3
"""The same where a late check costs nothing: checking often takes time from other processes on the core."""


def wait(
    ready: Callable[[], bool], timeout: float, alive: Alive, what: str = "another process", leisurely: bool = False
) -> None:
    """Return as soon as `ready()`; raise `PeerGone` once not `alive()`, `OverdueError` after `timeout` seconds."""
    for _ in range(1 if leisurely else SPINS):
        if ready():
            fence()  # data announced by `ready` is read after this
            return
    pause, longest = LEISURE if leisurely else (SHORTEST, LONGEST)
    growth, end = 1.2 if leisurely else 2.0, time.monotonic() + timeout
    while True:
        living = alive()
        if ready():  # checked again after `alive`: the peer may have finished its work and then ended
            fence()
            return
        if not living:
            raise PeerGone(f"{what} has ended; its own message, further up, says why.")
        left = end - time.monotonic()
        if left <= 0:
            raise OverdueError(f"waited {timeout:g} s for {what}; it runs but does not answer.")
        time.sleep(min(pause, left))
        pause = min(growth * pause, longest)
