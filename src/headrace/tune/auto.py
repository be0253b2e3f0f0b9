"""The policy `auto`: measure, predict every policy that fits, try the best few, keep one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace import api
from headrace.core.algorithm import Algorithm
from headrace.errors import HeadraceError, PlanError
from headrace.graph import Plan
from headrace.machine import Machine
from headrace.policies import POLICIES
from headrace.tune import node_costs
from headrace.tune.trial import try_out
from headrace.types import tree_bytes

CLOSE, FEWEST, MOST = 0.75, 2, 4
"""Tried are those predicted to be this share of the fastest or more, for the prediction tells no finer: at least so
many, at most so many."""

SECONDS, WARM = 4.0, 2.0
"""How long each of them is run, and before."""

CROSSING = 60e-6
"""Seconds that a hand-over between two processes takes."""

REDUCING = 2e-3
"""Seconds that replicas in processes of one machine take to average a small gradient, beside their work (gloo; 1.2e-3
alone, 2026-11-16)."""

COPYING = 4e9
"""Bytes in a second that one core copies through shared memory."""

NODES = ("step", "act", "learn")
"""What must be measured for a prediction."""


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
    staleness: int | None = None,
    seconds: float = SECONDS,
    say: Callable[[str], Any] = print,
) -> str:
    """The name of the policy to use, after saying what was measured and why."""
    plans: dict[str, Plan] = {}
    refused: list[Candidate] = []
    for name in POLICIES:
        try:
            plans[name] = api.plan(algorithm, env, name, replicas=replicas, staleness=staleness)
        except HeadraceError as error:
            refused.append(Candidate(name, None, 0.0, f"refused: {error}"))
    if not plans:
        raise PlanError(f"no policy fits; {refused[0].policy} was {refused[0].why}")
    costs, cores = node_costs(algorithm, env, say), Machine.detect().cores
    found = [
        Candidate(name, plan, *predict(plan, costs, cores, _updates(algorithm, plan))) for name, plan in plans.items()
    ]
    ranked = sorted(found, key=lambda one: -one.expected)
    close = [one for one in ranked if one.expected >= CLOSE * ranked[0].expected]
    number = min(max(len(close), FEWEST), MOST)
    tried = [_tried(one, algorithm, env, seconds, say) for one in ranked[:number]]
    best = max(tried, key=lambda one: one.measured or 0.0)
    say(_table([*tried, *ranked[number:], *refused], predicted=all(name in costs for name in NODES)))
    say(f"auto: {best.policy}, {best.measured:,.0f} env steps/s; {best.why}.")
    return best.policy


def _tried(one: Candidate, algorithm: Algorithm[Any], env: Any, seconds: float, say: Callable[[str], Any]) -> Candidate:
    assert one.plan is not None
    say(f"auto: trying {one.policy} for {seconds:g} s")
    speed = try_out(one.plan, algorithm, env, seconds=seconds, warm=WARM)
    return replace(one, measured=speed.env_steps)


def _updates(algorithm: Algorithm[Any], plan: Plan) -> int:
    """Steps down a gradient that a learning pass takes."""
    domain, rows = plan.graph.domains[0], plan.graph.collected
    if domain.fused:
        return 1
    return domain.frames // rows * max(1, rows // int(getattr(algorithm.config, "minibatch_size", rows)))


def predict(plan: Plan, costs: Mapping[str, float], cores: int, updates: int = 1) -> tuple[float, str]:
    """Environment steps in a second, and what they wait for.

    `costs` are seconds of one core for one environment step: `step`, `act` and `learn`; and to learn with all cores,
    `wide`. Without them the numbers are a ranking only: a loop that can be one program comes first. `updates`
    are the gradients of a learning pass.
    """
    graph = plan.graph
    if not all(name in costs for name in NODES):
        if graph.spec.pure and len(plan.fragments) == 1:
            return (2.0 if plan.shares == 1 else 1.8), "one program, nothing crosses"
        return 1.0, "not predicted"
    step, act, learn = (costs[name] for name in NODES)
    wide = costs.get("wide", learn / cores**0.5)
    per_pass = graph.collected
    weights = tree_bytes(graph.cells) / COPYING
    rows = sum(tree_bytes(store.row) for store in graph.stores.values()) / COPYING
    fused = plan.learners[0].repeat
    collecting_nodes = {node.id for node in graph.where(domain="collect")}
    apart = not collecting_nodes <= set(plan.collector.nodes)
    whole = len(plan.fragments) == 1 or (apart and len(plan.fragments) == 2)
    crossing = (CROSSING + weights) / (per_pass * fused)
    if plan.shares > 1:
        share = min(plan.shares, cores)
        passes = float(graph.domains[0].rate * per_pass)
        message = REDUCING + weights if plan.gradients == "reduce" else (CROSSING + weights) / share
        crossing = passes * updates * message / per_pass
        return 1 / ((step + act + learn) / share + crossing), f"{plan.shares} whole loops, gradients cross"
    if apart and whole:
        workers = min(plan.collector.replicas, max(1, cores - 1))
        hand = CROSSING * plan.collector.groups * plan.collector.replicas / graph.spec.num_envs
        overlapped = max(step / workers, act + hand) if plan.collector.groups > 1 else step / workers + act + hand
        return 1 / (overlapped + wide), "environments apart, every step crosses"
    if whole:
        return 1 / (step + act + wide), "one process, nothing crosses"
    samplers = min(plan.collector.replicas, cores)
    collecting = (step + act) / samplers + rows
    if all(cut.staleness == 0 for cut in plan.cuts):
        return 1 / (collecting + wide + crossing), "collecting and learning in turns"
    if len(plan.learners) > 1:
        # Two learners share the work; the samplers run where these leave room.
        busiest = max(1.12 * learn / len(plan.learners), (learn + step + act) / cores, collecting)
        return 1 / (busiest + crossing), "two learners, collecting where they leave room"
    own, theirs = set(plan.learners[0].cores), set(plan.collector.cores)
    if own and theirs and not own & theirs:
        return 1 / (max(collecting, learn / len(own)) + crossing), "collecting beside learning, on cores of its own"
    return 1 / ((step + act + learn) / cores + crossing), "collecting beside learning"


def _table(found: list[Candidate], predicted: bool) -> str:
    rows = [("policy", "expected env steps/s", "measured env steps/s", "")]
    for one in found:
        expected = f"{one.expected:,.0f}" if predicted and one.plan is not None else "-"
        rows.append((one.policy, expected, f"{one.measured:,.0f}" if one.measured else "-", one.why))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join("  ".join([*(row[i].ljust(widths[i]) for i in range(3)), row[3]]).rstrip() for row in rows)
