"""The rate between collecting and learning on a real run: the worst of all 30 s windows after warm-up.

    python bench/rate.py [seconds]        default: 60 s for each case

SAC on HalfCheetah-v5 under `desktop` and `dual_device`: once with the default networks, where samplers wait for the
learner, once with small ones and small batches, where the learner waits for the samplers.
"""

from __future__ import annotations

import sys
import time

from measure import report

import headrace
from headrace.runtimes import RUNTIMES, Options

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
WINDOW = 30.0
CASES = {
    "the learner is slower": headrace.SAC(),
    "the samplers are slower": headrace.SAC(hidden=(16,), batch_size=16, samples_per_insert=1.0),
}


def worst(algorithm: headrace.Algorithm, policy: str) -> float:
    """The largest share by which frames per step, over a window, differ from what the algorithm asks for."""
    plan = headrace.plan(algorithm, "HalfCheetah-v5", policy)
    running = RUNTIMES["processes"](plan, algorithm, "HalfCheetah-v5", 0, Options(evaluate=False))
    seen: list[tuple[float, int, int]] = []
    try:
        while not seen or seen[-1][0] - seen[0][0] < SECONDS:
            running.advance()
            running.progress.episodes = []
            if running.progress.learned:
                seen.append((time.monotonic(), running.progress.env_steps, running.progress.update_frames))
    finally:
        running.close()
    off, last = 0.0, 0
    for began, steps, frames in seen:
        while last < len(seen) and seen[last][0] - began < WINDOW:
            last += 1
        if last == len(seen):
            break
        rate = (seen[last][2] - frames) / (seen[last][1] - steps)
        off = max(off, abs(rate / algorithm.config.samples_per_insert - 1))
    return off


def main() -> None:
    figures: dict[str, object] = {}
    for what, algorithm in CASES.items():
        for policy in ("desktop", "dual_device"):
            figures[f"{policy}, {what}: largest deviation over {WINDOW:g} s (at most 0.01)"] = worst(algorithm, policy)
            print(figures, flush=True)
    report("rate", figures)


if __name__ == "__main__":
    main()
