"""Workers compute gradients, each at its own pace, and one fragment applies them, as in A3C and parameter servers."""

from __future__ import annotations

from headrace.compile.gradients import sends_gradients
from headrace.errors import PlanError
from headrace.graph import Fragment, Graph, Plan, cut
from headrace.machine import Machine
from headrace.policies.single_learner_coarse import loops


def central(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """{env, act, store, gradient} in replicas and {apply}: gradients go up, weights come down, a bound behind."""
    for node in graph.where(domain="learn", role="learning"):
        if not sends_gradients(graph, node):
            raise PlanError(
                f"policy 'central' sends one gradient of each cell in a pass, but stage '{node.id}' of "
                f"{graph.algorithm} takes several steps in a pass; use multiple_learners."
            )
    number = loops(graph, machine.cores, batches=False) if replicas is None else replicas
    everything = tuple(node.id for node in graph.nodes)
    fragments = (
        Fragment("work", everything, replicas=number, device=machine.devices[0]),
        Fragment("apply", (), device=machine.devices[0]),
    )
    return cut(graph, "central", fragments, staleness=number, gradients="apply")
