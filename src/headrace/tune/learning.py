"""Measuring learners: the programs of a run on random batches, drawn as a run draws them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import jax
import numpy as np

from headrace.compile.rng import PassRng, bases, draws
from headrace.graph import Graph
from headrace.stores.replay import Sample, Table
from headrace.tune.probe import ROUNDS, Task, device, prepare
from headrace.tune.timing import Enough, Stopwatch, Tell
from headrace.types import tree_bytes

HELD = 1 << 25
"""Bytes of the table that batches are drawn from: more than a core's cache holds."""


def learn(task: Task, tell: Tell) -> None:
    """Tell the `seconds` of a program of each `fragment`, for each `repeat` and `size`; then again."""
    known: dict[int, tuple[Graph, list[Callable[..., Any]]]] = {}
    """The graph for each size, and the programs of the fragments."""
    flat, held = list[Any](), None
    for number in count(1):
        for repeat, size in task.programs:
            if size not in known:
                graph, programs, begin = prepare(task, **({"batch_size": size} if known else {}))
                if held is None:
                    flat, held = begin, random_store(graph, size)
                stages = graph.where(domain="learn", kind="stage")
                mine = [[node for node in stages if node.id in one["nodes"]] for one in task.fragments]
                made = [programs.learner(nodes, graph.domains[0].fused) for nodes in mine]
                known[size] = graph, [jax.jit(program, donate_argnums=0) for program in made]
            graph, compiled = known[size]
            for fragment, program in zip(task.fragments, compiled, strict=True):
                found = partial(tell, fragment=fragment["id"], threads=task.threads, repeat=repeat, size=size)
                with jax.default_device(device(task, fragment)):
                    flat = learn_until(Stopwatch(found, task.threads), graph, program, flat, held, repeat)
        tell(done=number >= ROUNDS)


def learn_until(
    watch: Stopwatch, graph: Graph, program: Callable[..., Any], flat: list[Any], held: Any, repeat: int
) -> list[Any]:
    """Draw and learn as a learner does, until the watch has seen enough; returns the cells, which were given away."""
    (source,) = graph.domains[0].sources
    keys = bases(graph, 0, 0)
    try:
        for number in count():
            rng, given = PassRng(keys, np.uint32(number)), held
            if isinstance(held, Table) and isinstance(source.operation, Sample):
                given = held.draw(source.operation, draws(source, rng), 0, repeat)
            flat, _ = program(flat, {source.id: given}, rng)
            jax.block_until_ready(flat)
            watch()
    except Enough:
        pass
    return flat


def random_store(graph: Graph, size: int) -> Any:
    """What a learner draws from: a full table of random transitions, or a random trajectory."""
    (store,) = graph.stores.values()
    if not graph.domains[0].fused:
        return random_rows(store.struct)
    capacity: int = store.operation.capacity  # type: ignore[attr-defined]
    table = Table(store.struct, 1, min(capacity, max(size, HELD // tree_bytes(store.row))))
    for held, rows in zip(jax.tree.leaves(table.rows), random_rows(table.rows), strict=True):
        held[...] = rows
    table.written[:] = table.steps
    return table


def random_rows(like: Any) -> list[Any]:
    """Arrays such as these: numbers at random, whole numbers and truth values 0, which every space has."""
    rng = np.random.default_rng(0)

    def made(leaf: Any) -> Any:
        rows = np.zeros(leaf.shape, leaf.dtype)
        if np.issubdtype(leaf.dtype, np.floating):
            rows[...] = rng.standard_normal(leaf.shape, np.float32)
        return rows

    return [made(leaf) for leaf in jax.tree.leaves(like)]
