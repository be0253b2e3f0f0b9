"""A plan as it is shown where several fragments compute the same pure stage: each has a copy of its own."""

from __future__ import annotations

from dataclasses import replace

from headrace.graph.ir import Edge
from headrace.graph.plan import Fragment, Plan


def with_copies(plan: Plan) -> Plan:
    """The plan with a node for every copy of a stage, called `relabel (copy)`, so that each has one fragment."""
    copies = [(f, node) for f in plan.fragments for node in f.nodes if plan.fragment_of[node] is not f]
    if not copies:
        return plan

    def shown(node: str, fragment: Fragment) -> str:
        """What a node is called in a fragment that has it, or else where it is at home."""
        number = [own for own, name in copies if name == node].index(fragment) if (fragment, node) in copies else -1
        return node if number < 0 else f"{node} (copy{f' {number + 1}' if number else ''})"

    graph = plan.graph
    fragments = tuple(replace(f, nodes=tuple(shown(node, f) for node in f.nodes)) for f in plan.fragments)
    nodes = [replace(graph.by_id[node], id=shown(node, f)) for f, node in copies]
    edges: list[Edge] = []
    for edge in graph.edges:
        for fragment in (f for f in plan.fragments if edge.target in f.nodes):
            edges.append(replace(edge, source=shown(edge.source, fragment), target=shown(edge.target, fragment)))
    whole = replace(graph, nodes=(*graph.nodes, *nodes), edges=tuple(edges))
    cuts = [
        replace(cut, target=shown(cut.target, f))
        for cut in plan.cuts
        for f in plan.fragments
        if cut.target in f.nodes and (cut.source not in f.nodes or cut.source == cut.target)
    ]
    return replace(plan, graph=whole, fragments=fragments, cuts=tuple(cuts))
