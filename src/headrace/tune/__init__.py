"""The tuner: measures an algorithm, an environment and a machine, and chooses how to run them.

choice = tune(SAC(), "HalfCheetah-v5", "desktop", machine)
made = choice.settle(SAC())
plan = choice.place(headrace.plan(made, "HalfCheetah-v5", "desktop", replicas=choice.replicas))
"""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.api import trace
from headrace.core.algorithm import Algorithm
from headrace.envs import env_id
from headrace.errors import UsageError, nearest
from headrace.graph import Graph, Plan, fuse, verify, with_staleness
from headrace.machine import Machine
from headrace.policies import POLICIES
from headrace.runtimes.boot import WORKER
from headrace.tune import tell
from headrace.tune.cache import cached, remember
from headrace.tune.choice import Choice
from headrace.tune.measure import measured
from headrace.tune.model import Costs, Terms, load
from headrace.tune.search import Freedom, choose
from headrace.tune.tasks import tasks, waves

__all__ = ["Choice", "cached", "node_costs", "remember", "tune"]

MARGIN = 0.7
"""Seconds of the time given that are kept for ending the probes and choosing."""


def tune(
    algorithm: Algorithm[Any],
    env: Any,
    policy: str,
    machine: Machine,
    *,
    seconds: float = 20.0,
    replicas: int | None = None,
    staleness: int | None = None,
    graph: Graph | None = None,
    say: Callable[[str], Any] = print,
) -> Choice:
    """Measure for at most so many seconds, choose, say why, and remember the choice for `cached`.

    What the user set stays: `replicas`, and `num_envs` where it is not the default of its config. So does num_envs of
    an on-policy loop, because learning depends on it, and `batch_size` unless `tune_batch_size` is set. If there is
    nothing to choose or too little could be measured, the choice is what the policy does by itself, `expected` None.
    """
    began = time.monotonic()
    if WORKER in os.environ:
        raise UsageError(
            "tune was called while a probe loads your script; put the call under: if __name__ == '__main__'."
        )
    if policy not in POLICIES:
        raise UsageError(f"there is no policy '{policy}'{nearest(policy, POLICIES)} (known: {', '.join(POLICIES)}).")
    if not seconds > 0:
        raise UsageError(f"the tuner needs some seconds, got {seconds:g}.")
    plan = POLICIES[policy](graph or trace(algorithm, env), machine, replicas)
    plan = verify(fuse(plan if staleness is None else with_staleness(plan, staleness)), machine)
    usual = Choice.of(plan)
    what = f"{algorithm.name} on {env_id(env)}, {policy} policy, {machine.cores} cores"
    if not _understood(plan):
        say(f"{what}: nothing to choose; it runs as it is.")
        return usual
    say(f"{what}: measuring for up to {seconds:g} s.")
    terms = Terms.of(plan, machine)
    freedom = Freedom(
        envs=usual.fused and algorithm.config.num_envs == algorithm.config_type().num_envs,
        replicas=replicas is None and not terms.alone,
        memory=machine.memory / 4,
    )
    groups = waves(tasks(algorithm, env, plan, terms, freedom))
    costs, troubles = measured(groups, began + max(0.0, seconds - MARGIN))
    if costs.collect or costs.learn:
        say(tell.tables(terms, costs))
    chosen = choose(usual, terms, costs, freedom)
    found = None if chosen is None else load(chosen, terms, costs)
    if chosen is None or found is None:
        say(textwrap.fill(_too_little(costs, seconds, usual, troubles), tell.WIDTH))
        return usual
    say(tell.sentence(chosen, terms, found, costs.given))
    remember(chosen, algorithm, env, policy, machine, replicas, staleness)
    return chosen


def node_costs(
    algorithm: Algorithm[Any], env: Any, graph: Graph, say: Callable[[str], Any] = print, seconds: float = 20.0
) -> Costs:
    """What collecting costs a core, and all of learning with one thread and with a thread for every core: for `load` of
    any plan. Empty where it could not be measured."""
    began, machine = time.monotonic(), Machine.detect()
    if graph.spec.pure:
        return Costs({}, {})  # one program, whose nodes cannot be told apart
    say(f"{algorithm.name} on {env_id(env)}: measuring for up to {seconds:g} s.")
    plan = fuse(POLICIES["desktop"](graph, machine, None))
    freedom = Freedom(envs=False, replicas=True)
    sampler, learner, *_ = tasks(algorithm, env, plan, Terms.of(plan, machine), freedom)
    everyone = replace(learner, threads=machine.cores, cores=tuple(range(machine.cores)))
    costs, _ = measured(waves([sampler, learner, everyone]), began + seconds - MARGIN)
    return replace(costs, whole=True)


def _too_little(costs: Costs, seconds: float, usual: Choice, troubles: list[str]) -> str:
    """What was not measured and why, and what is used in its place."""
    if troubles:
        return f"it could not be measured ({troubles[0]}); it runs as the policy has it: {usual}."
    missing = [name for name, found in (("collecting", costs.collect), ("learning", costs.learn)) if not found]
    what = " and ".join(missing) or "one of the learners"
    return (
        f"{seconds:g} s were not enough to measure {what}, so it runs as the policy has it: {usual}. What was compiled "
        "is kept, so the next run measures sooner; `headrace tune --seconds 60` gives it more time."
    )


def _understood(plan: Plan) -> bool:
    """Whether the plan is one host process, or a fragment that collects beside others that learn."""
    if len(plan.fragments) == 1:
        return not plan.graph.spec.pure  # one XLA program, environments included: nothing stands beside another
    return plan.beside and len(plan.graph.domains) == 1
