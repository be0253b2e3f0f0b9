"""routes: the lanes that arrows follow, and the points of each arrow."""

from __future__ import annotations

import itertools
from collections import defaultdict

from headrace.draw.canvas import Drawing, End, Flow, FragmentBox, Link, Point, Side, lane_width

SIDES: tuple[Side, Side] = ("left", "right")
GAP = 34.0
"""Between two nodes: room for an arrow and two lines beside it."""
LANE, SHOULDER = 13.0, 24.0
"""Between two lanes, and between these and a column."""
APART = 16.0
"""Between two arrows on one lane, one above the other: room for both rounded corners."""


def route(drawn: Drawing) -> None:
    """Give every arrow its points."""
    for gutter, column in enumerate(drawn.columns):
        after = drawn.columns[gutter + 1][0].rect.x if gutter + 1 < len(drawn.columns) else 0.0
        for end in drawn.ends(gutter, "right"):
            end.lane = column[0].rect.right + SHOULDER + LANE * end.lane
        for end in drawn.ends(gutter, "left"):
            end.lane = after - SHOULDER - LANE * end.lane
    for link in drawn.links:
        link.points = [_way(drawn, link.source), _way(drawn, link.target)[::-1]]
    for box in drawn.boxes:
        _route_down(drawn, box)
        _route_beside(drawn, box)


def aim(link: Link) -> None:
    """Point both ends at the label, at the level of their port where that is near: the arrow is then straight."""
    for end, level in zip(sorted((link.source, link.target), key=lambda end: end.y), link.levels, strict=True):
        end.goal = (0.0, end.y if abs(end.y - level) < 8 else level)


def take_lanes(ends: list[End]) -> int:
    """Number the lanes of ends from the node outwards, sharing lanes where ends do not overlap; return how many."""
    taken: list[End] = []
    for end in _untangled(ends):
        low, high = sorted((end.y, end.goal[1]))
        if low < high:  # a straight one follows no lane
            met = (
                one for one in taken if low - APART < max(one.y, one.goal[1]) and min(one.y, one.goal[1]) < high + APART
            )
            end.lane = 1 + max((one.lane for one in met), default=-1)
            taken.append(end)
    return 1 + int(max((end.lane for end in ends), default=-1))


def _untangled(ends: list[End]) -> list[End]:
    """Ends in the order of their lanes, from the node outwards, each put where it crosses least."""
    order: list[End] = []
    for end in ends:
        order = min(([*order[:i], end, *order[i:]] for i in range(len(order) + 1)), key=_crossings)
    return order


def _crossings(ends: list[End]) -> int:
    def within(y: float, end: End) -> bool:
        return min(end.y, end.goal[1]) < y < max(end.y, end.goal[1])

    return sum(within(far.y, near) + within(near.goal[1], far) for near, far in itertools.combinations(ends, 2))


def _way(drawn: Drawing, end: End) -> list[Point]:
    rect = drawn.nodes[end.node]
    x = rect.x if end.side == "left" else rect.right
    return [(x, end.y), (end.lane, end.y), (end.lane, end.goal[1]), end.goal]


def _route_down(drawn: Drawing, box: FragmentBox) -> None:
    """Arrows from a node to the next one, in the gap between them, with their words to the right."""
    beside: dict[str, list[Flow]] = defaultdict(list)
    for flow in box.flows:
        if flow.down:
            beside[flow.source.node].append(flow)
    for node, flows in beside.items():
        rect, step = drawn.nodes[node], box.node_width / (len(flows) + 1)
        for i, flow in enumerate(flows):
            x = rect.x + step * (i + 1)
            flow.points = [(x, rect.bottom), (x, rect.bottom + GAP)]
            flow.label.x, flow.label.y = x + 6, rect.bottom + (GAP - flow.label.h) / 2


def _route_beside(drawn: Drawing, box: FragmentBox) -> None:
    """Arrows along the sides of the nodes, with their words on the lane, between two nodes."""
    rows = [drawn.nodes[node.id] for node in box.nodes]
    places = {node.id: i for i, node in enumerate(box.nodes)}
    for side, sign in zip(SIDES, (-1, 1), strict=True):
        reach = 6.0
        for lane in box.lanes[side]:
            for flow in lane:
                edge = rows[0].right if sign > 0 else rows[0].x
                x = edge + sign * (reach + lane_width(lane) / 2)
                flow.points = [(edge, flow.source.y), (x, flow.source.y), (x, flow.target.y), (edge, flow.target.y)]
                gap = (places[flow.source.node] + places[flow.target.node] - 1) // 2
                flow.label.x = x - flow.label.w / 2
                flow.label.y = (rows[gap].bottom + rows[gap + 1].y - flow.label.h) / 2
            reach += lane_width(lane)
