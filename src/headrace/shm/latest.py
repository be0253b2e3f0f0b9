"""The latest weights: one writer, many readers, whole versions only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.shm.memory import Arena, fence
from headrace.types import Array

BUFFERS = 4
"""A reader is overtaken only when three whole versions are published while it copies. Beside a writer that never
pauses, on two busy cores, two readers read 1,100 versions/s each; with two buffers 120 (2026-11-15, test_latest.py)."""


class Latest:
    """Arrays that are replaced together, as one flat vector of bytes in shared memory, numbered from 1."""

    def __init__(self, arena: Arena, structs: Sequence[Any]):
        self.structs = tuple(structs)
        inner = Arena()
        inner.tree(self.structs)
        self._counter = arena.counters(1)
        self._begun = arena.counters(BUFFERS)
        self._buffers = [arena.array(inner.used, np.uint8) for _ in range(BUFFERS)]
        self._views = [self._carve(buffer) for buffer in self._buffers] if arena.block is not None else []

    @property
    def version(self) -> int:
        """The number of the newest complete version, 0 before the first."""
        return int(self._counter[0])

    def publish(self, arrays: Sequence[Array]) -> int:
        """Replace the arrays; returns their version. What a writer that died half-way left is overwritten."""
        version = self.version + 1
        turn = version % BUFFERS
        self._begun[turn] = version  # before the first byte changes: readers that are copying this buffer will notice
        fence()
        for held, array in zip(self._views[turn], arrays, strict=True):
            held[...] = array
        fence()
        self._counter[0] = version
        return version

    def read(
        self, newer_than: int = 0, into: NDArray[np.uint8] | None = None
    ) -> tuple[int, tuple[NDArray[Any], ...]] | None:
        """A copy of the newest version, in `into` (see `room`) or fresh memory; None if there is none newer.

        It retries when the writer overtook it, which takes a new version each time, so it ends when the writer stops.
        """
        while (version := self.version) > newer_than:
            turn = version % BUFFERS
            copy = self.room() if into is None else into
            fence()
            np.copyto(copy, self._buffers[turn])
            fence()
            if self._begun[turn] == version:
                return version, self._carve(copy)
        return None

    def room(self) -> NDArray[np.uint8]:
        """A buffer for one version, reusable once nothing computes from it: XLA may read it in place."""
        return np.empty(self._buffers[0].size, np.uint8)

    def _carve(self, buffer: NDArray[np.uint8]) -> tuple[NDArray[Any], ...]:
        views: tuple[NDArray[Any], ...] = Arena(buffer).tree(self.structs)
        return views
