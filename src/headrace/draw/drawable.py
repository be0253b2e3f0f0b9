"""A plan prepared for drawing: copies of a stage, and applying gradients, become nodes of their own."""

from __future__ import annotations

from dataclasses import replace

from headrace.graph.ir import Edge, Node
from headrace.graph.plan import Cut, Fragment, Plan

APPLY = "apply gradients"
"""The drawn node of a fragment that only applies gradients."""


def drawable(plan: Plan) -> Plan:
    """The plan with a node for every copy of a stage, and one for applying gradients.

    Edges go to that one from where gradients are made, and back with the changed cells.
    """
    plan = _with_copies(plan)
    applying = [fragment for fragment in plan.fragments if not fragment.nodes]
    sent = [cut for cut in plan.cuts if cut.channel == "apply"]
    if not (applying and sent):
        return plan
    graph, edges, up, down = plan.graph, list(plan.graph.edges), list[Cut](), list[Cut]()
    for cut in sent:
        cells = [bound.cell for bound in graph.by_id[cut.source].writes]
        what = ", ".join(cells)
        edges.append(Edge(APPLY, cut.source, what, {name: graph.cells[name] for name in cells}, "cell"))
        up.append(replace(cut, target=APPLY))
        down.append(replace(cut, source=APPLY, what=what))
    written = tuple(bound for cut in sent for bound in graph.by_id[cut.source].writes)
    node = Node(APPLY, "stage", APPLY, (), (), writes=written, role="learning", domain="learn")
    fragments = tuple(replace(one, nodes=(APPLY,)) if one is applying[0] else one for one in plan.fragments)
    rest = (cut for cut in plan.cuts if cut not in sent)
    whole = replace(graph, nodes=(*graph.nodes, node), edges=tuple(edges))
    return replace(plan, graph=whole, fragments=fragments, cuts=(*rest, *up, *down))


def _with_copies(plan: Plan) -> Plan:
    """Give each fragment that computes the same pure stage a node of its own, named `relabel (copy)`."""
    copies = [(f, node) for f in plan.fragments for node in f.nodes if plan.fragment_of[node] is not f]
    if not copies:
        return plan

    def name(node: str, fragment: Fragment) -> str:
        """The name of a node in a fragment that has it, or else in its first fragment."""
        number = [own for own, copy in copies if copy == node].index(fragment) if (fragment, node) in copies else -1
        return node if number < 0 else f"{node} (copy{f' {number + 1}' if number else ''})"

    graph = plan.graph
    fragments = tuple(replace(f, nodes=tuple(name(node, f) for node in f.nodes)) for f in plan.fragments)
    nodes = [replace(graph.by_id[node], id=name(node, f)) for f, node in copies]
    edges: list[Edge] = []
    for edge in graph.edges:
        for fragment in (f for f in plan.fragments if edge.target in f.nodes):
            edges.append(replace(edge, source=name(edge.source, fragment), target=name(edge.target, fragment)))
    whole = replace(graph, nodes=(*graph.nodes, *nodes), edges=tuple(edges))
    cuts = [
        replace(cut, target=name(cut.target, f))
        for cut in plan.cuts
        for f in plan.fragments
        if cut.target in f.nodes and (cut.source not in f.nodes or cut.source == cut.target)
    ]
    return replace(plan, graph=whole, fragments=fragments, cuts=tuple(cuts))
