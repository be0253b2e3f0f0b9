"""Everything in one place, one thing after the other, as in CleanRL and Stable-Baselines3."""

from __future__ import annotations

from headrace.errors import PlanError
from headrace.graph import Fragment, Graph, Plan, cut
from headrace.machine import Machine


def single(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """Everything in one fragment: nothing crosses."""
    if replicas not in (None, 1):
        raise PlanError(f"policy 'single' has one replica of everything, got {replicas}; use single_learner_coarse.")
    everything = tuple(node.id for node in graph.nodes)
    return cut(graph, "single", (Fragment("all", everything, device=machine.devices[0]),), staleness=0)
