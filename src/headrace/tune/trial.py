"""A trial: run a plan for a while and say how fast it was."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from headrace.core.algorithm import Algorithm
from headrace.errors import HeadraceError
from headrace.graph import Plan
from headrace.runtimes import RUNTIMES, Options, Runtime, default_runtime

START = 120.0
"""Seconds that a plan may take to get going."""


@dataclass(frozen=True)
class Speed:
    """What a plan did in a second."""

    env_steps: float
    update_frames: float
    busy: dict[str, float]
    """Share of one core that each process used, by its own clock."""

    @property
    def per_insert(self) -> float:
        """Frames replayed for each step."""
        return self.update_frames / max(self.env_steps, 1e-9)


def try_out(
    plan: Plan,
    algorithm: Algorithm[Any],
    env: Any,
    *,
    seconds: float,
    warm: float,
    seed: int = 0,
    learning: bool = True,
    options: Options | None = None,
    say: Callable[[str], Any] = lambda text: None,
) -> Speed:
    """The speed of a plan over `seconds`, after it has gone for `warm` seconds; `learning` if it gets that far.

    `say` is told what is being done.
    """
    say("starting")
    options = options or Options(evaluate=False)
    running = RUNTIMES[default_runtime(plan, options)](plan, algorithm, env, seed, options)
    try:
        _go(running, START, lambda: running.progress.learned > 0 if learning else running.progress.env_steps > 0)
        say(f"warming up for {warm:g} s")
        _go(running, warm)
        say(f"measuring for {seconds:g} s")
        before, used, began = running.progress.counters(), _used(running), time.monotonic()
        _go(running, seconds)
        taken = time.monotonic() - began
        after = running.progress.counters()
        busy = {name: (now - used[name]) / taken for name, now in _used(running).items() if name in used}
        return Speed(
            (after["env_steps"] - before["env_steps"]) / taken,
            (after["update_frames"] - before["update_frames"]) / taken,
            busy,
        )
    finally:
        running.close()


def _go(running: Runtime, seconds: float, until: Any = None) -> None:
    end = time.monotonic() + seconds
    while not (until and until()):
        if time.monotonic() >= end:
            if until is None:
                return
            raise HeadraceError(f"nothing was learned within {seconds:g} s; look at `headrace train` with the same.")
        running.advance()
        running.progress.episodes = []


def _used(running: Runtime) -> dict[str, float]:
    """Seconds of processor time that each process has used."""
    used = {}
    for name, pid in running.pids().items():
        times = psutil.Process(pid).cpu_times()
        used[name] = times.user + times.system
    return used
