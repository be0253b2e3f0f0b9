"""The elements of a drawn plan: fragment boxes, the flows in them, the links between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headrace.graph.ir import Node
from headrace.graph.plan import Cut, Fragment

Side = Literal["left", "right"]
Point = tuple[float, float]

GLYPH = 0.61
"""Width of a monospaced character as a share of its size; DejaVu Sans Mono, the widest of the fonts used, has 0.602."""
TAGS_WIDTH = 200.0
"""The tags of a node's cells go on in a second row beyond this."""


@dataclass
class Rect:
    """A rectangle by its upper left corner."""

    x: float = 0.0
    y: float = 0.0
    w: float = 0.0
    h: float = 0.0

    @property
    def right(self) -> float:
        return self.x + self.w

    @property
    def bottom(self) -> float:
        return self.y + self.h

    @property
    def middle(self) -> float:
        return self.y + self.h / 2


@dataclass
class End:
    """One end of an arrow: a port on a node's side, a lane beside the node, a point to reach."""

    node: str
    side: Side
    gutter: int = -1
    """The gutter it is in, for a cut edge."""
    y: float = 0.0
    lane: float = 0.0
    """Its lane number, counted from the node outwards, and once placed its x coordinate."""
    goal: Point = (0.0, 0.0)


@dataclass
class Flow:
    """What flows from one node to another inside a fragment, along a side or straight down to the next node."""

    kind: str
    lines: list[str]
    source: End
    target: End
    down: bool
    label: Rect
    points: list[Point] = field(default_factory=list)


@dataclass
class FragmentBox:
    """A fragment, its nodes from top to bottom, and the lanes beside them."""

    fragment: Fragment
    nodes: list[Node]
    flows: list[Flow]
    lanes: dict[Side, list[list[Flow]]]
    node_width: float
    rect: Rect = field(default_factory=Rect)

    def margin(self, side: Side) -> float:
        return sum(map(lane_width, self.lanes[side])) + 6 * bool(self.lanes[side])

    @property
    def inner_width(self) -> float:
        return self.margin("left") + self.node_width + self.margin("right")


@dataclass
class Link:
    """A cut edge."""

    cut: Cut
    kind: str
    size: str
    lines: list[str]
    source: End
    target: End
    over: range
    """The columns it passes above or below; empty between neighbours."""
    label: Rect
    points: list[list[Point]] = field(default_factory=list)
    """The way to the label, and the way from it."""

    @property
    def pill(self) -> str:
        return f"{self.cut.channel} · staleness {self.cut.staleness}"

    @property
    def same_side(self) -> bool:
        """Whether both ends are on the same side of a column."""
        return self.source.side == self.target.side

    @property
    def levels(self) -> tuple[float, float]:
        """The y coordinates at which it meets its label."""
        apart = 9.0 * self.same_side
        return self.label.middle - apart, self.label.middle + apart

    @property
    def rising(self) -> bool:
        """Whether it passes above the columns."""
        return bool(self.over) and self.source.side == "right"


@dataclass
class Drawing:
    """A whole drawing: its elements and their coordinates."""

    columns: list[list[FragmentBox]]
    links: list[Link]
    nodes: dict[str, Rect] = field(default_factory=dict)
    width: float = 0.0
    height: float = 0.0

    @property
    def boxes(self) -> list[FragmentBox]:
        return [box for column in self.columns for box in column]

    def ends(self, gutter: int, side: Side) -> list[End]:
        """The ends of cut edges in one half of a gutter."""
        every = (end for link in self.links for end in (link.source, link.target))
        return [end for end in every if end.gutter == gutter and end.side == side]

    def labelled(self, gutter: int) -> list[Link]:
        """The cut edges whose label stands in a gutter."""
        return [link for link in self.links if link.source.gutter == gutter and not link.over]


def text_width(text: str, size: float) -> float:
    return len(text) * size * GLYPH


def lane_width(lane: list[Flow]) -> float:
    """The room a lane inside a fragment needs: its labels stand on it."""
    return max(flow.label.w for flow in lane) + 4


def tag_width(cell: str) -> float:
    return text_width(cell, 10) + 12


def tag_rows(node: Node) -> list[list[tuple[str, bool]]]:
    """The cells of a node in rows, each with whether it is written."""
    rows: list[list[tuple[str, bool]]] = []
    for cell, written in [*((b.cell, False) for b in node.reads), *((b.cell, True) for b in node.writes)]:
        if not rows or sum(tag_width(name) + 5 for name, _ in rows[-1]) + tag_width(cell) > TAGS_WIDTH:
            rows.append([])
        rows[-1].append((cell, written))
    return rows
