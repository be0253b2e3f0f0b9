"""Sends the output of a node every pass from the replicas of one fragment to those of another, re-sliced.

A slot holds the output of one pass. In a pass of several steps each step is announced as it is written, so a receiver
can use it at once, and has the whole pass in one place at its end, without a copy. Where the two
sides have different numbers of replicas, the side with fewer has the slots, and each replica of the other a part of
them along the environments.

A slot is free again when every receiver has released its pass. Every counter has one writer; the successor of a sender
or receiver finds what its predecessor announced, and continues from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.shm.memory import Arena, fence


class Ring:
    """The slots between all senders and all receivers."""

    def __init__(
        self,
        arena: Arena,
        structs: Sequence[Any],
        senders: int,
        receivers: int,
        *,
        slots: int = 2,
        steps: int = 1,
        axis: int = 0,
        stacked: bool = False,
    ):
        """`structs` are the shapes of a pass for one replica of the side with fewer replicas; `axis` is that of
        environments. `stacked` if the first axis is that of `steps`, which are written one by one."""
        assert stacked or steps == 1, "steps that are written one by one need an axis of their own"
        self.senders, self.receivers = senders, receivers
        self.slots, self.steps, self.axis, self.stacked = slots, steps, axis, stacked
        few = min(senders, receivers)
        self.produced: NDArray[np.int64] = arena.counters(senders)
        """Steps that each sender has announced."""
        self.consumed: NDArray[np.int64] = arena.counters(receivers)
        """Passes that each receiver has released."""
        self._arrays = [[[arena.array(s.shape, s.dtype) for s in structs] for _ in range(slots)] for _ in range(few)]
        self.bytes: int = sum(int(np.prod(s.shape)) * np.dtype(s.dtype).itemsize for s in structs) * few // senders
        """Bytes of a pass of one sender."""

    @property
    def carried(self) -> int:
        """Bytes sent so far."""
        return int(int(self.produced.sum()) * self.bytes // self.steps)

    def restart(self, passes: int) -> None:
        """Empty the ring, as after `passes` passes."""
        self.produced[:] = passes * self.steps
        self.consumed[:] = passes

    def views(self, place: int, number: int) -> list[list[NDArray[Any]]]:
        """The part of each slot's arrays that belongs to replica `place` of `number` on a side."""
        each = number // len(self._arrays)
        own, part = divmod(place, each)

        def view(array: NDArray[Any]) -> NDArray[Any]:
            if each == 1:
                return array
            size = array.shape[self.axis] // each
            at = (*(slice(None),) * self.axis, slice(part * size, (part + 1) * size))
            return array[at]

        return [[view(array) for array in slot] for slot in self._arrays[own]]

    def opposite(self, place: int, number: int, others: int) -> slice:
        """The replicas of the other side that replica `place` of `number` exchanges data with."""
        if others <= number:
            at = place // (number // others)
            return slice(at, at + 1)
        each = others // number
        return slice(place * each, (place + 1) * each)


class Sender:
    """One replica that sends."""

    def __init__(self, ring: Ring, place: int):
        self.ring = ring
        self.views = ring.views(place, ring.senders)
        self.produced = ring.produced[place : place + 1]
        self.consumed = ring.consumed[ring.opposite(place, ring.senders, ring.receivers)]

    def free(self, number: int) -> bool:
        """Whether pass `number` may be written."""
        return bool(number - self.consumed.min() < self.ring.slots)

    def send(self, number: int, step: int, leaves: Sequence[Any]) -> list[NDArray[Any]] | None:
        """Write and announce a step of a pass; one that was announced before stays as it was, and is returned."""
        at = number * self.ring.steps + step
        slot = self.views[number % self.ring.slots]
        if self.produced[0] > at:
            return [held[step] if self.ring.stacked else held for held in slot]
        assert self.produced[0] == at, f"step {at} is sent out of turn"
        assert self.free(number), f"pass {number} is sent before there is room"
        fence()
        for held, leaf in zip(slot, leaves, strict=True):
            if self.ring.stacked:
                held[step] = leaf
            else:
                held[...] = leaf
        fence()
        self.produced[0] = at + 1
        return None


class Receiver:
    """One replica that receives."""

    def __init__(self, ring: Ring, place: int):
        self.ring = ring
        self.views = ring.views(place, ring.receivers)
        self.consumed = ring.consumed[place : place + 1]
        self.produced = ring.produced[ring.opposite(place, ring.receivers, ring.senders)]

    def ready(self, number: int, step: int) -> bool:
        """Whether all senders have announced a step of a pass."""
        return bool(self.produced.min() > number * self.ring.steps + step)

    def take(self, number: int) -> list[NDArray[Any]]:
        """The arrays of a pass: views, valid until `release`; of its steps, those that are `ready`."""
        fence()
        return self.views[number % self.ring.slots]

    def release(self, number: int) -> None:
        """Release a pass: its slot may be overwritten."""
        fence()
        if self.consumed[0] <= number:
            self.consumed[0] = number + 1
