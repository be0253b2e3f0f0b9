"""The interface of every kind of store: for the loop, for the plan, and for the sections that fill it and draw from it.

A kind of store is one file: the operations that a loop records (a `Fill` and a `Draw`, which know the rate), the handle
that records them, and the `Store` that holds the rows. It is registered once, in `headrace.stores`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.core.stage import LoopTracer
from headrace.types import Tree

Leaves = list[Any]
"""The arrays of a transition, trajectory or batch, in the order of its tree."""


class Draw(ABC):
    """A draw from a store in each learning pass, and its rate. `collected` is the number of transitions of one
    collecting pass, over all environments."""

    filler: str
    """The node that fills the store."""
    after: Any
    """Transitions inserted before the first draw."""
    staleness: Any
    """How many weight versions the actor may be behind the learner; None where there is no limit."""
    fused: Any
    """Whether several passes may be drawn at once and run as one program."""
    kind: Any
    """The kind of the edge from the node that fills the store to this one."""

    @abstractmethod
    def rate(self, collected: int) -> Fraction:
        """Learning passes for each transition collected."""

    @abstractmethod
    def due(self, collected: int, passes: int) -> int:
        """Learning passes allowed after `passes` collecting passes."""

    @abstractmethod
    def needed(self, collected: int, learned: int) -> int:
        """Collecting passes needed for `learned` learning passes."""

    @abstractmethod
    def frames(self, collected: int) -> int:
        """Transitions that one learning pass learns from."""


class Store(ABC):
    """Rows of a run, inserted by collecting sections (writers, one for each slice of the environments) and drawn by
    learning sections (readers). Every counter has one writer, so a process that is replaced can carry on from it."""

    @abstractmethod
    def room(self, writer: int, number: int) -> Leaves | None:
        """Buffers of the store to collect pass `number` into; None where `insert` copies rows."""

    @abstractmethod
    def insert(self, rows: Leaves, writer: int, number: int) -> bool:
        """Insert the rows of pass `number` of a writer; rows a predecessor already inserted stay. Whether it had."""

    @abstractmethod
    def draw(self, how: Any, rng: np.random.Generator, first: int, count: int, reader: int) -> Leaves:
        """The data for learning passes from `first` on; for `count` fused passes, along a first axis."""

    @abstractmethod
    def release(self, reader: int, learned: int) -> None:
        """Free what a reader no longer needs after `learned` learning passes."""

    @abstractmethod
    def sever(self, writer: int) -> None:
        """Mark that the next rows of a writer do not continue its last episode."""

    @abstractmethod
    def contents(self) -> dict[str, Any] | None:
        """The contents for a checkpoint, as views; None where everything has been learned from when one is written."""

    @abstractmethod
    def fill(self, contents: dict[str, Any] | None, passes: int) -> None:
        """Restore the contents from a checkpoint, after `passes` collecting passes."""


class Fill(Protocol):
    """How a loop fills a store."""

    @property
    def channel(self) -> Any:
        """The channel that carries rows from writers to readers."""

    def require(self, row: Tree) -> None:
        """Refuse a store of such rows that would not fit into memory."""

    def make(self, handed: Tree, writers: int, readers: int, ahead: int, arena: Any) -> Store:
        """Make the store in an arena. `handed` has the shapes of what a writer inserts at once; at most `ahead` passes
        are not yet learned from when another one begins."""


@dataclass(frozen=True)
class StoreKind:
    """A kind of store, as `headrace.stores` registers it."""

    handle: type
    """The annotation of a loop's argument."""
    symbolic: Callable[[LoopTracer, str], Any]
    """Makes the symbolic store that a loop is traced with."""


def join(parts: Sequence[Sequence[NDArray[Any]]], axis: int) -> Leaves:
    """Concatenate the arrays of several writers; those of a single writer are not copied."""
    columns = zip(*parts, strict=True)
    return [column[0] if len(column) == 1 else np.concatenate(column, axis=axis) for column in columns]
