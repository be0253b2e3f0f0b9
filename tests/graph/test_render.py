"""render: what a person or a program sees of a plan."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from headrace.algorithms import A3C, PPO, SAC, TD3
from headrace.draw.render import render
from headrace.draw.svg import TIMES
from headrace.errors import UsageError
from headrace.graph import Cut, Edge, Fragment, Graph, Node, Plan, cut, fuse, trace
from headrace.graph.ir import Bound, EdgeKind, Role
from headrace.machine import Machine
from headrace.policies import central, single, single_learner_coarse
from headrace.types import Box, Dict, Discrete, EnvSpec, struct

IMAGES = Path(__file__).parents[2] / "docs" / "images"
MACHINE = Machine(cores=8, memory=1 << 34, devices=("cpu:0",))
CHEETAH = EnvSpec("HalfCheetah-v5", Box((17,)), Box((6,), bounded=True), 8)
LANDER = EnvSpec("LunarLander-v3", Box((8,)), Discrete(4), 8)

Area = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def four(graph: Graph) -> Plan:
    fragments = (
        Fragment("collect", ("env.observe", "act", "env.step"), replicas=2),
        Fragment("store", ("replay.insert", "replay.sample")),
        Fragment("critic", ("learn_critic",), device="cuda:0"),
        Fragment("actor", ("learn_actor",), device="cuda:1"),
    )
    return cut(graph, "dual_device", fragments, staleness=1)


def apart(graph: Graph) -> Plan:
    env = Fragment("env", ("env.observe", "env.step"), replicas=3)
    others = [Fragment(f"only {n.id}", (n.id,)) for n in graph.nodes if n.role != "environment"]
    return cut(graph, "apart", (env, *others, Fragment("evaluator", ())), staleness=1)


def reduced(graph: Graph) -> Plan:
    plan = cut(graph, "reduced", (Fragment("all", tuple(n.id for n in graph.nodes), replicas=4),), staleness=0)
    return dataclasses.replace(plan, cuts=(Cut("learn", "learn", "gradients", "reduce", 0),))


def scrambled(seed: int) -> Plan:
    """A plan no policy would make: 3 to 6 fragments, edges of every kind in every direction."""
    rng = random.Random(seed)
    roles: tuple[Role, ...] = ("environment", "acting", "storing", "learning", "computing")
    names = [f"node_{i}" for i in range(rng.randint(6, 12))]
    cells = tuple(Bound("c", f"cell_{i}") for i in range(5))
    nodes = tuple(
        Node(n, "stage", n, (), (), cells[: rng.randint(0, 2)], cells[2 : rng.randint(2, 5)], role=rng.choice(roles))
        for n in names
    )
    pairs = rng.sample([(a, b) for a in names for b in names if a != b], rng.randint(8, 20))
    kinds: tuple[EdgeKind, ...] = ("data", "cell", "replay", "rollout")
    shape = struct(Dict(tuple((f"leaf_{i}", Box((i + 1,))) for i in range(rng.randint(1, 6)))), 64)
    edges = tuple(Edge(a, b, f"flow_{i}", shape, rng.choice(kinds)) for i, (a, b) in enumerate(pairs))
    number = rng.randint(3, 6)
    home = [i if i < number else rng.randrange(number) for i in range(len(names))]
    fragments = tuple(
        Fragment(f"fragment {i}", tuple(n for n, at in zip(names, home, strict=True) if at == i), rng.randint(1, 4))
        for i in range(number)
    )
    graph = dataclasses.replace(traced("sac"), algorithm="scrambled", nodes=nodes, edges=edges)
    return cut(graph, "random", fragments, staleness=rng.randint(0, 3))


@cache
def traced(name: str) -> Graph:
    algorithm, spec = {"sac": (SAC, CHEETAH), "ppo": (PPO, LANDER), "td3": (TD3, CHEETAH)}[name]
    return trace(algorithm(), spec)


PLANS: dict[str, Callable[[], Plan]] = {
    "sac single": lambda: fuse(single(traced("sac"), MACHINE)),
    "sac coarse": lambda: fuse(single_learner_coarse(traced("sac"), MACHINE, replicas=4)),
    "ppo coarse": lambda: fuse(single_learner_coarse(traced("ppo"), MACHINE, replicas=2)),
    "td3 coarse": lambda: fuse(single_learner_coarse(traced("td3"), MACHINE)),
    "sac four": lambda: fuse(four(traced("sac"))),
    "sac apart": lambda: apart(traced("sac")),
    "ppo apart": lambda: apart(traced("ppo")),
    "ppo reduced": lambda: reduced(traced("ppo")),
    **{f"scrambled {seed}": lambda seed=seed: scrambled(seed) for seed in range(20)},  # type: ignore[misc]
}


@cache
def made(name: str) -> Plan:
    return PLANS[name]()


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> Plan:
    return made(request.param)


@cache
def drawn(plan: Plan) -> str:
    return render(plan, "svg")


def areas(svg: str, *kinds: str) -> list[Area]:
    found = (r for r in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}rect") if r.get("class") in kinds)
    boxes = ([float(r.attrib[name]) for name in ("x", "y", "width", "height")] for r in found)
    return [(x, y, x + w, y + h) for x, y, w, h in boxes]


def segments(svg: str, kind: str) -> list[Area]:
    """The straight pieces of all lines of a kind, each as a flat area."""
    pieces = []
    for path in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}path"):
        if path.get("class") == kind:
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", path.attrib["d"])]
            points = list(zip(numbers[::2], numbers[1::2], strict=True))
            pieces += [(min(a, c), min(b, d), max(a, c), max(b, d)) for (a, b), (c, d) in itertools.pairwise(points)]
    return pieces


def overlap(a: Area, b: Area, slack: float = 1.0) -> bool:
    return a[0] < b[2] - slack and b[0] < a[2] - slack and a[1] < b[3] - slack and b[1] < a[3] - slack


def words(svg: str) -> set[str]:
    return {text.text or "" for text in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")}


def test_no_two_labels_or_nodes_overlap(plan: Plan) -> None:
    boxes = areas(drawn(plan), "label", "flow-label", "node")
    assert not [pair for pair in itertools.combinations(boxes, 2) if overlap(*pair)]


def test_labels_of_cuts_stay_out_of_fragments(plan: Plan) -> None:
    svg = drawn(plan)
    labels, fragments = areas(svg, "label"), areas(svg, "fragment", "replica")
    assert len(labels) == len(plan.cuts)
    assert not [(a, b) for a in labels for b in fragments if overlap(a, b)]


def test_fragments_do_not_overlap(plan: Plan) -> None:
    boxes = areas(drawn(plan), "fragment")
    assert len(boxes) == len(plan.fragments)
    assert not [pair for pair in itertools.combinations(boxes, 2) if overlap(*pair)]


def test_no_cut_crosses_a_label_or_a_node(plan: Plan) -> None:
    svg = drawn(plan)
    boxes = areas(svg, "label", "flow-label", "node")
    assert not [(line, box) for line in segments(svg, "cut") for box in boxes if overlap(line, box, slack=0.5)]


def test_no_two_cuts_run_on_one_line(plan: Plan) -> None:
    svg = drawn(plan)
    lines = [(x0 - 1, y0 - 1, x1 + 1, y1 + 1) for x0, y0, x1, y1 in segments(svg, "cut")]
    flat = [line for line in lines if line[3] - line[1] < 2.5 and line[2] - line[0] > 16]
    tall = [line for line in lines if line[2] - line[0] < 2.5 and line[3] - line[1] > 16]
    for parallel in (flat, tall):
        assert not [pair for pair in itertools.combinations(parallel, 2) if overlap(*pair, slack=0.0)]


def test_everything_is_inside_the_drawing(plan: Plan) -> None:
    svg = drawn(plan)
    root = ET.fromstring(svg)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    found = [*areas(svg, "label", "flow-label", "node", "fragment", "replica", "tag", "pill"), *segments(svg, "cut")]
    assert all(a >= 0 and b >= 0 and c <= width and d <= height for a, b, c, d in found)


def test_svg_names_every_node_and_cut(plan: Plan) -> None:
    said = words(drawn(plan))
    assert {node.id for node in plan.graph.nodes} <= said
    assert {fragment.id for fragment in plan.fragments} <= said
    assert {c.what for c in plan.cuts} <= said
    assert {f"{c.channel} · staleness {c.staleness}" for c in plan.cuts} <= said


def test_text_names_everything_within_100_columns(plan: Plan) -> None:
    text = render(plan, "text")
    assert max(map(len, text.splitlines())) <= 100
    for c in plan.cuts:
        way = rf"  {re.escape(c.source)} -> {re.escape(c.target)} +"
        assert re.search(rf"{way}{c.channel} +staleness {c.staleness}", text)
        assert f"    {c.what}" in text
    assert all(node.id in text for node in plan.graph.nodes)


def test_text_of_a_cut_in_full() -> None:
    text = render(PLANS["sac coarse"](), "text")
    assert "collect  x4  local, cpu:0\n" in text
    assert "learn  x1  local, cpu:0, 8 passes fused\n" in text
    assert text.endswith(
        "crosses\n"
        "  learn_actor -> act              latest  staleness 1  287 KiB\n"
        "    actor: f32[17,256], f32[256], f32[256,256], f32[256], … 2 more\n"
        "  replay.insert -> replay.sample  table   staleness 0  1.3 KiB\n"
        "    transition: obs f32[8,17], action f32[8,6], reward f32[8], terminated bool[8], … 2 more"
    )


def test_text_says_how_often() -> None:
    assert re.search(r"act +acting +x128 +reads actor, normaliser\n", render(PLANS["ppo coarse"](), "text"))
    assert re.search(r"learn_actor +learning +every 2 +reads critic ", render(PLANS["td3 coarse"](), "text"))


def test_nothing_crosses_in_a_single_fragment() -> None:
    assert render(PLANS["sac single"](), "text").endswith("crosses\n  nothing")
    assert segments(render(PLANS["sac single"](), "svg"), "cut") == []


def test_replicas_are_cards_behind() -> None:
    assert len(areas(render(PLANS["sac coarse"](), "svg"), "replica")) == 2
    assert len(areas(render(PLANS["sac single"](), "svg"), "replica")) == 0


def test_fewer_replicas_than_asked_for_are_said() -> None:
    fused = fuse(single_learner_coarse(traced("sac"), MACHINE, replicas=4), cores=2)
    assert "collect  x2  local, cpu:0, asked for 4, fused into 2\n" in render(fused, "text")
    assert "local · cpu:0 · asked for 4, fused into 2" in words(render(fused, "svg"))
    assert "asked" not in render(made("sac coarse"), "text")


def test_what_applies_gradients_is_connected() -> None:
    graph = trace(A3C(num_envs=8), LANDER)
    svg = render(central(graph, MACHINE, 2), "svg")
    assert {"apply gradients", "gradients", "actor, critic", "apply · staleness 2"} <= words(svg)
    assert len(areas(svg, "label")) == 2
    assert len(areas(svg, "fragment")) == 2
    text = render(central(graph, MACHINE, 2), "text")
    assert re.search(r"\n  learn -> apply gradients +apply +staleness 2\n    gradients\n", text)
    assert re.search(r"\n  apply gradients -> learn +apply +staleness 2 +[\d.]+ KiB\n    actor, critic: ", text)


def test_a_stage_that_two_fragments_compute_is_shown_in_both() -> None:
    graph = traced("sac")
    computed = Node("relabel", "stage", "relabel", (), (), role="computing", domain="learn")
    edges = [dataclasses.replace(e, source="relabel") if e.source == "replay.sample" else e for e in graph.edges]
    edges.append(Edge("replay.sample", "relabel", "batch", graph.only("replay.sample").output, "data"))
    graph = dataclasses.replace(graph, nodes=(*graph.nodes, computed), edges=tuple(edges))
    collect = tuple(node.id for node in graph.where(domain="collect"))
    learn = (("replay.sample", "relabel", "learn_critic"), ("relabel", "learn_actor"))
    fragments = [Fragment(f"f{i}", nodes) for i, nodes in enumerate((collect, *learn))]
    both = cut(graph, "mine", tuple(fragments), staleness=1)
    assert {"relabel", "relabel (copy)"} <= words(render(both, "svg"))
    assert re.search(r"replay\.sample -> relabel \(copy\) +stream", render(both, "text"))
    assert "relabel (copy) -> learn_actor" in render(both, "text")


def test_a_store_that_two_fragments_draw_from_is_shown_in_both() -> None:
    graph = traced("sac")
    fragments = (
        Fragment("collect", tuple(node.id for node in graph.where(domain="collect"))),
        Fragment("critic", ("replay.sample", "learn_critic")),
        Fragment("actor", ("replay.sample", "learn_actor")),
    )
    both = cut(graph, "mine", fragments, staleness=1)
    assert {"replay.sample", "replay.sample (copy)"} <= words(render(both, "svg"))
    text = render(both, "text")
    assert re.search(r"replay\.insert -> replay\.sample +table +staleness 0", text)
    assert re.search(r"replay\.insert -> replay\.sample \(copy\) +table +staleness 0", text)
    assert "replay.sample -> learn_actor" not in text


def test_the_legend_has_the_colours_of_the_drawing() -> None:
    root = ET.fromstring(drawn(made("sac coarse")))
    rects = list(root.iter("{http://www.w3.org/2000/svg}rect"))
    fills = {kind: {r.get("fill") for r in rects if r.get("class") == kind} for kind in ("tag", "sample")}
    assert fills["tag"] <= fills["sample"]


def test_the_pictures_of_the_documentation_fit_a_page() -> None:
    for path in IMAGES.glob("*.svg"):
        assert float(ET.fromstring(path.read_text()).attrib["width"]) <= 1010, path


def test_text_and_picture_of_dual_device_agree() -> None:
    page = (IMAGES.parent / "policies.md").read_text()
    block = page.split("## dual_device")[1].split("```")[1]
    heads = re.findall(r"^(\w+)  x(\d+)  (.+)$", block, re.MULTILINE)
    assert [name for name, _, _ in heads] == ["collect", "learn_rest", "learn_acting"]
    said = words((IMAGES / "sac-dual.svg").read_text())
    assert {name for name, _, _ in heads} | {place.replace(", ", " · ") for _, _, place in heads} <= said
    badges = {f"{TIMES}{number}" for _, number, _ in heads if number != "1"}
    assert badges == {word for word in said if word.startswith(TIMES)}


def test_json_is_the_plan(plan: Plan) -> None:
    assert json.loads(render(plan, "json")) == json.loads(json.dumps(plan.to_json()))


def test_names_are_escaped() -> None:
    spec = dataclasses.replace(CHEETAH, id="a<b>&c")
    assert "sac on a<b>&c" in words(render(single(trace(SAC(), spec), MACHINE), "svg"))


def test_refuses_an_unknown_format() -> None:
    with pytest.raises(UsageError, match=r"cannot be shown as 'svgg'.*'svg'.*formats: text, json, svg"):
        render(PLANS["sac single"](), "svgg")
