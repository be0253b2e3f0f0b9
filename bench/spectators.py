"""What the evaluator and the viewer cost the training path: on and off in turn.

    python bench/spectators.py [rounds] [seconds]        defaults: 4 rounds of 12 s each

SAC on HalfCheetah-v5 and on Pendulum-v1 under `desktop`, and HalfCheetah-v5 under `dual_device`, where every core is
taken. MuJoCo draws with the processor here (MUJOCO_GL=egl or osmesa).
"""

from __future__ import annotations

import os
import statistics
import sys

os.environ.setdefault("MUJOCO_GL", "egl")

from measure import report

import headrace
from headrace.runtimes import Options
from headrace.trial import try_out

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 4
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 12.0
CASES = (("desktop", "HalfCheetah-v5"), ("dual_device", "HalfCheetah-v5"), ("desktop", "Pendulum-v1"))
AUDIENCES = {
    "nobody": Options(evaluate=False),
    "evaluator": Options(),
    "viewer": Options(evaluate=False, view="ring"),
}


def frames(policy: str, env: str, options: Options) -> float:
    algorithm = headrace.SAC()
    plan = headrace.plan(algorithm, env, policy)
    return try_out(plan, algorithm, env, seconds=SECONDS, warm=8, options=options).update_frames


def main() -> None:
    figures: dict[str, object] = {}
    for policy, env in CASES:
        seen: dict[str, list[float]] = {name: [] for name in AUDIENCES}
        for i in range(ROUNDS):
            for name in list(AUDIENCES) if i % 2 == 0 else reversed(list(AUDIENCES)):
                seen[name].append(frames(policy, env, AUDIENCES[name]))
        alone = statistics.median(seen["nobody"])
        figures[f"{policy} {env}, alone, update frames/s"] = alone
        for name in ("evaluator", "viewer"):
            # In each round both ran side by side in time: the ratio of a round is free of the machine's drift.
            ratio = statistics.median(on / off for on, off in zip(seen[name], seen["nobody"], strict=True))
            figures[f"{policy} {env}, with the {name} (at least 0.97)"] = ratio
            print(f"{policy} {env}, {name}: {ratio:.3f}  {seen}", flush=True)
    report("spectators", figures)


if __name__ == "__main__":
    main()
