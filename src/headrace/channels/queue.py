"""A bounded ring of preallocated slots, from one producer to one consumer: blocks, never drops, never reorders."""

from __future__ import annotations

from typing import NamedTuple

from headrace.channels.memory import Layout, fence
from headrace.channels.wait import Alive, wait
from headrace.types import Tree


class Slot(NamedTuple):
    """What a consumer sees: views, valid until `release`, and the version of the weights they were made with."""

    version: int
    arrays: Tree


class Queue:
    """Trees of one shape in order; both counters are shared, so either side may be replaced and carry on.

    What a producer had reserved but not committed is written anew; what a consumer had not released is seen again.
    """

    def __init__(self, layout: Layout, struct: Tree, slots: int):
        self.slots = slots
        self._produced = layout.counters(1)
        self._consumed = layout.counters(1)
        self._versions = layout.array(slots, "int64")
        self._arrays = [layout.tree(struct) for _ in range(slots)]

    @property
    def produced(self) -> int:
        """Slots ever committed."""
        return int(self._produced[0])

    @property
    def consumed(self) -> int:
        """Slots ever released."""
        return int(self._consumed[0])

    def __len__(self) -> int:
        return self.produced - self.consumed

    def reserve(self, timeout: float, alive: Alive) -> Tree:
        """The arrays to write into, once there is room; they hold what was there before."""
        wait(lambda: self._produced[0] - self._consumed[0] < self.slots, timeout, alive, "the consumer of a full queue")
        return self._arrays[self.produced % self.slots]

    def commit(self, version: int) -> None:
        """Hand over the slot reserved, written with weights of this version."""
        self._versions[self.produced % self.slots] = version
        fence()
        self._produced[0] += 1

    def peek(self, timeout: float, alive: Alive) -> Slot:
        """The oldest slot, once there is one; the same one until it is released."""
        wait(lambda: self._produced[0] > self._consumed[0], timeout, alive, "the producer of an empty queue")
        at = self.consumed % self.slots
        return Slot(int(self._versions[at]), self._arrays[at])

    def release(self) -> None:
        """Give the slot back: it may be overwritten from this moment.

        XLA on a CPU may read NumPy arrays in place, and later: wait for what was computed from them first.
        """
        fence()
        self._consumed[0] += 1

    def restart(self, number: int) -> None:
        """Be empty, as after so many slots: where a run goes on whose last slots were lost."""
        self._produced[0] = self._consumed[0] = number
