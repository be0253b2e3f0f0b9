"""A bounded ring of preallocated slots, from one producer to one consumer: never drops, never reorders."""

from __future__ import annotations

from headrace.shm.memory import Arena, fence
from headrace.types import Tree


class Queue:
    """Trees of one shape in order; both counters are shared, so the successor of either side can carry on.

    What a producer had not committed is written again by its successor; what a consumer had not released is seen again.
    Nothing here waits: a producer asks whether the ring is `full`, a consumer whether it is empty (`len`).
    """

    def __init__(self, arena: Arena, struct: Tree, slots: int):
        self.slots = slots
        self._produced = arena.counters(1)
        self._consumed = arena.counters(1)
        self._versions = arena.array(slots, "int64")
        self._arrays = [arena.tree(struct) for _ in range(slots)]

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

    @property
    def full(self) -> bool:
        return len(self) >= self.slots

    def slot(self) -> Tree:
        """The arrays to write into, with old contents; not while it is full."""
        assert not self.full, f"a queue of {self.slots} slots is full"
        fence()
        return self._arrays[self.produced % self.slots]

    def commit(self, version: int = 0) -> None:
        """Hand over the slot, written with weights of this version."""
        self._versions[self.produced % self.slots] = version
        fence()
        self._produced[0] += 1

    def oldest(self) -> Tree:
        """The arrays of the oldest slot, valid until it is released; not while it is empty."""
        assert len(self), "an empty queue has no oldest slot"
        fence()
        return self._arrays[self.consumed % self.slots]

    @property
    def version(self) -> int:
        """The version of the weights that the oldest slot was written with."""
        return int(self._versions[self.consumed % self.slots])

    def release(self) -> None:
        """Release the oldest slot: it may be overwritten from this moment.

        XLA on a CPU may read NumPy arrays in place, and later: wait for what was computed from them first.
        """
        fence()
        self._consumed[0] += 1

    def restart(self, number: int) -> None:
        """Empty the queue, as after `number` slots: for resuming a run whose last slots were lost."""
        self._produced[0] = self._consumed[0] = number
