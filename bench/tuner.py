"""The tuner's choice against every cell of a grid, and against what a policy does untuned.

    python bench/tuner.py [seconds]        default: 5 s for each cell

Three pairs of algorithm and environment, under `desktop`. The grid: samplers, environments of each, cores, fused
passes. The best cell, the tuner's choice and the untuned plan then take turns again, so that the best is not only the
luckiest; a ratio is the median over the rounds. Where the choice is the untuned plan there is nothing to compare.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from dataclasses import replace

from measure import report

import headrace
from headrace.core.algorithm import Algorithm
from headrace.graph import Plan, fuse, verify
from headrace.machine import Machine
from headrace.policies import POLICIES
from headrace.tune import Choice, tune
from headrace.tune.trial import try_out

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
PAIRS = ((headrace.SAC(), "HalfCheetah-v5"), (headrace.DQN(), "CartPole-v1"), (headrace.PPO(), "CartPole-v1"))
POLICY = "desktop"
ROUNDS = 3


def placed(algorithm: Algorithm, env: str, choice: Choice | None) -> tuple[Algorithm, Plan]:
    """What runs."""
    machine = Machine.detect()
    made = algorithm if choice is None else choice.settle(algorithm)
    plan = POLICIES[POLICY](headrace.trace(made, env), machine, None if choice is None else choice.replicas)
    return made, verify(fuse(plan) if choice is None else choice.place(fuse(plan)), machine)


def speed(algorithm: Algorithm, env: str, choice: Choice | None, seconds: float) -> float:
    """Update frames/s, or environment steps/s of an on-policy loop."""
    made, plan = placed(algorithm, env, choice)
    seen = try_out(plan, made, env, seconds=seconds, warm=3)
    return seen.update_frames if plan.graph.domains[0].fused else seen.env_steps


def grid(algorithm: Algorithm, env: str) -> list[Choice]:
    """Every cell."""
    on_policy = not headrace.trace(algorithm, env).domains[0].fused
    cells = []
    for samplers, envs, repeat in itertools.product((1, 2), (4, 8, 16, 32), (4, 16)):
        if on_policy:
            if repeat != 4 or envs != 4:
                continue
            for learning in ((0,), (0, 1)):
                cores = {"collect": (0, 1), "learn": learning}
                cells.append(Choice(algorithm.config.num_envs, samplers, 1, None, cores))
        else:
            cores = {"collect": (1,) if samplers == 1 else (0, 1), "learn": (0,)}
            cells.append(Choice(samplers * envs, samplers, repeat, algorithm.config.batch_size, cores))
    return cells


def main() -> None:
    figures: dict[str, object] = {"policy": POLICY}
    for algorithm, env in PAIRS:
        name = f"{algorithm.name} {env}"
        chosen = tune(algorithm, env, POLICY, Machine.detect())
        speeds = {}
        for cell in grid(algorithm, env):
            speeds[cell.num_envs, cell.replicas, cell.repeat, str(cell.cores)] = speed(algorithm, env, cell, SECONDS)
            print(f"{name}  {cell}: {list(speeds.values())[-1]:.0f}", flush=True)
        cells = grid(algorithm, env)
        best = cells[max(range(len(cells)), key=lambda i: list(speeds.values())[i])]
        turns: dict[str, Choice | None] = {"best cell": best, "tuned": chosen, "untuned": None}
        (ours, tuned), (theirs, untuned) = placed(algorithm, env, chosen), placed(algorithm, env, None)
        if (ours.config, tuned.fragments) == (theirs.config, untuned.fragments):
            del turns["untuned"]
        again: dict[str, list[float]] = {what: [] for what in turns}
        for i in range(ROUNDS):
            for what in list(turns) if i % 2 == 0 else reversed(list(turns)):
                again[what].append(speed(algorithm, env, turns[what], 2 * SECONDS))
        medians = {what: statistics.median(rates) for what, rates in again.items()}
        figures |= {f"{name}, {what}": value for what, value in medians.items()}
        figures[f"{name}, the choice"] = str(replace(chosen, expected=None))
        figures[f"{name}, the best cell"] = str(best)
        for what, least in (("best cell", 0.93), ("untuned", 1)):
            figures[f"{name}, tuned / {what} (at least {least})"] = (
                statistics.median(mine / other for mine, other in zip(again["tuned"], again[what], strict=True))
                if what in again
                else "the same plan"
            )
        print(figures, flush=True)
    report("tuner", figures)


if __name__ == "__main__":
    main()
