"""The policy `auto`: measure, predict every policy that fits, try the best two, keep the better one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace import api
from headrace.core.algorithm import Algorithm
from headrace.errors import HeadraceError
from headrace.graph import Plan
from headrace.machine import Machine
from headrace.policies import POLICIES
from headrace.trial import try_out
from headrace.tune import node_costs
from headrace.types import tree_bytes

TRIED = 2
"""Policies that are run, of those predicted to be the fastest."""

SECONDS, WARM = 4.0, 2.0
"""How long each of them is run, and before."""

CROSSING = 60e-6
"""Seconds that a hand-over between two processes takes."""

COPYING = 4e9
"""Bytes in a second that one core copies through shared memory."""


@dataclass(frozen=True)
class Candidate:
    """A policy, what it is expected to do, and what it did where it was tried."""

    policy: str
    plan: Plan | None
    expected: float
    why: str
    measured: float | None = None


def choose(
    algorithm: Algorithm[Any],
    env: Any,
    *,
    replicas: int | None = None,
    seconds: float = SECONDS,
    say: Callable[[str], Any] = print,
) -> str:
    """The name of the policy to use, after saying what was measured and why."""
    unit = "env steps/s"
    costs = node_costs(algorithm, env, say)
    found: list[Candidate] = []
    for name in POLICIES:
        try:
            plan = api.plan(algorithm, env, name, replicas=replicas)
        except HeadraceError as error:
            found.append(Candidate(name, None, 0.0, f"refused: {error}"))
            continue
        speed, why = predict(plan, costs, Machine.detect().cores)
        found.append(Candidate(name, plan, speed, why))
    ranked = sorted((one for one in found if one.plan is not None), key=lambda one: -one.expected)
    tried = [_tried(one, algorithm, env, seconds, say) for one in ranked[:TRIED]]
    best = max(tried, key=lambda one: one.measured or 0.0)
    say(_table([*tried, *ranked[TRIED:], *(one for one in found if one.plan is None)], unit))
    say(f"auto: {best.policy}, {best.measured:,.0f} {unit}; {best.why}.")
    return best.policy


def _tried(one: Candidate, algorithm: Algorithm[Any], env: Any, seconds: float, say: Callable[[str], Any]) -> Candidate:
    assert one.plan is not None
    say(f"auto: trying {one.policy} for {seconds:g} s")
    speed = try_out(one.plan, algorithm, env, seconds=seconds, warm=WARM)
    return Candidate(one.policy, one.plan, one.expected, one.why, speed.env_steps)


def predict(plan: Plan, costs: Mapping[str, float], cores: int) -> tuple[float, str]:
    """Environment steps in a second, and what they wait for.

    `costs` are seconds of one core for one environment step: `step`, `act` and `learn`; and of the whole loop on all
    cores, `alone`. Without them a loop that can be one program comes first.
    """
    graph = plan.graph
    if not costs:
        one_program = graph.spec.pure and len(plan.fragments) == 1
        return (2.0 if plan.parts == 1 else 1.5) if one_program else 1.0, "one program, nothing crosses" * one_program
    step, act, learn = costs["step"], costs["act"], costs["learn"]
    alone = costs.get("alone", step + act + learn)
    wide = max(learn / cores, alone - step - act)  # learning with all cores
    per_pass = graph.spec.num_envs * graph.only("env.step").times
    weights = tree_bytes(graph.cells) / COPYING
    rows = tree_bytes(graph.stored) / per_pass / COPYING
    fused = 1 if graph.on_policy else plan.learner.repeat
    crossing = (CROSSING + weights) / (per_pass * fused)
    if plan.parts > 1:
        share = min(plan.parts, cores)
        calls = graph.source.option("epochs") * 8 if graph.on_policy else fused
        gradients = calls * (CROSSING + weights) / (per_pass * fused) if plan.gradients == "reduce" else crossing
        return 1 / ((step + act + learn) / share + gradients), f"{plan.parts} whole loops, gradients cross"
    if plan.remote and plan.loops:
        workers = min(plan.collector.replicas, max(1, cores - 1))
        hand = CROSSING * plan.collector.groups * plan.collector.replicas / graph.spec.num_envs
        overlapped = max(step / workers, act + hand) if plan.collector.groups > 1 else step / workers + act + hand
        return 1 / (overlapped + wide), "environments apart, every step crosses"
    if plan.loops:
        return 1 / alone, "one process, nothing crosses"
    samplers = min(plan.collector.replicas, cores)
    collecting = (step + act) / samplers + rows
    if all(cut.staleness == 0 for cut in plan.cuts):
        return 1 / (collecting + wide + crossing), "collecting and learning in turns"
    if len(plan.learners) > 1:
        # Two learners share the work; the samplers run beside the second one.
        half = learn / len(plan.learners)
        busiest = max(1.12 * half, 0.88 * half + collecting)
        return 1 / (busiest + crossing), "two learners, one of them beside the samplers"
    own, theirs = set(plan.learner.cores), set(plan.collector.cores)
    if own and theirs and not own & theirs:
        return 1 / (max(collecting, learn / len(own)) + crossing), "collecting beside learning, on cores of its own"
    return 1 / ((step + act + learn) / cores + crossing), "collecting beside learning"


def _table(found: list[Candidate], unit: str) -> str:
    rows = [("policy", f"expected {unit}", f"measured {unit}", "")]
    for one in found:
        expected = f"{one.expected:,.0f}" if one.plan is not None else "-"
        rows.append((one.policy, expected, f"{one.measured:,.0f}" if one.measured else "-", one.why))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join("  ".join([*(row[i].ljust(widths[i]) for i in range(3)), row[3]]).rstrip() for row in rows)
