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


def try_out(
    plan: Plan,
    algorithm: Algorithm[Any],
    env: Any,
    *,
    seconds: float,
    warm: float,
    learning: bool = True,
    say: Callable[[str], Any] = lambda text: None,
) -> Speed:
    """The speed of a plan over `seconds`, after it has gone for `warm` seconds; `learning` if it gets that far.

    `say` is told what is being done.
    """
    say("starting")
    options = Options(evaluate=False)
    running = RUNTIMES[default_runtime(plan, options)](plan, algorithm, env, 0, options)
    try:
        _go(running, START, lambda: running.progress.learned > 0 if learning else running.progress.env_steps > 0)
        say(f"warming up for {warm:g} s")
        _go(running, warm)
        say(f"measuring for {seconds:g} s")
        before, used, began = running.progress.counters(), _used(running), time.monotonic()
        _go(running, seconds)
        taken, after = time.monotonic() - began, running.progress.counters()
        busy = {name: (now - used[name]) / taken for name, now in _used(running).items() if name in used}
        steps, frames = ((after[name] - before[name]) / taken for name in ("env_steps", "update_frames"))
        return Speed(steps, frames, busy)
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
    times = {name: psutil.Process(pid).cpu_times() for name, pid in running.pids().items()}
    return {name: spent.user + spent.system for name, spent in times.items()}
