"""The rate between two sides of a store: how much may be replayed for what was inserted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from headrace.channels.memory import Layout
from headrace.channels.table import Table
from headrace.channels.wait import Alive, wait
from headrace.errors import ConfigError
from headrace.graph.ir import Node


@dataclass(frozen=True)
class Rate:
    """`per_insert` transitions replayed for each inserted, once `after` are in."""

    after: int
    per_insert: Fraction
    size: int
    """Transitions replayed by one learning pass."""

    @staticmethod
    def of(sample: Node) -> Rate:
        """The rate that a `replay.sample` node asks for."""
        per_insert = Fraction(sample.option("per_insert")).limit_denominator(1_000_000)
        return Rate(sample.option("after"), per_insert, sample.option("size"))

    def due(self, inserted: int, passes: int) -> int:
        """Learning passes that may run now, when `inserted` transitions are in and `passes` have run."""
        earned = (inserted - self.after) * self.per_insert
        return max(0, int(earned // self.size) - passes)


class Limiter:
    """Holds a rate between processes: both sides block, neither drifts.

    At every moment `replayed <= per_insert * (inserted - after)` and `inserted <= after + replayed / per_insert +
    slack`, in whole numbers. So over any window the two differ from the rate by no more than `slack` insertions.
    """

    def __init__(self, layout: Layout, rate: Rate, table: Table, passes: int, slack: int | None = None):
        """`passes` is the most that are replayed at once; `slack` is by default room for two times that."""
        self.rate = rate
        self.table = table
        self._replayed = layout.counters(1)
        # Each writer looks, then inserts, and the others may do so in between: what all of them insert at once is kept
        # free. Nobody has more than one insertion between its look and its commit, so the bound holds without a lock.
        self._reserve = table.writers * table.envs
        enough = self._reserve + math.ceil(passes * rate.size / rate.per_insert)
        self.slack = 2 * enough if slack is None else slack
        if self.slack < enough:
            raise ConfigError(
                f"slack={self.slack} must be >= {enough}, the insertions that {passes} x {rate.size} replayed "
                f"transitions take and one step of {table.writers} writers; less would stop both sides for ever."
            )

    @property
    def replayed(self) -> int:
        """Transitions ever replayed."""
        return int(self._replayed[0])

    def may_insert(self) -> bool:
        """Whether a writer may insert one step."""
        ahead = self.table.inserted + self._reserve - self.rate.after - self.slack
        return bool(ahead * self.rate.per_insert.numerator <= self.replayed * self.rate.per_insert.denominator)

    def may_sample(self, passes: int) -> bool:
        """Whether the learner may replay so many batches."""
        earned = (self.table.inserted - self.rate.after) * self.rate.per_insert.numerator
        return (self.replayed + passes * self.rate.size) * self.rate.per_insert.denominator <= earned

    def insert(self, timeout: float, alive: Alive) -> None:
        """Return when a writer may insert one step; the table's own counters record it."""
        wait(self.may_insert, timeout, alive, "the learner, which is behind")

    def sample(self, passes: int, timeout: float, alive: Alive) -> None:
        """Return when the learner may replay so many batches, and record them."""
        wait(lambda: self.may_sample(passes), timeout, alive, "the samplers, which are behind")
        self._replayed[0] += passes * self.rate.size

    def restore(self, replayed: int) -> None:
        """Go on from a checkpoint, whose table was filled in."""
        self._replayed[0] = replayed
