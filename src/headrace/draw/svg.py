"""svg: a plan as a self-contained SVG document."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from headrace.draw.canvas import Drawing, Flow, FragmentBox, Link, Point, Rect, tag_rows, tag_width, text_width
from headrace.draw.layout import MARGIN, PAD, layout
from headrace.draw.words import often_words, place_words
from headrace.graph.ir import Node
from headrace.graph.plan import Plan

ROLES: dict[str, tuple[str, str]] = {
    "environment": ("#e3f4e8", "#2f855a"),
    "acting": ("#e2eefc", "#2b6cb0"),
    "storing": ("#fdf1d7", "#b7791f"),
    "learning": ("#f1e8fc", "#6b46c1"),
    "computing": ("#eceff4", "#5a6678"),
}
"""Fill and line of a node."""
INK, FAINT, LINE = "#1c2433", "#5f6b7e", "#7d8899"
PAPER, CARD, BORDER = "#f5f7fa", "#ffffff", "#cbd3df"
DATA, CELL = "#1f5f8b", "#97356b"
"""Colours of cut edges: data, or a cell."""
LEAST_WIDTH = 520.0
TIMES = "\u00d7"

STYLE = (
    "text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    ".sans{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
)


def draw(plan: Plan) -> str:
    """The plan as an SVG document."""
    title = f"{plan.graph.algorithm} on {plan.graph.spec.id}"
    facts = _facts(plan)
    drawn = layout(plan, max(LEAST_WIDTH, 2 * MARGIN + max(text_width(title, 22), text_width(facts, 12))))
    legend, height = _legend(drawn)
    w, h = f"{drawn.width:.0f}", f"{height:.0f}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img">',
            f"<title>{escape(f'{title}, {facts}')}</title>",
            f"<style>{STYLE}</style>",
            f'<rect width="{w}" height="{h}" rx="12" fill="{PAPER}"/>',
            _text(MARGIN, 46, title, 22, weight=700, sans=True),
            _text(MARGIN, 68, facts, 12, FAINT, sans=True),
            *(line for box in drawn.boxes for line in _fragment(box)),
            *(line for box in drawn.boxes for flow in box.flows for line in _flow(flow)),
            *(line for link in drawn.links for line in _link(link)),
            *(line for box in drawn.boxes for node in box.nodes for line in _node(node, drawn.nodes[node.id])),
            *legend,
            "</svg>",
            "",
        ]
    )


def _facts(plan: Plan) -> str:
    replicas = sum(fragment.replicas for fragment in plan.fragments)
    counts = f"{_count(len(plan.fragments), 'fragment')} · {_count(replicas, 'replica')} in all"
    return f"policy {plan.policy} · {_count(plan.graph.spec.num_envs, 'environment')} · {counts}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _fragment(box: FragmentBox) -> Iterator[str]:
    fragment, rect = box.fragment, box.rect
    for behind in range(min(fragment.replicas - 1, 2), 0, -1):
        card = Rect(rect.x + 5 * behind, rect.y - 5 * behind, rect.w, rect.h)
        yield _rect(card, CARD, BORDER, 12, "replica")
    yield _rect(rect, CARD, "#9aa6b8", 12, "fragment", 1.4)
    yield _text(rect.x + PAD, rect.y + 27, fragment.id, 15, weight=700)
    yield _text(rect.x + PAD, rect.y + 45, place_words(fragment, " · "), 11, FAINT)
    if fragment.replicas > 1:
        words = f"{TIMES}{fragment.replicas}"
        badge = Rect(0, rect.y + 13, text_width(words, 12) + 14, 20)
        badge.x = rect.right - PAD - badge.w
        yield _rect(badge, INK, "none", 10, "badge")
        yield _text(badge.x + 7, badge.y + 14.5, words, 12, CARD, weight=700)


def _node(node: Node, rect: Rect) -> Iterator[str]:
    fill, line = ROLES[node.role]
    yield _rect(rect, fill, line, 6, "node")
    rows = tag_rows(node)
    y = rect.middle - 10.5 * len(rows)
    yield _text(rect.x + 12, y + 4.5, node.id, 12, weight=700)
    if often := often_words(node).replace("x", TIMES):
        yield _text(rect.right - 12 - text_width(often, 10), y + 4, often, 10, line)
    for row in rows:
        y += 21
        x = rect.x + 12
        for cell, written in row:
            yield _rect(Rect(x, y - 7, tag_width(cell), 16), line if written else CARD, line, 4, "tag", 0.8)
            yield _text(x + 6, y + 4.5, cell, 10, CARD if written else INK)
            x += tag_width(cell) + 5


def _flow(flow: Flow) -> Iterator[str]:
    yield _path(flow.points, LINE, 1.2, "flow", "3 3" if flow.kind == "state" else "")
    yield _head(flow.points, LINE, 6)
    yield _rect(flow.label, CARD, "none", 2, "flow-label")
    for i, line in enumerate(flow.lines):
        yield _text(flow.label.x + 3, flow.label.y + 10.5 + 12 * i, line, 10, FAINT)


def _link(link: Link) -> Iterator[str]:
    colour = CELL if link.kind == "cell" else DATA
    for points in link.points:
        yield _path(points, CARD, 6, "halo")
    for points in link.points:
        yield _path(points, colour, 2.4, "cut")
    yield _head(link.points[1], colour, 10)
    rect = link.label
    yield _rect(rect, CARD, colour, 8, "label", 1.4)
    yield _text(rect.x + 10, rect.y + 19, link.cut.what, 12, colour, weight=700)
    yield _text(rect.right - 10 - text_width(link.size, 10), rect.y + 19, link.size, 10, INK)
    for i, line in enumerate(link.lines):
        yield _text(rect.x + 10, rect.y + 34 + 13 * i, line, 10, FAINT)
    pill = Rect(rect.x + 10, rect.bottom - 25, text_width(link.pill, 10) + 14, 17)
    yield _rect(pill, colour, "none", 8.5, "pill")
    yield _text(pill.x + 7, pill.y + 12, link.pill, 10, CARD)


def _legend(drawn: Drawing) -> tuple[list[str], float]:
    """What colours, tags and lines mean, and the height of the whole drawing."""
    parts: list[str] = []
    x, y = MARGIN, drawn.height + 30
    used = {node.role for box in drawn.boxes for node in box.nodes}
    items: list[tuple[str, str]] = [(role, role) for role in ROLES if role in used]
    items += [("reads", "reads cell"), ("writes", "writes cell"), ("flow", "inside a fragment")]
    items += [("state", "env state")] * any(flow.kind == "state" for box in drawn.boxes for flow in box.flows)
    crossing = {"cell" if link.kind == "cell" else "data" for link in drawn.links}
    items += [(kind, f"{kind} crosses") for kind in ("data", "cell") if kind in crossing]
    for key, words in items:
        if x + 34 + text_width(words, 11) > drawn.width - MARGIN:
            x, y = MARGIN, y + 22
        parts += [*_sample(key, x, y), _text(x + 30, y + 4, words, 11, FAINT, sans=True)]
        x += 30 + text_width(words, 11) + 22
    rule = f'<path d="M{MARGIN:g} {drawn.height + 8:.1f}H{drawn.width - MARGIN:.1f}" stroke="{BORDER}"/>'
    return [rule, *parts], y + 26


def _sample(key: str, x: float, y: float) -> Iterator[str]:
    line = [(x, y), (x + 24, y)]
    if key in ROLES:
        fill, edge = ROLES[key]
        yield _rect(Rect(x, y - 7, 24, 14), fill, edge, 4, "sample")
    elif key in ("reads", "writes"):
        edge = ROLES["learning"][1]  # as the tags of a stage that does both
        yield _rect(Rect(x, y - 6, 24, 12), edge if key == "writes" else CARD, edge, 4, "sample", 0.8)
    elif key in ("flow", "state"):
        yield _path(line, LINE, 1.2, "sample", "3 3" if key == "state" else "")
        yield _head(line, LINE, 6)
    else:
        colour = CELL if key == "cell" else DATA
        yield _path(line, colour, 2.4, "sample")
        yield _head(line, colour, 10)


def _rect(rect: Rect, fill: str, line: str, radius: float, kind: str, width: float = 1.0) -> str:
    place = f'x="{rect.x:.1f}" y="{rect.y:.1f}" width="{rect.w:.1f}" height="{rect.h:.1f}"'
    return f'<rect class="{kind}" {place} rx="{radius:g}" fill="{fill}" stroke="{line}" stroke-width="{width:g}"/>'


def _text(x: float, y: float, words: str, size: float, fill: str = INK, weight: int = 400, sans: bool = False) -> str:
    more = ' class="sans"' * sans + f' font-weight="{weight}"' * (weight != 400)
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{fill}"{more}>{escape(words)}</text>'


def _path(points: list[Point], colour: str, width: float, kind: str, dashes: str = "") -> str:
    dash = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'<path class="{kind}" d="{_rounded(points)}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dash}/>'


def _rounded(points: list[Point], radius: float = 7) -> str:
    steps = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        (ax, ay), (bx, by) = _toward(corner, before, radius), _toward(corner, after, radius)
        steps.append(f"L{ax:.1f} {ay:.1f}Q{corner[0]:.1f} {corner[1]:.1f} {bx:.1f} {by:.1f}")
    return "".join([*steps, f"L{points[-1][0]:.1f} {points[-1][1]:.1f}"])


def _toward(start: Point, goal: Point, distance: float) -> Point:
    """A point `distance` along the way to `goal`, at most half of it."""
    dx, dy = goal[0] - start[0], goal[1] - start[1]
    share = min(0.5, distance / max(abs(dx), abs(dy), 1e-9))
    return start[0] + dx * share, start[1] + dy * share


def _head(points: list[Point], colour: str, size: float) -> str:
    (x0, y0), (x, y) = points[-2:]
    length = max(abs(x - x0), abs(y - y0), 1e-9)
    dx, dy = (x - x0) / length * size, (y - y0) / length * size
    corners = ((x, y), (x - dx - dy * 0.45, y - dy + dx * 0.45), (x - dx + dy * 0.45, y - dy - dx * 0.45))
    return f'<polygon points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in corners)}" fill="{colour}"/>'
