"""What the evaluator and the viewer cost the training path: on and off in turn, within one run.

    python bench/spectators.py [rounds] [seconds]        defaults: 12 rounds of 4 s each way

SAC on HalfCheetah-v5 under `desktop` and under `dual_device`, where every core is taken, and on Pendulum-v1. One of
the two watches; it is stopped (SIGSTOP) and let go on in turn, on, off, off, on. What is compared is learning passes in
a second, between two moments at which a program ended; the share is the median over the rounds. MuJoCo draws with the
processor here (MUJOCO_GL=egl or osmesa).
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time

os.environ.setdefault("MUJOCO_GL", "egl")

from measure import report

import headrace
from headrace.runtimes import Options, Processes

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 12
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 4.0
SETTLED = 6.0
"""Seconds after the spectator has shown its first result."""
CASES = (("desktop", "HalfCheetah-v5"), ("dual_device", "HalfCheetah-v5"), ("desktop", "Pendulum-v1"))
AUDIENCES = {
    "evaluator": Options(hang_seconds=1e6),
    "viewer": Options(evaluate=False, view="ring", hang_seconds=1e6),
}


def share(policy: str, env: str, who: str) -> float:
    """Learning with somebody watching, as a share of learning alone."""
    algorithm = headrace.SAC()
    runtime = Processes(headrace.plan(algorithm, env, policy), algorithm, env, 0, AUDIENCES[who])
    try:
        while runtime.take_score() is None and runtime.frame() is None:
            runtime.advance()
        _look_on(runtime, SETTLED)
        (spectator,) = (process.handle.pid for process in runtime.processes if process.task.fragment == who)
        ratios = []
        for i in range(ROUNDS):
            rates = {}
            for on in (True, False) if i % 2 == 0 else (False, True):
                os.kill(spectator, signal.SIGCONT if on else signal.SIGSTOP)
                rates[on] = rate(runtime)
            ratios.append(rates[True] / rates[False])
        os.kill(spectator, signal.SIGCONT)
        return statistics.median(ratios)
    finally:
        runtime.close()


def rate(runtime: Processes) -> float:
    """Learning passes in a second, from the end of one program to that of another."""
    began, first = _next(runtime)
    _look_on(runtime, SECONDS)
    ended, last = _next(runtime)
    return (last - first) / (ended - began)


def _next(runtime: Processes) -> tuple[float, int]:
    """When the next program ends, and the learning passes until then."""
    before = int(runtime.ledger.learned.min())
    while (learned := int(runtime.ledger.learned.min())) == before:
        time.sleep(0.001)
    return time.monotonic(), learned


def _look_on(runtime: Processes, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        runtime.advance()


def main() -> None:
    figures: dict[str, object] = {"rounds": ROUNDS, "seconds": SECONDS}
    for policy, env in CASES:
        for who in AUDIENCES:
            found = share(policy, env, who)
            figures[f"{policy} {env}, with the {who} (at least 0.97)"] = found
            print(f"{policy} {env}, {who}: {found:.3f}", flush=True)
    report("spectators", figures)


if __name__ == "__main__":
    main()
