"""Dedicated environment workers, and a fragment for each agent that learns by itself, as in multi-agent systems."""

from __future__ import annotations

from headrace.graph import Fragment, Graph, Node, Plan, cut
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
    learning = {node.id for agent in agents for node in agent}
    # What takes from the store stands with the first agent; the others take their own.
    rest = tuple(node.id for node in graph.where(domain="learn") if node.id not in learning)
    devices = machine.devices
    fragments = (
        Fragment("environments", stepping, replicas=workers, device=machine.host),
        Fragment("acting", acting, device=devices[0]),
        *(
            Fragment(
                f"agent_{i}",
                (*(rest if i == 0 else ()), *(node.id for node in agent)),
                device=devices[i % len(devices)],
            )
            for i, agent in enumerate(agents)
        ),
    )
    return cut(graph, "environments", fragments, staleness=0 if graph.on_policy else REPLAY_STALENESS)


def independent(graph: Graph) -> list[list[Node]]:
    """The learning stages in sets of which none reads or writes a cell that another one writes."""
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
