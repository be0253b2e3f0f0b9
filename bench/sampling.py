"""Sampling alone: SAC's actor on every core, no learning, as a share of raw stepping plus acting.

    python bench/sampling.py [envs per sampler] [seconds]        defaults: 64, 6

For each environment one sampler per core runs as in training (weights watched, rows into the shared table, limiter
asked at every pass), with a warm-up that never ends. The limit is bench/raw.py on all cores at the same time. Raw and
ours take turns: raw, ours, ours, raw, twice. A share is the median over pairs that ran one after the other.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from measure import report

import headrace
from headrace.tune.trial import try_out

HERE = Path(__file__).parent
ENVS = int(sys.argv[1]) if len(sys.argv) > 1 else 64
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 6.0
NAMES = ("HalfCheetah-v5", "Pendulum-v1", "envpool:HalfCheetah-v4", "envpool:Pendulum-v1")
NEVER = 3_000_000
WARM = 9.0
"""Seconds after the first step: until the other processes, which take turns in starting, have all started."""
CORES = sorted(os.sched_getaffinity(0))


def raw(env: str) -> float:
    """Steps/s of all cores together."""
    words = [sys.executable, str(HERE / "raw.py"), env, str(ENVS)]
    running = [
        subprocess.Popen(
            [*words, str(core), str(SECONDS)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for core in CORES
    ]
    costs = [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]
    return sum(ENVS / (cost["step"] + cost["act"]) for cost in costs)


def ours(env: str) -> float:
    """Steps/s of one sampler for each core."""
    number = len(CORES)
    algorithm = headrace.SAC(num_envs=ENVS * number, warmup=NEVER, replay_capacity=NEVER)
    plan = headrace.plan(algorithm, env, "desktop", replicas=number)
    spread = dataclasses.replace(plan.collector, cores=tuple(range(number)))
    fragments = tuple(spread if fragment is plan.collector else fragment for fragment in plan.fragments)
    plan = dataclasses.replace(plan, fragments=fragments)
    return try_out(plan, algorithm, env, seconds=SECONDS, warm=WARM, learning=False).env_steps


def main() -> None:
    figures: dict[str, object] = {"environments per sampler": ENVS, "samplers": len(CORES)}
    for env in NAMES:
        seen: dict[str, list[float]] = {"raw": [], "ours": []}
        for turn in (raw, ours, ours, raw, raw, ours, ours, raw):
            seen[turn.__name__].append(turn(env))
        limit, speed = statistics.median(seen["raw"]), statistics.median(seen["ours"])
        share = statistics.median(mine / most for mine, most in zip(seen["ours"], seen["raw"], strict=True))
        print(f"{env}: {speed:.0f} of {limit:.0f} steps/s: {share:.3f}", flush=True)
        figures |= {f"{env}, limit, steps/s": limit, f"{env}, ours, steps/s": speed}
        figures[f"{env}, share (at least 0.85)"] = share
    report("sampling", figures)


if __name__ == "__main__":
    main()
