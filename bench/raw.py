"""What one core can sample at most: raw stepping of the environments, plus a compiled actor, and nothing else.

    python bench/raw.py ENV ENVS CORE SECONDS        ENV is a Gymnasium id or envpool:ID

Prints the mean seconds of stepping all ENVS environments once and of choosing their actions (SAC's 2x256 actor): means,
as the throughput that it is compared with is one, so that what the machine is disturbed by counts on both sides.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

DRAWS = 64
"""Actions that take turns: repeating one set would drive a body against its joints, where MuJoCo is slower."""


def stepper(env: str, envs: int) -> tuple[Callable[[Any], Any], list[Any]]:
    """A function that steps all environments with their actions, and sets of random actions that fit."""
    import numpy as np

    rng = np.random.default_rng(0)

    def drawn(space: Any) -> list[Any]:
        shape = (envs, *space.shape)
        return [rng.uniform(space.low, space.high, shape).astype(space.dtype) for _ in range(DRAWS)]

    if env.startswith("envpool:"):
        import envpool

        pool = envpool.make_gymnasium(env.removeprefix("envpool:"), num_envs=envs, num_threads=1)
        pool.reset()
        return pool.step, drawn(pool.action_space)
    import gymnasium

    made = [gymnasium.make(env) for _ in range(envs)]
    for one in made:
        one.reset()

    def step(actions: Any) -> None:
        for one, action in zip(made, actions, strict=True):
            _, _, terminated, truncated, _ = one.step(action)
            if terminated or truncated:
                one.reset()

    return step, drawn(made[0].action_space)


def main() -> None:
    env, envs, core, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    from measure import confine

    os.sched_setaffinity(0, {core})
    confine(1)

    import jax
    import numpy as np

    import headrace
    from headrace.algorithms.sac import actions as distribution
    from headrace.compile.cells import make_cells

    graph = headrace.trace(headrace.SAC(num_envs=envs), env)
    actor = make_cells(headrace.SAC(num_envs=envs), graph, 0)["actor"].module
    obs = np.zeros((envs, *graph.spec.observation.shape), np.float32)
    act = jax.jit(lambda obs, key: distribution(actor, obs).sample(key)[0])
    key = jax.random.key(0)
    step, chosen = stepper(env, envs)
    np.asarray(act(obs, key))
    taken: dict[str, list[float]] = {"step": [], "act": []}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        np.asarray(act(obs, key))
        between = time.perf_counter()
        step(chosen[len(taken["step"]) % DRAWS])
        taken["act"].append(between - began)
        taken["step"].append(time.perf_counter() - between)
    print(json.dumps({name: statistics.fmean(times) for name, times in taken.items()}))


if __name__ == "__main__":
    main()
