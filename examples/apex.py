"""Ape-X's layout (Horgan et al., 2018, arXiv:1803.00933) as a policy of one's own: the replay is a process by itself.

    headrace train dqn CartPole-v1 --policy examples/apex.py:apex --replicas 2
    headrace graph dqn CartPole-v1 --policy examples/apex.py:apex

Samplers step and act with weights that may be stale, their transitions stream to the replay, and batches that it draws
stream to the learner. What crosses, and by which channel, follows from the cut.
"""

from headrace.graph import Fragment, Graph, Plan, cut
from headrace.machine import Machine


def apex(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """{env, act} in replicas; {insert, sample}; {learn}."""
    storing = graph.where(role="storing")
    sampling = [node for node in graph.where(domain="collect") if node not in storing]
    learning = [node for node in graph.where(domain="learn") if node not in storing]
    fragments = (
        Fragment("samplers", tuple(node.id for node in sampling), replicas=replicas or 1, device=machine.host),
        Fragment("replay", tuple(node.id for node in storing), device=machine.host),
        Fragment("learner", tuple(node.id for node in learning), device=machine.devices[0]),
    )
    return cut(graph, "apex", fragments, staleness=2 if graph.staleness is None else graph.staleness)
