"""A policy of one's own, in a dozen lines: environments, acting and learning each in processes of their own.

    headrace train sac HalfCheetah-v5 --policy examples/inference_server.py:inference_server --replicas 4
    headrace graph sac HalfCheetah-v5 --policy examples/inference_server.py:inference_server

None of the built-in policies splits SAC like this: workers only step environments, one process acts for all of them and
fills the replay store, another one learns. What crosses, and by which channel, follows from the cut.
"""

from headrace.graph import Fragment, Graph, Plan, cut
from headrace.machine import Machine


def inference_server(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """{env} in replicas; {act, store}; {learn}."""
    stepping = tuple(node.id for node in graph.where(kind="env"))
    acting = tuple(node.id for node in graph.where(domain="collect") if node.id not in stepping)
    learning = tuple(node.id for node in graph.where(domain="learn"))
    fragments = (
        Fragment("environments", stepping, replicas=replicas or 1),
        Fragment("acting", acting, device=machine.devices[0]),
        Fragment("learn", learning, device=machine.devices[0]),
    )
    return cut(graph, "inference_server", fragments, staleness=0 if graph.on_policy else 2)
