"""Measuring learners: the programs of a run on random batches, drawn as a run draws them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import jax
import numpy as np

from headrace.compile.rng import PassRng, bases, draws
from headrace.graph import Graph
from headrace.stores.replay import Sample, Table
from headrace.tune.probe import LONG, ROUNDS, WINDOW, WINDOWS, Task, Tell, device, prepare
from headrace.tune.timing import Moment
from headrace.types import tree_bytes

HELD = 1 << 25
"""Bytes of the table that batches are drawn from: more than a core's cache holds."""

Draw = Callable[[PassRng], Any]
"""What a program learns from."""


def learn(task: Task, tell: Tell) -> None:
    """Tell the `seconds` of a program of each `fragment`, for each `repeat` and `size`; then again."""
    graph, programs, flat = prepare(task)
    usual = task.programs[0][1]
    (store,) = graph.stores.values()
    held = random_table(graph, usual) if graph.domains[0].fused else random_rows(store.struct)
    known = {usual: (graph, programs)}
    compiled: dict[tuple[str, int], Callable[..., Any]] = {}
    for number in count(1):
        for repeat, size in task.programs:
            if size not in known:
                known[size] = prepare(task, batch_size=size)[:2]
            graph, programs = known[size]
            for fragment in task.fragments:
                name = fragment["id"]
                if (name, size) not in compiled:
                    stages = [n for n in graph.where(domain="learn", kind="stage") if n.id in fragment["nodes"]]
                    program = programs.learner(stages, graph.domains[0].fused)
                    compiled[name, size] = jax.jit(program, donate_argnums=0)
                with jax.default_device(device(task, fragment)):
                    found = partial(tell, fragment=name, threads=task.threads, repeat=repeat, size=size)
                    draw = partial(drawn, graph, held, repeat)
                    flat = clock(compiled[name, size], flat, bases(graph, 0, 0), draw, task.threads, found)
        tell(done=number >= ROUNDS)


def drawn(graph: Graph, held: Any, repeat: int, rng: PassRng) -> Any:
    """What a learner gives its program: a trajectory, or as many batches as are fused."""
    (source,) = graph.domains[0].sources
    if isinstance(held, Table) and isinstance(source.operation, Sample):
        return {source.id: held.draw(source.operation, draws(source, rng), 0, repeat)}
    return {source.id: held}


def clock(program: Callable[..., Any], flat: list[Any], keys: Any, draw: Draw, threads: int, found: Tell) -> list[Any]:
    """Time a program some times, drawing included; returns the cells, which it was given for good."""

    def once(flat: list[Any], number: int) -> list[Any]:
        rng = PassRng(keys, np.uint32(number))
        flat, _ = program(flat, draw(rng), rng)
        jax.block_until_ready(flat)
        return flat

    flat = once(flat, 0)  # compiles
    began = Moment.now()
    for window in range(WINDOWS):
        since, times = Moment.now(), 0
        while not times or time.perf_counter() - since.wall < WINDOW:
            times += 1
            flat = once(flat, window * 1000 + times)
        now = Moment.now()
        found(**now.told(since, threads, times))
        if now.wall - began.wall > LONG:
            break
    return flat


def random_rows(like: Any) -> list[Any]:
    """Arrays such as these: numbers at random, whole numbers and truth values 0, which every space has."""
    rng = np.random.default_rng(0)

    def made(leaf: Any) -> Any:
        rows = np.zeros(leaf.shape, leaf.dtype)
        if np.issubdtype(leaf.dtype, np.floating):
            rows[...] = rng.standard_normal(leaf.shape, np.float32)
        return rows

    return [made(leaf) for leaf in jax.tree.leaves(like)]


def random_table(graph: Graph, size: int) -> Table:
    """A full table of random transitions."""
    (store,) = graph.stores.values()
    capacity: int = store.operation.capacity  # type: ignore[attr-defined]
    table = Table(store.struct, 1, min(capacity, max(size, HELD // tree_bytes(store.row))))
    for held, rows in zip(jax.tree.leaves(table.rows), random_rows(table.rows), strict=True):
        held[...] = rows
    table.written[:] = table.steps
    return table
