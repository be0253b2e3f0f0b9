"""An inference server as a policy of one's own: acting by itself, batched over all environments, as in SEED RL.

    headrace train sac HalfCheetah-v5 --policy examples/inference_server.py:inference_server --replicas 4
    headrace graph sac HalfCheetah-v5 --policy examples/inference_server.py:inference_server

None of the built-in policies splits a loop like this: workers only step environments, one process acts for all of them,
another one keeps what both hand over, and another one learns. Nodes are found by their roles, so it fits any algorithm;
what crosses, and by which channel, follows from the cut.
"""

from headrace.graph import Fragment, Graph, Plan, cut
from headrace.machine import Machine


def inference_server(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """{env} in replicas; {act}; {store}; {learn}."""
    stepping, storing = graph.where(role="environment"), graph.where(role="storing", domain="collect")
    acting = [node for node in graph.where(domain="collect") if node not in (*stepping, *storing)]
    fragments = (
        Fragment("environments", tuple(node.id for node in stepping), replicas=replicas or 1, device=machine.host),
        Fragment("acting", tuple(node.id for node in acting), device=machine.devices[0]),
        Fragment("storing", tuple(node.id for node in storing), device=machine.host),
        Fragment("learning", tuple(node.id for node in graph.where(domain="learn")), device=machine.devices[0]),
    )
    return cut(graph, "inference_server", fragments, staleness=2 if graph.staleness is None else graph.staleness)
