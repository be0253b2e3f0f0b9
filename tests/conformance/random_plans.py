"""Plans at random: any partition of an algorithm's graph, refused by the name of a rule, or run exactly as drawn."""

from __future__ import annotations

import time
from typing import Any

import jax
import matrix
import numpy as np
from hypothesis import strategies as st

import headrace
from headrace.errors import PlanError
from headrace.graph import Fragment, Plan, cut, fuse
from headrace.graph.plan import repeatable
from headrace.graph.sections import Sections
from headrace.graph.verify import RULES
from headrace.machine import Machine
from headrace.runtimes import Options, Processes, inline
from headrace.runtimes.inline import Inline
from headrace.runtimes.places import training_members

ALGORITHMS = ("sac", "td3", "dqn", "ppo", "impala", "mappo")
MACHINE = Machine(cores=2, memory=1 << 34, devices=("cpu:0",))
SEED = 3
TIMEOUT = 600.0
GRAPHS: dict[str, Any] = {}


def graph_of(name: str) -> Any:
    """The graph of an algorithm; kept, so that all plans share what is compiled."""
    if name not in GRAPHS:
        GRAPHS[name] = headrace.trace(*matrix.case(name, "single"))
    return GRAPHS[name]


@st.composite
def plans(draw: st.DrawFn, staleness: tuple[int, ...] = (0, 0, 1, 2), names: tuple[str, ...] = ALGORITHMS) -> Plan:
    """A partition into fragments, replicas, staleness and channels; most of it keeps the laws, some does not."""
    name = draw(st.sampled_from(names))
    graph = graph_of(name)
    if draw(st.integers(0, 11)) == 0:  # replicas of the whole loop, whose gradients are averaged
        whole = Fragment("loop", tuple(node.id for node in graph.nodes), replicas=draw(st.sampled_from([1, 2, 3])))
        return fuse(cut(graph, f"{name} at random", (whole,), 0, gradients="reduce"))
    number = draw(st.integers(1, 4))
    together = draw(st.integers(0, 9)) > 0
    places: dict[str, int] = {}
    for node in graph.nodes:
        places[node.id] = draw(st.integers(0, number - 1))
    if together:
        places["env.step"] = places["env.observe"]
    held: list[list[str]] = [[n.id for n in graph.nodes if places[n.id] == i] for i in range(number)]
    if draw(st.booleans()):  # whoever learns draws for itself
        for nodes in held:
            takes = {ref.node for node in nodes for ref in graph.by_id[node].sources}
            nodes += [n.id for n in graph.nodes if n.id in takes - set(nodes) and repeatable(n) and n.kind == "store"]
    fragments = []
    for i, nodes in enumerate(nodes for nodes in held if nodes):
        learns = any(graph.by_id[node].domain == "learn" for node in nodes)
        replicas = 1 if learns and draw(st.integers(0, 9)) else draw(st.sampled_from([1, 1, 2, 4]))
        ordered = tuple(node.id for node in graph.nodes if node.id in nodes)
        fragments.append(Fragment(f"fragment_{i}", ordered, replicas=replicas))
    plan = cut(graph, f"{name} at random", tuple(fragments), draw(st.sampled_from(staleness)))
    if plan.cuts and draw(st.integers(0, 14)) == 0:
        changed = draw(st.sampled_from(plan.cuts))
        other = draw(st.sampled_from(["queue", "table", "stream", "latest"]))
        cuts = tuple(_with(one, other) if one is changed else one for one in plan.cuts)
        plan = Plan(graph, plan.policy, plan.fragments, cuts)
    return fuse(plan)


def _with(one: Any, channel: Any) -> Any:
    return type(one)(one.source, one.target, one.what, channel, one.staleness)


def rule_of(plan: Plan) -> str | None:
    """The name of the rule that refuses a plan; None if it keeps all of them."""
    for rule in RULES:
        try:
            rule(plan, MACHINE)
        except PlanError:
            return rule.__name__
    return None


def name_of(plan: Plan) -> str:
    return plan.graph.algorithm


def steps_for(plan: Plan) -> int:
    return matrix.steps_for(plan, matrix.LEARNED)


def run_inline(plan: Plan) -> tuple[list[np.ndarray], dict[str, int]]:
    """The cells after the asked steps, all that is due learned."""
    algorithm, env = matrix.case(name_of(plan), "single")
    running = inline(plan, algorithm, env, SEED)
    assert isinstance(running, Inline)
    try:
        executed: dict[str, list[str]] = {}
        for part in (*running.collects, *running.learns):
            executed.setdefault(part.section.fragment.id, []).extend(part.executes)
        for fragment in plan.fragments:
            assert sorted(set(executed[fragment.id])) == sorted(fragment.nodes), fragment
        steps = steps_for(plan)
        while running.progress.env_steps < steps:
            running.one_pass()
        assert running.progress.env_steps == steps
        assert running.progress.learned > 0
        check_carried(plan, running)
        return matrix.arrays(running), running.progress.counters()
    finally:
        running.close()


def run_processes(plan: Plan) -> tuple[list[np.ndarray], dict[str, int]]:
    """The same in real processes."""
    algorithm, env = matrix.case(name_of(plan), "single")
    steps = steps_for(plan)
    options = Options(evaluate=False, steps=steps, hang_seconds=TIMEOUT)
    running = Processes(plan, algorithm, env, SEED, options)
    try:
        end = time.monotonic() + TIMEOUT
        while running.progress.env_steps < steps:
            assert time.monotonic() < end, (plan.to_json(), running.progress, running.ledger.passes)
            running.advance()
        running._finish()
        assert (
            len(running.processes)
            == sum(fragment.replicas for fragment in plan.fragments)
            == len(training_members(plan))
        )
        assert len({process.handle.pid for process in running.processes}) == len(running.processes)
        for process in running.processes:
            fragment = next(one for one in plan.fragments if one.id == process.task.fragment)
            assert sorted(running.ledger.executed(running.member(process))) == sorted(fragment.nodes), process.name
        found = matrix.arrays(running), running.progress.counters()
        check_carried(plan, running)
        return found
    finally:
        running.close()


def check_carried(plan: Plan, running: Any) -> None:
    """Each cut was carried by its channel, to the byte where what crosses is known."""
    sections, carried = Sections(plan), running.fabric.carried()
    passes = running.progress.passes
    for stream in sections.streams:
        leaves = [jax.tree.leaves(stream.source.output)[leaf] for leaf in stream.leaves]
        each = sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)
        if stream.source.domain == "collect":
            often = passes * stream.source.times
            # What is not sliced along the environments crosses from each replica as a whole.
            whole = [leaf for leaf in leaves if plan.graph.spec.num_envs not in leaf.shape[:2]]
            each += sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in whole) * (stream.sender.replicas - 1)
        else:
            domain = plan.graph.domain_of[stream.source.id]
            often = running.progress.domains(len(plan.graph.domains))[domain]
        assert carried[stream.name] == often * each, (stream.name, carried, often, each)
    for name, store in plan.graph.stores.items():
        assert carried[store.fill.id] > 0, name
