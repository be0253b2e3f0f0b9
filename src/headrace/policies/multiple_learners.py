"""The whole loop in replicas whose gradients are averaged, as in DD-PPO."""

from __future__ import annotations

from headrace.graph import Fragment, Graph, Plan, cut
from headrace.machine import Machine
from headrace.policies.single_learner_coarse import loops


def multiple_learners(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """{everything} in replicas: each has its part of environments, store and batch; gradients are reduced."""
    number = loops(graph, machine.cores, batches=True) if replicas is None else replicas
    everything = tuple(node.id for node in graph.nodes)
    whole = Fragment("loop", everything, replicas=number, device=machine.devices[0])
    return cut(graph, "multiple_learners", (whole,), staleness=0, gradients="reduce")
