"""Shared memory without names, and arrays carved out of it.

A block begins as zeros, and zeros are the initial state of every channel. Parent and child make the same channels in
the same order over the same block, so both hold the same views and nothing but the block's description is handed over.

Ordering: every channel writes its payload before the counter that announces it, and reads the counter before the
payload. All counters are aligned int64, stored and loaded whole. `fence` stands between counter and payload, always.
"""

from __future__ import annotations

import math
import mmap
import os
import platform
import sys
import threading
from collections.abc import Callable
from multiprocessing import resource_tracker, shared_memory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.machine import require_memory
from headrace.types import Tree, empty_like

LINE = 64
"""Bytes of a cache line: every array begins on one, and two counters never share one."""

Description = dict[str, int | str]
"""`{"fd": 5, "bytes": 4096}` or `{"name": "psm_1", "bytes": 4096}`: what a child needs to attach, as JSON."""

_kept: list[shared_memory.SharedMemory] = []


def _fence() -> None:
    # What comes before cannot sink below a release, what comes after cannot rise above an acquire, and an acquire of
    # the same lock does not overtake the release before it: C libraries implement locks by such instructions.
    lock = threading.Lock()
    lock.acquire()
    lock.release()
    lock.acquire()


def _nothing() -> None:
    """x86 keeps the order of stores and of loads (TSO)."""


fence: Callable[[], None] = _nothing if platform.machine().lower() in ("x86_64", "amd64", "i686", "x86") else _fence
"""Orders memory accesses: other processes see writes before it no later than writes after it, and reads likewise. A
quarter of a microsecond on ARM, free on x86."""


class Arena:
    """Arrays of a block, one after the other; without a block it only counts the bytes they would take."""

    def __init__(self, block: NDArray[np.uint8] | None = None):
        self.block = block
        self.used = 0

    def array(self, shape: int | tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """The next array; its arguments are those of `np.zeros`."""
        kind = np.dtype(dtype)
        dims = (shape,) if isinstance(shape, int) else shape
        start, end = self.used, self.used + math.prod(dims) * kind.itemsize
        self.used = -(-end // LINE) * LINE
        if self.block is None:
            return np.broadcast_to(np.zeros((), kind), dims)
        if end > self.block.size:
            raise ValueError(f"a block of {self.block.size} bytes has no room for an array that ends at byte {end}")
        view: NDArray[Any] = self.block[start:end].view(kind).reshape(dims)
        return view

    def tree(self, struct: Tree, *lead: int) -> Tree:
        """The next arrays, shaped like a tree, each with `lead` axes in front."""
        return empty_like(struct, *lead, make=self.array)

    def counters(self, number: int) -> NDArray[np.int64]:
        """Counters for one writer each: on cache lines of their own, so that writers do not slow each other."""
        return self.array((number, LINE // 8), np.int64)[:, 0]


def measure(make: Callable[[Arena], object]) -> int:
    """The bytes of a block over which `make` can make its channels."""
    arena = Arena()
    make(arena)
    return arena.used


class Memory:
    """A block of memory that processes share; made by `create` in one and by `attach` in the others."""

    def __init__(self, block: NDArray[np.uint8], description: Description, release: Callable[[], None]):
        self.block = block
        self.description = description
        self._release: Callable[[], None] | None = release

    @staticmethod
    def create(number: int, what: str, remedy: str, named: bool = sys.platform != "linux") -> Memory:
        """A block of `number` bytes, all zero; refused where it would not fit, saying `what` it is for."""
        require_memory(what, number, remedy)
        size = max(number, LINE)
        if named or sys.platform != "linux":
            return _named(shared_memory.SharedMemory(create=True, size=size), size, owner=True)
        fd = os.memfd_create(f"headrace {what}"[:200])
        os.ftruncate(fd, size)
        return _anonymous(fd, size)

    @staticmethod
    def attach(description: Description) -> Memory:
        """The block that another process described; an `fd` must have been passed to this one as it was started."""
        size = int(description["bytes"])
        if "fd" in description:
            fd = int(description["fd"])
            os.set_inheritable(fd, False)  # child processes must not inherit it
            return _anonymous(fd, size)
        name = str(description["name"])
        if sys.version_info >= (3, 13):
            return _named(shared_memory.SharedMemory(name, track=False), size, owner=False)
        held = shared_memory.SharedMemory(name)
        if os.name == "posix":  # or this process's resource tracker would remove the block when it ends
            resource_tracker.unregister(f"/{held.name.lstrip('/')}", "shared_memory")
        return _named(held, size, owner=False)

    @property
    def fds(self) -> tuple[int, ...]:
        """File descriptors for `pass_fds` of `subprocess.Popen`."""
        return (int(self.description["fd"]),) if "fd" in self.description else ()

    def arena(self) -> Arena:
        """An arena from the beginning of the block."""
        return Arena(self.block)

    def close(self) -> None:
        """Release the block. Views stay valid; the memory is freed with the last view in the last process."""
        if self._release is not None:
            self._release()
            self._release = None
            self.block = np.zeros(0, np.uint8)


def _anonymous(fd: int, size: int) -> Memory:
    # The mapping is never closed by hand, which would raise while views exist: it ends with the last view.
    block = np.frombuffer(mmap.mmap(fd, size), np.uint8)
    return Memory(block, {"fd": fd, "bytes": size}, lambda: os.close(fd))


def _named(held: shared_memory.SharedMemory, size: int, owner: bool) -> Memory:
    def release() -> None:
        if owner:
            held.unlink()
        # Views may still exist, and its destructor would raise then: it lives as long as the process.
        _kept.append(held)

    return Memory(np.ndarray(size, np.uint8, held.buf), {"name": held.name, "bytes": size}, release)
