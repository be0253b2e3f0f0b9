"""layout: where every box, arrow and label of a drawn plan goes.

Fragments stand in columns, in the order data flows; where that is too wide for a page, neighbouring columns become
one. Between two columns is a gutter: lanes on either side and between them the labels, one above the other. An arrow
leaves its node, follows a lane to the height of its label, and a lane beyond the label to its target. An arrow that
would cross a column goes above all columns when it points right and below them when it points left, with its label in
the width of a column. So an arrow may cross an arrow, but never a label.

Heights come first, for nothing in them depends on widths; then lanes are shared by arrows that do not meet, and what
these need gives the widths.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from headrace.draw.canvas import Drawing, End, Flow, FragmentBox, Link, Rect, Side, tag_rows, tag_width, text_width
from headrace.draw.routes import GAP, LANE, SHOULDER, SIDES, aim, route, take_lanes
from headrace.draw.words import often_words, place_words, shape_words
from headrace.graph.ir import Edge, Node
from headrace.graph.plan import Cut, Fragment, Plan
from headrace.machine import gib

T = TypeVar("T")

Ports = dict[tuple[str, Side], list[tuple[End, int, str]]]

MARGIN, TITLE = 28.0, 100.0
PAD, HEADER = 18.0, 62.0
PORT = 11.0
"""Between two arrows on one side of a node, at least."""
LABEL_COLUMNS = 28
"""Characters in a line of a label."""
LABEL_GAP = 18.0
WIDEST = 1000.0
"""Width that a page shows without scaling it down."""
CLEAR = 12.0
"""Between the level of a label and an arrow that is not its own: the rounded corners must not touch."""


def layout(plan: Plan, width: float) -> Drawing:
    """Lay out a plan, at least `width` wide, and within the width of a page if possible."""
    natural = _columns(plan)
    best = _laid(plan, natural, width)
    for fewer in range(len(natural) - 1, 0, -1):
        if best.width <= WIDEST:
            break
        starts = itertools.combinations(range(1, len(natural)), fewer - 1)
        merged = (
            [[one for column in natural[i:j] for one in column] for i, j in itertools.pairwise((0, *at, len(natural)))]
            for at in starts
        )
        best = min([best, *(_laid(plan, columns, width) for columns in merged)], key=lambda drawn: drawn.width)
    return best


def _laid(plan: Plan, columns: list[list[Fragment]], width: float) -> Drawing:
    boxes = [[_box(plan, fragment) for fragment in column] for column in columns]
    where = {node.id: i for i, column in enumerate(boxes) for box in column for node in box.nodes}
    edges = {(edge.source, edge.target, edge.what): edge for edge in plan.graph.edges}
    links = [_link(cut, edges.get((cut.source, cut.target, cut.what)), where) for cut in plan.cuts]
    drawn = Drawing(boxes, links)
    above = _rows(link for link in links if link.rising)
    top = TITLE + sum(map(_row_height, above))
    ports = _ports(drawn)
    _place_nodes(drawn, ports, top)
    _place_ports(drawn, ports)
    bottom = max(box.rect.bottom for box in drawn.boxes)
    for gutter in range(len(columns)):
        bottom = max(bottom, _place_labels(drawn, gutter, top))
    _place_rows(above[::-1], TITLE)
    below = _rows(link for link in links if link.over and not link.rising)
    drawn.height = _place_rows(below, bottom + LABEL_GAP)
    for link in links:
        aim(link)
    lanes = [[take_lanes(drawn.ends(gutter, side)) for side in ("right", "left")] for gutter in range(len(columns))]
    _place_across(drawn, lanes, width)
    route(drawn)
    return drawn


def _box(plan: Plan, fragment: Fragment) -> FragmentBox:
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
    return FragmentBox(fragment, nodes, flows, lanes, max([140.0, *map(_node_width, nodes), *beside]))


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


def _columns(plan: Plan) -> list[list[Fragment]]:
    """Fragments in columns by their depth in the dataflow; those that only read cells come after the writers."""
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
    # A fragment without nodes has no edge; it goes into the last column.
    last = max(level.values())
    columns: list[list[Fragment]] = [[] for _ in range(last + 1)]
    for fragment in plan.fragments:
        columns[level[fragment.id] if fragment.nodes else last].append(fragment)
    return [column for column in columns if column]


def _link(cut: Cut, edge: Edge | None, where: dict[str, int]) -> Link:
    begin, end = where[cut.source], where[cut.target]
    source = End(cut.source, "left", begin - 1) if end < begin else End(cut.source, "right", begin)
    target = End(cut.target, "left", end - 1) if begin < end else End(cut.target, "right", end)
    size = gib(edge.bytes) if edge else ""
    lines = _filled(shape_words(edge)) if edge else []
    over = range(min(begin, end) + 1, max(begin, end))
    made = Link(cut, edge.kind if edge else "data", size, lines, source, target, over, Rect())
    head = text_width(cut.what, 12) + text_width(size, 10) + 14
    made.label.w = 20 + max([head, text_width(made.pill, 10) + 14, *(text_width(line, 10) for line in lines)])
    made.label.h = 54 + 13.0 * len(lines)
    return made


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
    """The cut edges that pass columns, the shortest first, in rows without overlaps."""
    rows: list[list[Link]] = []
    for link in sorted(links, key=lambda link: len(link.over)):
        _pack(rows, link, lambda link: [link.over[0] - 1, link.over[-1]])
    return rows


def _row_height(row: list[Link]) -> float:
    return max(link.label.h for link in row) + LABEL_GAP


def _place_rows(rows: list[list[Link]], y: float) -> float:
    for row in rows:
        for link in row:
            link.label.y = y
        y += _row_height(row)
    return y


def _place_across(drawn: Drawing, lanes: list[list[int]], width: float) -> None:
    """Give every column its width and every gutter room for its lanes and labels, and everything its place in them."""
    over = [[link.label.w for link in drawn.links if i in link.over] for i in range(len(drawn.columns))]
    widths = [max([*map(_box_width, column), *over[i]]) for i, column in enumerate(drawn.columns)]
    gutters = [_gutter_width(drawn, i, sum(lanes[i])) for i in range(len(drawn.columns))]
    content = sum(widths) + sum(gutters)
    drawn.width = max(width, content + 2 * MARGIN)
    x = (drawn.width - content) / 2
    centres = []
    for i, (column, w) in enumerate(zip(drawn.columns, widths, strict=True)):
        for box in column:
            box.rect.x, box.rect.w = x, w
            for node in box.nodes:
                drawn.nodes[node.id].x = x + (w - box.inner_width) / 2 + box.margin("left")
        centres.append(x + w / 2)
        labels = drawn.labelled(i)
        for link in labels:
            link.label.x = x + w + SHOULDER + LANE * lanes[i][0]
            link.label.w = max(other.label.w for other in labels)
        x += w + gutters[i]
    for link in drawn.links:
        if link.over:
            link.label.x = centres[link.over[len(link.over) // 2]] - link.label.w / 2
        for end in (link.source, link.target):
            end.goal = (link.label.right if end.side == "left" else link.label.x, end.goal[1])


def _box_width(box: FragmentBox) -> float:
    title = text_width(box.fragment.id, 15) + 70
    return 2 * PAD + max(box.inner_width, title, text_width(place_words(box.fragment, " · "), 11))


def _gutter_width(drawn: Drawing, gutter: int, lanes: int) -> float:
    if not lanes:
        return 48.0 if gutter + 1 < len(drawn.columns) else 0.0
    return 2 * SHOULDER + LANE * lanes + max((link.label.w for link in drawn.labelled(gutter)), default=0.0)


def _place_nodes(drawn: Drawing, ports: Ports, top: float) -> None:
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
            below = y + HEADER
            for node in box.nodes:
                drawn.nodes[node.id] = Rect(0, below, box.node_width, heights[node.id])
                below += heights[node.id] + GAP
            y += box.rect.h + 2 * GAP


def _node_height(ports: Ports, node: Node) -> float:
    most = max(len(ports[node.id, side]) for side in SIDES)
    return max(34 + 21.0 * len(tag_rows(node)), PORT * (most + 1))


def _ports(drawn: Drawing) -> Ports:
    """The ends at each side of each node, with the direction they leave in and the node at the other end."""
    ports: Ports = defaultdict(list)
    arrows = [(flow.source, flow.target, 0) for box in drawn.boxes for flow in box.flows if not flow.down]
    arrows += [(link.source, link.target, (1 - 2 * link.rising) * bool(link.over)) for link in drawn.links]
    for source, target, way in arrows:
        ports[source.node, source.side].append((source, way, target.node))
        ports[target.node, target.side].append((target, way, source.node))
    return ports


def _place_ports(drawn: Drawing, ports: Ports) -> None:
    """Spread ports over the side of their node, in the order of where they lead."""
    for (node, _), touching in ports.items():
        rect = drawn.nodes[node]
        touching.sort(key=lambda port: (port[1], drawn.nodes[port[2]].middle))
        for i, (end, _, _) in enumerate(touching):
            end.y = rect.y + rect.h * (i + 1) / (len(touching) + 1)


def _place_labels(drawn: Drawing, gutter: int, top: float) -> float:
    """Stack the labels of a gutter near the middle of their arrows; return where they end."""
    links = sorted(drawn.labelled(gutter), key=_wish)
    if not links:
        return top
    y = -math.inf
    for link in links:
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


def _settle(drawn: Drawing, gutter: int, link: Link, lowest: float) -> None:
    """Make an arrow straight where its label is nearly level with a port, and keep it off every other port's level."""
    for end in (link.source, link.target):
        step = end.y - link.label.middle
        if abs(step) < LANE and link.label.y + step >= lowest and not link.same_side:
            link.label.y += step
            break
    others = [e for side in SIDES for e in drawn.ends(gutter, side) if e is not link.source and e is not link.target]
    upper, lower = sorted((link.source.y, link.target.y))

    def near() -> bool:
        """Whether an arrow meets its label where another one leaves a node, or its own other end does."""
        first, second = link.levels
        own = link.same_side and min(abs(upper - second), abs(lower - first)) < CLEAR
        return own or any(abs(end.y - level) < CLEAR for end in others for level in (first, second))

    while near():
        link.label.y += 2
