"""render: a plan as text, SVG or JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence

from headrace.draw.drawable import drawable
from headrace.draw.svg import draw
from headrace.draw.words import often_words, place_words, shape_words
from headrace.errors import UsageError, nearest
from headrace.graph.ir import Node
from headrace.graph.plan import Fragment, Plan
from headrace.machine import gib

COLUMNS = 100
"""The widest line of the text format."""
GLUE = "\u00a0"
"""A space at which no line is broken."""


def render(plan: Plan, format: str) -> str:
    """The plan as `text`, `json` or `svg`."""
    if format not in FORMATS:
        raise UsageError(
            f"a plan cannot be shown as '{format}'{nearest(format, FORMATS)} (formats: {', '.join(FORMATS)})."
        )
    return FORMATS[format](plan)


def _text(plan: Plan) -> str:
    graph = plan.graph
    facts = [("algorithm", graph.algorithm), ("env", graph.spec.id), ("policy", plan.policy)]
    head = _table([*facts, ("num_envs", str(graph.spec.num_envs))], indent=0)
    blocks = [head, *(_fragment(plan, fragment) for fragment in plan.fragments), _crosses(plan)]
    return "\n".join(line.rstrip() for block in blocks for line in (*block, "")).rstrip()


def _fragment(plan: Plan, fragment: Fragment) -> list[str]:
    nodes = [plan.graph.by_id[node] for node in fragment.nodes if node in plan.graph.by_id]
    head = _fit(f"{fragment.id}  x{fragment.replicas}  {place_words(fragment, ', ')}", 4)
    of = plan.fragment_of
    inside = [edge for edge in plan.graph.edges if of.get(edge.source) is fragment is of.get(edge.target)]
    brief = [" ".join(shape_words(edge, most=1)) for edge in inside]
    sizes = [gib(edge.bytes) if edge.bytes else "" for edge in inside]
    flows = [(f"{e.source} -> {e.target}", e.what, *more) for e, *more in zip(inside, brief, sizes, strict=True)]
    return [*head, *_table(_node_rows(nodes), indent=2), *(["  inside", *_table(flows, indent=4)] if flows else [])]


def _node_rows(nodes: list[Node]) -> list[tuple[str, str, str, str]]:
    reads = ["reads " + ", ".join(bound.cell for bound in node.reads) if node.reads else "" for node in nodes]
    writes = ["writes " + ", ".join(bound.cell for bound in node.writes) if node.writes else "" for node in nodes]
    # A line that writes without reading starts at the left, so that a long list of cells has room.
    width = max((len(read) for read, write in zip(reads, writes, strict=True) if write), default=0)
    return [
        (node.id, node.role, often_words(node), f"{read.ljust(width)}  {write}".strip() if read else write)
        for node, read, write in zip(nodes, reads, writes, strict=True)
    ]


def _crosses(plan: Plan) -> list[str]:
    if not plan.cuts:
        return ["crosses", "  nothing"]
    edges = {(edge.source, edge.target, edge.what): edge for edge in plan.graph.edges}
    carried = [edges.get((cut.source, cut.target, cut.what)) for cut in plan.cuts]
    sizes = [gib(edge.bytes) if edge else "" for edge in carried]
    ways = [(f"{cut.source} -> {cut.target}", cut.channel, f"staleness {cut.staleness}") for cut in plan.cuts]
    rows = [(*way, size) for way, size in zip(ways, sizes, strict=True)]
    lines = ["crosses"]
    for row, cut, edge in zip(_aligned(rows, indent=2), plan.cuts, carried, strict=True):
        shape = ", ".join(word.replace(" ", GLUE) for word in shape_words(edge)) if edge else ""
        lines += [*_fit(row, 4), *_fit(f"    {cut.what}{': ' * bool(shape)}{shape}", 6)]
    return lines


def _table(rows: Sequence[Sequence[str]], indent: int) -> list[str]:
    return [part for line in _aligned(rows, indent) for part in _fit(line, indent + 2)]


def _aligned(rows: Sequence[Sequence[str]], indent: int) -> list[str]:
    """A line for each row, with the columns under each other and empty ones left out."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    used = [i for i, width in enumerate(widths) if width]
    return [" " * indent + "  ".join(row[i].ljust(widths[i]) for i in used).rstrip() for row in rows]


def _fit(line: str, indent: int) -> list[str]:
    return [part.replace(GLUE, " ") for part in textwrap.wrap(line, COLUMNS, subsequent_indent=" " * indent)]


FORMATS: dict[str, Callable[[Plan], str]] = {
    "text": lambda plan: _text(drawable(plan)),
    "json": lambda plan: json.dumps(plan.to_json(), indent=2),
    "svg": lambda plan: draw(drawable(plan)),
}
