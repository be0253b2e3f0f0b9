"""Rollout: a first-in, first-out store, whose trajectories are each learned from once."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import jax
import numpy as np

from headrace.core.handles import Rollout
from headrace.core.symbols import Handle, checked, leading, require_whole
from headrace.errors import LoopError
from headrace.shm.memory import Arena
from headrace.shm.queue import Queue
from headrace.stores.base import Draw, Leaves, Store, StoreKind, join
from headrace.types import Transition, Tree

ENVS = 1
"""The axis of environments in a trajectory."""


@dataclass(frozen=True)
class Put:
    """`rollout.put`."""

    channel: ClassVar[str] = "queue"
    kind: ClassVar[str] = "rollout"

    def require(self, row: Tree) -> None:
        """No check: a few trajectories fit in memory."""

    def make(self, handed: Tree, writers: int, readers: int, ahead: int, arena: Arena) -> Store:
        return Trajectories(handed, writers, readers, ahead, arena)


@dataclass(frozen=True)
class Take(Draw):
    """`rollout.take`: each collecting pass is learned from by one learning pass."""

    filler: str
    epochs: int
    staleness: int
    after = 0
    kind = "rollout"
    fused = False

    def rate(self, collected: int) -> Fraction:
        return Fraction(1, collected)

    def due(self, collected: int, passes: int) -> int:
        return passes

    def needed(self, collected: int, learned: int) -> int:
        return max(0, learned)

    def frames(self, collected: int) -> int:
        return self.epochs * collected


class SymbolicRollout(Handle, Rollout):
    """Records trajectories put and taken."""

    @checked
    def put(self, trajectory: Transition) -> None:
        one_step = len(leading(self.tracer, f"{self.name}.put", trajectory)) == 1
        steps = (1,) if one_step else ()  # a single step is taken as a trajectory of one
        self.row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*steps, *leaf.shape), leaf.dtype), trajectory)
        self.tracer.keep(self.name, self.row)
        self.tracer.add("store", f"{self.name}.put", {"trajectory": trajectory}, (), operation=Put())

    @checked
    def take(self, epochs: int = 1, staleness: int = 0) -> Transition:
        if self.row is None:
            raise LoopError(f"the loop takes from '{self.name}' before it puts; call {self.name}.put first.")
        require_whole(f"{self.name}.take", epochs=(epochs, 1), staleness=(staleness, 0))
        how = Take(f"{self.name}.put", epochs, staleness)
        taken: Transition = self.tracer.add("store", f"{self.name}.take", {}, self.row, operation=how)
        return taken


KIND = StoreKind(Rollout, SymbolicRollout)


class Trajectories(Store):
    """A ring of slots from each writer to each reader; a writer collects directly into the slot of the first reader."""

    def __init__(self, handed: Tree, writers: int, readers: int, ahead: int, arena: Arena):
        leaves = jax.tree.leaves(handed)
        # One more than may be ahead: a pass is counted as learned from just before its slot is released.
        self.queues = [[Queue(arena, leaves, ahead + 2) for _ in range(writers)] for _ in range(readers)]

    def room(self, writer: int, number: int) -> Leaves | None:
        first = self.queues[0][writer]
        return None if first.produced > number else first.slot()

    def insert(self, rows: Leaves, writer: int, number: int) -> bool:
        there = True
        for queues in self.queues:
            queue = queues[writer]
            if queue.produced > number:
                continue  # committed by a predecessor that died between two readers' queues
            there = False
            slot = queue.slot()
            for held, row in zip(slot, rows, strict=True):
                if held is not row:
                    held[...] = row
            queue.commit()
        return there

    def draw(self, how: Take, rng: np.random.Generator, first: int, count: int, reader: int) -> Leaves:
        return join([queue.oldest() for queue in self.queues[reader]], ENVS)

    def release(self, reader: int, learned: int) -> None:
        for queue in self.queues[reader]:
            while queue.consumed < learned:
                queue.release()

    def sever(self, writer: int) -> None:
        """Nothing to do: trajectories do not continue each other."""

    def contents(self) -> dict[str, Any] | None:
        return None

    def fill(self, contents: dict[str, Any] | None, passes: int) -> None:
        for queue in (queue for queues in self.queues for queue in queues):
            queue.restart(passes)
