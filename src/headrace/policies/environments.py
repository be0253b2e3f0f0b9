"""Dedicated environment workers, and a fragment for each agent that learns by itself, as in multi-agent systems."""

from __future__ import annotations

from headrace.graph import Fragment, Graph, Node, Plan, cut, with_computed
from headrace.machine import Machine
from headrace.policies.single_learner_coarse import REPLAY_STALENESS, share
from headrace.policies.single_learner_fine import apart


def environments(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """{env} in replicas; {act, store, learn} where there is one agent, else {act, store} and {learn} of each agent."""
    workers = share(graph.spec.num_envs, machine.cores - 1) if replicas is None else replicas
    agents = independent(graph)
    if len(agents) == 1:
        return apart(graph, machine, "environments", workers, groups=1)
    stepping = tuple(node.id for node in graph.where(kind="env"))
    acting = tuple(node.id for node in graph.where(domain="collect") if node.id not in stepping)
    devices = machine.devices
    fragments = (
        Fragment("environments", stepping, replicas=workers, device=machine.host),
        Fragment("acting", acting, device=devices[0]),
        *(
            Fragment(f"agent_{i}", with_computed(graph, agent), device=devices[i % len(devices)])
            for i, agent in enumerate(agents)
        ),
    )
    return cut(graph, "environments", fragments, staleness=REPLAY_STALENESS if graph.staleness is None else 0)


def independent(graph: Graph) -> list[list[Node]]:
    """The learning stages in independent sets: no set reads or writes a cell that another set writes."""
    sets: list[list[Node]] = []
    for node in graph.where(domain="learn", kind="stage"):
        joined = [held for held in sets if any(_touch(node, other) for other in held)]
        sets = [held for held in sets if held not in joined] + [[*(n for held in joined for n in held), node]]
    return sets


def _touch(one: Node, other: Node) -> bool:
    flows = any(ref.node == one.id for ref in other.sources) or any(ref.node == other.id for ref in one.sources)
    writes = {bound.cell for bound in one.writes}, {bound.cell for bound in other.writes}
    uses = {bound.cell for bound in (*one.reads, *one.writes)}, {bound.cell for bound in (*other.reads, *other.writes)}
    return flows or bool(writes[0] & uses[1]) or bool(writes[1] & uses[0])
