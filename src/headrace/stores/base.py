"""What every kind of store offers: to the loop, to the plan, and to those who fill it and learn from it.

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
    """What a loop asks of a store in a learning pass, and how fast it may ask. `collected` are the transitions of one
    collecting pass, over all environments."""

    filler: str
    """The node that fills the store."""
    after: Any
    """Transitions that are in before the first draw."""
    staleness: Any
    """How many versions behind the learner the actor may have been; None where it does not matter."""
    fused: Any
    """Whether several passes may be drawn at once and learned from as one program."""
    kind: Any
    """The kind of edge between who fills the store and who draws from it."""

    @abstractmethod
    def rate(self, collected: int) -> Fraction:
        """Learning passes for each transition collected."""

    @abstractmethod
    def due(self, collected: int, passes: int) -> int:
        """Learning passes that so many collecting passes allow."""

    @abstractmethod
    def needed(self, collected: int, learned: int) -> int:
        """Collecting passes that so many learning passes need."""

    @abstractmethod
    def frames(self, collected: int) -> int:
        """Transitions that one learning pass learns from."""


class Store(ABC):
    """Rows of a run, between those who collect (writers, one for each slice of the environments) and those who learn
    (readers). All counters have one writer each, so any of them may be replaced and carry on."""

    @abstractmethod
    def room(self, writer: int, number: int) -> Leaves | None:
        """Memory of the store's own to collect pass `number` into; None where rows are copied into it."""

    @abstractmethod
    def insert(self, rows: Leaves, writer: int, number: int) -> None:
        """Keep what pass `number` of a writer collected; what is there already stays as it is."""

    @abstractmethod
    def draw(self, how: Any, rng: np.random.Generator, first: int, count: int, reader: int) -> Leaves:
        """What learning passes from `first` on learn from: `count` of them along a first axis, if they are fused."""

    @abstractmethod
    def release(self, reader: int, learned: int) -> None:
        """Let go of what a reader that has come so far will not ask for again."""

    @abstractmethod
    def sever(self, writer: int) -> None:
        """What a writer inserts next does not follow what it inserted last."""

    @abstractmethod
    def contents(self) -> dict[str, Any] | None:
        """What a checkpoint keeps, as views; None where everything in it has been learned from by then."""

    @abstractmethod
    def fill(self, contents: dict[str, Any] | None, passes: int) -> None:
        """Take over what a checkpoint kept, after so many collecting passes."""


class Fill(Protocol):
    """How a loop fills a store."""

    @property
    def channel(self) -> Any:
        """What carries the rows from those who fill to those who draw."""

    def require(self, row: Tree) -> None:
        """Refuse a store of such rows that would not fit into memory."""

    def make(self, handed: Tree, writers: int, readers: int, ahead: int, arena: Any) -> Store:
        """The store, in an arena. `handed` has the shapes of what a writer inserts at once; at most `ahead` passes are
        not learned from when another one begins."""


@dataclass(frozen=True)
class StoreKind:
    """A kind of store, as `headrace.stores` registers it."""

    handle: type
    """How a loop's argument is annotated."""
    symbolic: Callable[[LoopTracer, str], Any]
    """What the loop is given while it is traced."""


def join(parts: Sequence[Sequence[NDArray[Any]]], axis: int) -> Leaves:
    """The arrays of several writers as one; as they are where there is one writer."""
    columns = zip(*parts, strict=True)
    return [column[0] if len(column) == 1 else np.concatenate(column, axis=axis) for column in columns]
