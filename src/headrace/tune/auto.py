"""The policy `auto`: measure, predict every policy that fits, try the best few, keep one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from headrace.api import distribute, trace
from headrace.core.algorithm import Algorithm
from headrace.errors import HeadraceError, PlanError
from headrace.graph import Graph, Plan
from headrace.machine import Machine
from headrace.policies import POLICIES
from headrace.tune import node_costs
from headrace.tune.choice import Choice
from headrace.tune.model import Costs, Terms, load
from headrace.tune.tell import limit
from headrace.tune.trial import try_out

CLOSE, FEWEST, MOST = 0.75, 2, 4
"""Tried are those predicted to be this share of the fastest or more, for the prediction tells no finer: at least so
many, at most so many."""

SECONDS, WARM = 4.0, 2.0
"""How long each of them is run, and before."""


@dataclass(frozen=True)
class Candidate:
    """A policy, what it is expected to do, and what it did where it was tried."""

    policy: str
    expected: float
    """0 where it is refused."""
    why: str
    measured: float | None = None


def choose(
    algorithm: Algorithm[Any],
    env: Any,
    graph: Graph | None = None,
    *,
    replicas: int | None = None,
    staleness: int | None = None,
    seconds: float = SECONDS,
    say: Callable[[str], Any] = print,
) -> str:
    """The name of the policy to use, after saying what was measured and why."""
    graph = graph or trace(algorithm, env)
    plans: dict[str, Plan] = {}
    refused: list[Candidate] = []
    for name in POLICIES:
        try:
            plans[name] = distribute(graph, name, replicas, staleness)
        except HeadraceError as error:
            refused.append(Candidate(name, 0.0, f"refused: {error}"))
    if not plans:
        raise PlanError(f"no policy fits; {refused[0].policy} was {refused[0].why}")
    costs, machine = node_costs(algorithm, env, graph, say), Machine.detect()
    found = [Candidate(name, *predict(plan, costs, machine)) for name, plan in plans.items()]
    ranked = sorted(found, key=lambda one: -one.expected)
    close = [one for one in ranked if one.expected >= CLOSE * ranked[0].expected]
    number = min(max(len(close), FEWEST), MOST)
    tried = []
    for one in ranked[:number]:
        say(f"auto: trying {one.policy} for {seconds:g} s")
        speed = try_out(plans[one.policy], algorithm, env, seconds=seconds, warm=WARM)
        tried.append(replace(one, measured=speed.env_steps))
    best = max(tried, key=lambda one: one.measured or 0.0)
    say(_table([*tried, *ranked[number:], *refused], predicted=bool(costs.collect and costs.learn)))
    say(f"auto: {best.policy}, {best.measured:,.0f} env steps/s; {best.why}.")
    return best.policy


def predict(plan: Plan, costs: Costs, machine: Machine) -> tuple[float, str]:
    """Environment steps in a second, and what they wait for.

    Where nothing was measured the numbers are a ranking only: a loop that can be one program comes first.
    """
    if not (costs.collect and costs.learn):
        if plan.one_program:
            return (2.0 if plan.shares == 1 else 1.8), "one program, nothing crosses"
        return 1.0, "not predicted"
    terms = Terms.of(plan, machine)
    found = load(Choice.of(plan), terms, costs)
    assert found is not None, "what was measured of the whole does for every plan"
    return found.throughput * costs.given / terms.per_insert, limit(terms, found)


def _table(found: list[Candidate], predicted: bool) -> str:
    rows = [("policy", "expected env steps/s", "measured env steps/s", "")]
    for one in found:
        expected = f"{one.expected:,.0f}" if predicted and one.expected else "-"
        rows.append((one.policy, expected, f"{one.measured:,.0f}" if one.measured else "-", one.why))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join("  ".join([*(row[i].ljust(widths[i]) for i in range(3)), row[3]]).rstrip() for row in rows)
