"""Environments on workers of their own, acting batched where learning is, as in SEED RL."""

from __future__ import annotations

from headrace.graph import Fragment, Graph, Plan, cut
from headrace.machine import Machine
from headrace.policies.single_learner_coarse import share


def single_learner_fine(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """{env} in replicas and {act, store, learn}: observations and actions cross at every step, weights never do."""
    envs = graph.spec.num_envs
    workers = share(envs, machine.cores - 1) if replicas is None else replicas
    halves = 2 if workers > 0 and envs % (2 * workers) == 0 else 1
    return apart(graph, machine, "single_learner_fine", workers, halves)


def apart(graph: Graph, machine: Machine, policy: str, workers: int, groups: int) -> Plan:
    """A plan with the environments in a fragment of their own."""
    stepping = tuple(node.id for node in graph.where(kind="env"))
    rest = tuple(node.id for node in graph.nodes if node.id not in stepping)
    fragments = (
        Fragment("environments", stepping, replicas=workers, device=machine.host, groups=groups),
        Fragment("learn", rest, device=machine.devices[0]),
    )
    return cut(graph, policy, fragments, staleness=0)
