"""One replica of a loop's data: its environments, acted in, and its store, learned from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from headrace.channels.table import Table
from headrace.envs import Episode, HostEnv
from headrace.graph import Graph, Plan
from headrace.graph.compile import Programs, Ticket, bases, share_of
from headrace.runtimes.collect import Collector, collect_in_turn
from headrace.types import Array


class Part:
    """Collects with some sets of environments into a store of its own, and takes from it."""

    def __init__(
        self,
        graph: Graph,
        programs: Programs,
        envs: Sequence[HostEnv],
        table: Table | None,
        seed: int,
        first: int,
        jit: Callable[..., Any] = jax.jit,
        stepping: Callable[[], None] | None = None,
    ):
        """`first` is the number of its first set of environments in the whole run: random keys follow from it."""
        self.source = graph.source
        self.bases = bases(graph, seed, first)
        self.table = table
        self.collectors = [
            Collector(graph, programs, env, seed, first + i, jit, stepping) for i, env in enumerate(envs)
        ]
        self.trajectory: list[Any] = []

    def collect(self, flat: Sequence[Array], number: int) -> None:
        """One pass into the store."""
        handed = collect_in_turn(self.collectors, flat, number)
        if self.table is None:
            columns = zip(*handed, strict=True)
            self.trajectory = [x[0] if len(x) == 1 else np.concatenate(x, axis=1) for x in columns]
        else:
            for writer, rows in enumerate(handed):
                self.table.insert(rows, writer)

    def data(self, learned: int, repeat: int) -> Any:
        """What learning passes from number `learned` on learn from: a trajectory, or a batch for each of `repeat`."""
        if self.table is None:
            return {self.source.id: self.trajectory}
        return self.table.batches(self.source, Ticket(self.bases, np.uint32(learned)), repeat)

    def restart(self, number: int) -> None:
        """Start new episodes before pass `number`."""
        for collector in self.collectors:
            collector.restart(number)

    def drain(self) -> list[Episode]:
        return [episode for collector in self.collectors for episode in collector.env.drain()]

    def close(self) -> None:
        for collector in self.collectors:
            collector.env.close()


def table_of(plan: Plan, graph: Graph, allocate: Callable[..., Any] = np.zeros) -> Table | None:
    """The store of one part, whose graph this is; None where trajectories are learned from as they come."""
    if graph.on_policy:
        return None
    sets = sets_of(plan)
    return Table(share_of(graph, sets), sets, graph.capacity, allocate)


def sets_of(plan: Plan) -> int:
    """Sets of environments of one part."""
    return plan.collecting // plan.parts
