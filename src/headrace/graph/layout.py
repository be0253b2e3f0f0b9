"""layout: where every box, arrow and label of a drawn plan goes.

Fragments stand in columns, in the order data flows. Between two columns is a gutter: lanes on either side and
between them the labels, one above the other. An arrow leaves its node, follows a lane of its own to the height of
its label, and a lane beyond the label to its target. An arrow that would cross a column goes above all columns when
it points right and below them when it points left, with its label in the width of a column. So an arrow may cross
an arrow, but never a label.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from headrace.graph.canvas import (
    Box,
    End,
    Flow,
    Layout,
    Link,
    Point,
    Rect,
    Side,
    lane_width,
    nowhere,
    tag_rows,
    tag_width,
    text_width,
)
from headrace.graph.ir import Edge, Node
from headrace.graph.plan import Cut, Fragment, Plan
from headrace.graph.words import often_words, place_words, shape_words
from headrace.machine import gib

T = TypeVar("T")

Ports = dict[tuple[str, Side], list[tuple[End, int, str]]]

SIDES: tuple[Side, Side] = ("left", "right")
MARGIN, TITLE = 28.0, 100.0
PAD, HEADER = 18.0, 62.0
GAP = 34.0
"""Between two nodes: room for an arrow and two lines beside it."""
LANE, SHOULDER = 13.0, 24.0
PORT = 11.0
"""Between two arrows on one side of a node, at least."""
LABEL_COLUMNS = 28
"""Characters in a line of a label."""
LABEL_GAP = 18.0
CLEAR = 12.0
"""Between the level of a label and an arrow that is not its own: the rounded corners must not touch."""


def layout(plan: Plan, width: float) -> Layout:
    """Place a plan, in at least this width."""
    columns = _columns(plan, {fragment.id: _box(plan, fragment) for fragment in plan.fragments})
    where = {node.id: i for i, column in enumerate(columns) for box in column for node in box.nodes}
    edges = {(edge.source, edge.target, edge.what): edge for edge in plan.graph.edges}
    links = [_link(cut, edges.get((cut.source, cut.target, cut.what)), where) for cut in plan.cuts]
    drawn = Layout(columns, links)
    above = _rows(link for link in links if link.rising)
    top = TITLE + sum(map(_row_height, above))
    centres = _place_columns(drawn, width)
    ports = _ports(drawn)
    _place_nodes(drawn, ports, top)
    _place_ports(drawn, ports)
    bottom = max(box.rect.bottom for box in drawn.boxes)
    for gutter in range(len(columns)):
        bottom = max(bottom, _place_labels(drawn, gutter, top))
    _place_rows(above[::-1], TITLE, centres)
    below = _rows(link for link in links if link.over and not link.rising)
    drawn.height = _place_rows(below, bottom + LABEL_GAP, centres)
    _route(drawn)
    return drawn


def _box(plan: Plan, fragment: Fragment) -> Box:
    nodes = [plan.graph.by_id[node] for node in fragment.nodes if node in plan.graph.by_id]
    rows = {node.id: i for i, node in enumerate(nodes)}
    merged: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for edge in plan.graph.edges:
        if edge.source in rows and edge.target in rows and edge.source != edge.target:
            merged[edge.source, edge.target, edge.kind].append(edge.what)
    flows = [_flow(kind, names, rows, *ends) for (*ends, kind), names in merged.items()]
    lanes: dict[Side, list[list[Flow]]] = {"left": [], "right": []}
    for flow in sorted(flows, key=lambda flow: abs(rows[flow.source.node] - rows[flow.target.node])):
        if not flow.down:
            _pack(lanes[flow.source.side], flow, lambda flow: sorted((rows[flow.source.node], rows[flow.target.node])))
    beside = [2 * (flow.label.w + 12) for flow in flows if flow.down]
    return Box(fragment, nodes, flows, lanes, max([140.0, *map(_node_width, nodes), *beside]))


def _flow(kind: str, names: list[str], rows: dict[str, int], source: str, target: str) -> Flow:
    lines = names if len(names) < 3 else [names[0], f"+{len(names) - 1} more"]
    label = Rect(0, 0, max(text_width(line, 10) for line in lines) + 6, 12.0 * len(lines) + 2)
    side: Side = "left" if rows[source] < rows[target] else "right"
    return Flow(kind, lines, End(source, side), End(target, side), rows[target] == rows[source] + 1, label)


def _pack(lanes: list[list[T]], item: T, span: Callable[[T], list[int]]) -> None:
    """Put an item in the first lane that is free along its span."""
    low, high = span(item)
    for lane in lanes:
        if all(high < span(other)[0] or span(other)[1] < low for other in lane):
            lane.append(item)
            return
    lanes.append([item])


def _node_width(node: Node) -> float:
    title = text_width(node.id, 12) + 24 + (text_width(often_words(node), 10) + 14 if often_words(node) else 0)
    return max([title, *(sum(tag_width(cell) + 5 for cell, _ in row) + 19 for row in tag_rows(node))])


def _columns(plan: Plan, boxes: dict[str, Box]) -> list[list[Box]]:
    """Fragments by how far data has come to reach them; those that only read cells come after the writers."""
    order = [fragment.id for fragment in plan.fragments]
    before: dict[str, dict[bool, set[str]]] = {name: {False: set(), True: set()} for name in order}
    for edge in plan.graph.edges:
        source, target = plan.fragment_of[edge.source].id, plan.fragment_of[edge.target].id
        if order.index(source) < order.index(target):
            before[target][edge.kind == "cell"].add(source)
    level: dict[str, int] = {}
    for name in order:
        feeding = before[name][False] or before[name][True]
        level[name] = 1 + max((level[other] for other in feeding), default=-1)
    # A service without nodes touches no edge; it stands with what comes last.
    last = max(level.values())
    columns: list[list[Box]] = [[] for _ in range(last + 1)]
    for name in order:
        columns[level[name] if boxes[name].nodes else last].append(boxes[name])
    return [column for column in columns if column]


def _link(cut: Cut, edge: Edge | None, where: dict[str, int]) -> Link:
    begin, end = where[cut.source], where[cut.target]
    source = End(cut.source, "left", begin - 1) if end < begin else End(cut.source, "right", begin)
    target = End(cut.target, "left", end - 1) if begin < end else End(cut.target, "right", end)
    size = gib(edge.bytes) if edge else ""
    lines = _filled(shape_words(edge)) if edge else []
    made = Link(cut, edge.kind if edge else "data", size, lines, source, target, _over(begin, end), nowhere())
    head = text_width(cut.what, 12) + text_width(size, 10) + 14
    made.label.w = 20 + max([head, text_width(made.pill, 10) + 14, *(text_width(line, 10) for line in lines)])
    made.label.h = 54 + 13.0 * len(lines)
    return made


def _over(begin: int, end: int) -> range:
    return range(min(begin, end) + 1, max(begin, end))


def _filled(words: list[str]) -> list[str]:
    """Words in lines, broken only between them."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) + 2 <= LABEL_COLUMNS:
            lines[-1] += f", {word}"
        else:
            lines.append(word)
    return lines


