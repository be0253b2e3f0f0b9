"""The rate between two sides of a store: how much may be replayed for what was inserted."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

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
        each = self.per_insert.denominator * self.size  # in whole numbers: this is asked at every step
        return max(0, (inserted - self.after) * self.per_insert.numerator // each - passes)
