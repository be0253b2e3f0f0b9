"""What the processes of a run share, over one block of memory: stores, weights, counters, results."""

from __future__ import annotations

import time
from typing import Any

import jax
import numpy as np

from headrace.channels.latest import Latest
from headrace.channels.memory import Layout
from headrace.channels.queue import Queue
from headrace.channels.table import Table
from headrace.core.cells import Cell
from headrace.envs import Episode
from headrace.graph import Plan
from headrace.graph.compile import Shelf
from headrace.runtimes.pace import Pace

EPISODES = 512
"""Finished episodes a sampler may be ahead of whoever reads them; older ones are forgotten."""

EVALUATED = 10
"""Episodes of one evaluation."""

QUEUED = 2
"""Trajectories of one sampler between it and the learner."""


class Shared:
    """Made alike in every process, so that all see the same arrays."""

    def __init__(self, layout: Layout, plan: Plan, cells: dict[str, Cell]):
        graph = plan.graph
        self.plan = plan
        self.pace = Pace.of(plan)
        self.shelf = Shelf(cells)
        self.replicas = plan.collector.replicas
        self._flags = layout.counters(4)
        self._learned = layout.counters(1)
        self.passes = layout.counters(self.replicas)
        """Collecting passes that each sampler has handed over."""
        self.paused = layout.counters(self.replicas + 1)
        """The last request to pause that each sampler, and the learner, has followed."""
        self.beats = layout.counters(self.replicas + 2)
        """When each sampler, the learner and the evaluator last showed a sign of life, in nanoseconds."""
        self.finished = layout.counters(self.replicas)
        self.episodes = layout.array((self.replicas, EPISODES, 2), np.float64)
        self.names = [name for node in graph.where(role="learning") for name in node.output]
        self.metrics = layout.array(max(1, len(self.names)), np.float64)
        arrays = self.shelf.flat(cells)
        structs = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in arrays]
        read = {bound.cell for node in (*graph.where(domain="collect"), graph.play) for bound in node.reads}
        self.seen = [i for name in sorted(read) for i in self.shelf.modules[name]]
        """Where the arrays that samplers and the evaluator read stand among all of them."""
        self.weights = Latest(layout, [structs[i] for i in self.seen])
        self.state = Latest(layout, structs)
        self.score = Latest(layout, [jax.ShapeDtypeStruct((2, EVALUATED), np.float64)])
        share = jax.tree.map(lambda leaf: _share(leaf, self.replicas, graph.on_policy), graph.stored)
        self.table: Table | None = None
        self.queues: list[Queue] = []
        if graph.on_policy:
            self.queues = [Queue(layout, jax.tree.leaves(share), QUEUED) for _ in range(self.replicas)]
        else:
            self.table = Table(share, self.replicas, graph.sink.option("capacity"), allocate=layout.array)

    @property
    def stopping(self) -> bool:
        return bool(self._flags[0])

    def stop(self) -> None:
        """Let every process end after what it is doing."""
        self._flags[0] = 1

    @property
    def pauses(self) -> int:
        """Requests to pause so far; odd while a pause lasts."""
        return int(self._flags[1])

    def pause(self, wanted: bool) -> None:
        """Ask samplers and learner to stand still, or let them go on."""
        if bool(self.pauses % 2) != wanted:
            self._flags[1] += 1

    @property
    def learned(self) -> int:
        """Learning passes run so far."""
        return int(self._learned[0])

    @learned.setter
    def learned(self, value: int) -> None:
        self._learned[0] = value

    @property
    def updates(self) -> int:
        """Optimiser steps, as the learner last counted them."""
        return int(self._flags[2])

    @updates.setter
    def updates(self, value: int) -> None:
        self._flags[2] = value

    def beat(self, who: int) -> None:
        """Show a sign of life."""
        self.beats[who] = time.time_ns()

    def flat(self, weights: tuple[Any, ...]) -> list[Any]:
        """The list of all arrays with only those filled in that samplers read."""
        flat: list[Any] = [None] * len(self.state.structs)
        for place, array in zip(self.seen, weights, strict=True):
            flat[place] = jax.numpy.array(array)
        return flat

    def report(self, replica: int, episodes: list[Episode]) -> None:
        """Hand over the episodes that a sampler finished."""
        for episode in episodes:
            self.episodes[replica, self.finished[replica] % EPISODES] = episode
            self.finished[replica] += 1


def _share(leaf: Any, replicas: int, trajectory: bool) -> jax.ShapeDtypeStruct:
    """The part of one replica: environments are the first axis of a step and the second of a trajectory."""
    axis = 1 if trajectory else 0
    shape = list(leaf.shape)
    shape[axis] //= replicas
    return jax.ShapeDtypeStruct(tuple(shape), leaf.dtype)