def _rows(links: Iterable[Link]) -> list[list[Link]]:
    """The cut edges that pass the columns, the shortest first, those that do not meet in one row."""
    rows: list[list[Link]] = []
    for link in sorted(links, key=lambda link: len(link.over)):
        _pack(rows, link, lambda link: [link.over[0] - 1, link.over[-1]])
    return rows


def _row_height(row: list[Link]) -> float:
    return max(link.label.h for link in row) + LABEL_GAP


def _place_rows(rows: list[list[Link]], y: float, centres: list[float]) -> float:
    for row in rows:
        for link in row:
            link.label.x = centres[link.over[len(link.over) // 2]] - link.label.w / 2
            link.label.y = y
        y += _row_height(row)
    return y


def _place_columns(drawn: Layout, width: float) -> list[float]:
    """Give every column its width and every gutter room for its lanes and labels; return the columns' centres."""
    over = [[link.label.w for link in drawn.links if i in link.over] for i in range(len(drawn.columns))]
    widths = [max([*map(_box_width, column), *over[i]]) for i, column in enumerate(drawn.columns)]
    gutters = [_gutter_width(drawn, i) for i in range(len(drawn.columns))]
    content = sum(widths) + sum(gutters)
    drawn.width = max(width, content + 2 * MARGIN)
    x = (drawn.width - content) / 2
    centres = []
    for column, w, gutter in zip(drawn.columns, widths, gutters, strict=True):
        for box in column:
            box.rect.x, box.rect.w = x, w
        centres.append(x + w / 2)
        x += w + gutter
    return centres


def _box_width(box: Box) -> float:
    title = text_width(box.fragment.id, 15) + 70
    return 2 * PAD + max(box.inner_width, title, text_width(place_words(box.fragment, " · "), 11))


def _gutter_width(drawn: Layout, gutter: int) -> float:
    labels = [link.label.w for link in drawn.labelled(gutter)]
    lanes = len(drawn.ends(gutter, "left")) + len(drawn.ends(gutter, "right"))
    if not lanes:
        return 48.0 if gutter + 1 < len(drawn.columns) else 0.0
    return 2 * SHOULDER + LANE * lanes + max(labels, default=0.0)


def _place_nodes(drawn: Layout, ports: Ports, top: float) -> None:
    """Stack fragments in their column and nodes in their fragment; short columns stand in the middle."""
    heights = {node.id: _node_height(ports, node) for box in drawn.boxes for node in box.nodes}
    for box in drawn.boxes:
        nodes = sum(heights[node.id] for node in box.nodes) + GAP * max(0, len(box.nodes) - 1)
        box.rect.h = HEADER + nodes + PAD * bool(nodes)
    totals = [sum(box.rect.h for box in column) + 2 * GAP * (len(column) - 1) for column in drawn.columns]
    for column, total in zip(drawn.columns, totals, strict=True):
        y = top + (max(totals) - total) / 2
        for box in column:
            box.rect.y = y
            _stack_nodes(drawn, box, heights)
            y += box.rect.h + 2 * GAP


def _stack_nodes(drawn: Layout, box: Box, heights: dict[str, float]) -> None:
    y = box.rect.y + HEADER
    x = box.rect.x + (box.rect.w - box.inner_width) / 2 + box.margin("left")
    for node in box.nodes:
        drawn.nodes[node.id] = Rect(x, y, box.node_width, heights[node.id])
        y += heights[node.id] + GAP


def _node_height(ports: Ports, node: Node) -> float:
    most = max(len(ports[node.id, side]) for side in SIDES)
    return max(34 + 21.0 * len(tag_rows(node)), PORT * (most + 1))


def _ports(drawn: Layout) -> Ports:
    """What touches each side of each node: the end, which way it leaves the columns, and the node at its other end."""
    ports: Ports = defaultdict(list)
    arrows = [(flow.source, flow.target, 0) for box in drawn.boxes for flow in box.flows if not flow.down]
    arrows += [(link.source, link.target, (1 - 2 * link.rising) * bool(link.over)) for link in drawn.links]
    for source, target, way in arrows:
        ports[source.node, source.side].append((source, way, target.node))
        ports[target.node, target.side].append((target, way, source.node))
    return ports


def _place_ports(drawn: Layout, ports: Ports) -> None:
    """Spread ports over the side of their node, in the order of where they lead."""
    for (node, _), touching in ports.items():
        rect = drawn.nodes[node]
        touching.sort(key=lambda port: (port[1], drawn.nodes[port[2]].middle))
        for i, (end, _, _) in enumerate(touching):
            end.y = rect.y + rect.h * (i + 1) / (len(touching) + 1)


def _place_labels(drawn: Layout, gutter: int, top: float) -> float:
    """Stack the labels of a gutter near the middle of their arrows; return where they end."""
    links = sorted(drawn.labelled(gutter), key=_wish)
    if not links:
        return top
    left = drawn.columns[gutter][0].rect.right + SHOULDER + LANE * len(drawn.ends(gutter, "right"))
    width = max(link.label.w for link in links)
    y = -math.inf
    for link in links:
        link.label.x, link.label.w = left, width
        link.label.y = max(_wish(link) - link.label.h / 2, y)
        y = link.label.bottom + LABEL_GAP
    shift = sum(_wish(link) - link.label.middle for link in links) / len(links)
    y = top
    for link in links:
        link.label.y = max(link.label.y + shift, y)
        _settle(drawn, gutter, link, y)
        y = link.label.bottom + LABEL_GAP
    return y - LABEL_GAP


def _wish(link: Link) -> float:
    return (link.source.y + link.target.y) / 2


def _settle(drawn: Layout, gutter: int, link: Link, lowest: float) -> None:
    """Make an arrow straight where its label is nearly level with a port, and keep it off every other port's level."""
    for end in (link.source, link.target):
        step = end.y - link.label.middle
        if abs(step) < LANE and link.label.y + step >= lowest and not link.same_side:
            link.label.y += step
            break
    others = [e for side in SIDES for e in drawn.ends(gutter, side) if e is not link.source and e is not link.target]
    while any(abs(end.y - level) < CLEAR for end in others for level in link.levels):
        link.label.y += 2


def _route(drawn: Layout) -> None:
    for link in drawn.links:
        _aim(link)
    for gutter, column in enumerate(drawn.columns):
        after = drawn.columns[gutter + 1][0].rect.x if gutter + 1 < len(drawn.columns) else 0.0
        for i, end in enumerate(_untangled(drawn.ends(gutter, "right"))):
            end.lane = column[0].rect.right + SHOULDER + LANE * i
        for i, end in enumerate(_untangled(drawn.ends(gutter, "left"))):
            end.lane = after - SHOULDER - LANE * i
    for link in drawn.links:
        link.points = [_way(drawn, link.source), _way(drawn, link.target)[::-1]]
    for box in drawn.boxes:
        _route_down(drawn, box)
        _route_beside(drawn, box)


def _aim(link: Link) -> None:
    """Point both ends at the label, at the level of their port where that is near: the arrow is then straight."""
    for end, level in zip(sorted((link.source, link.target), key=lambda end: end.y), link.levels, strict=True):
        x = link.label.right if end.side == "left" else link.label.x
        end.goal = (x, end.y if abs(end.y - level) < 8 else level)


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


def _way(drawn: Layout, end: End) -> list[Point]:
    rect = drawn.nodes[end.node]
    x = rect.x if end.side == "left" else rect.right
    return [(x, end.y), (end.lane, end.y), (end.lane, end.goal[1]), end.goal]


def _route_down(drawn: Layout, box: Box) -> None:
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


def _route_beside(drawn: Layout, box: Box) -> None:
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
