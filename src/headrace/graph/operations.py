"""What a loop asks of its environment and stores: one value for each kind of call, with what it was called with."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal

Carried = Literal["replay", "rollout"]
"""The kinds of stores: sampled with replacement, or taken from once."""


@dataclass(frozen=True)
class Step:
    """`env.step`, or all of `env.unroll`."""

    unrolled: bool
    """Whether one pass collects a trajectory, `[steps, num_envs, ...]`, rather than a step, `[num_envs, ...]`."""


@dataclass(frozen=True)
class Insert:
    """`replay.insert`."""

    capacity: int
    store: ClassVar[Carried] = "replay"


@dataclass(frozen=True)
class Put:
    """`rollout.put`."""

    store: ClassVar[Carried] = "rollout"


@dataclass(frozen=True)
class Sample:
    """`replay.sample`."""

    filler: str
    """The node that fills the store."""
    size: int
    after: int
    per_insert: float
    gamma: float
    steps: int
    store: ClassVar[Carried] = "replay"

    @cached_property
    def _rate(self) -> tuple[int, int]:
        # In whole numbers, so that the rate cannot drift, and taken apart once: it is asked for at every step.
        return (Fraction(self.per_insert).limit_denominator(1_000_000) / self.size).as_integer_ratio()

    def rate(self, collected: int) -> Fraction:
        """Learning passes for each transition collected."""
        return Fraction(*self._rate)

    def due(self, collected: int, passes: int) -> int:
        """Learning passes that so many collecting passes, of `collected` transitions each, allow."""
        number, each = self._rate
        return max(0, (passes * collected - self.after) * number // each)

    def needed(self, collected: int, learned: int) -> int:
        """Collecting passes that so many learning passes need."""
        number, each = self._rate
        return -(-(self.after - (-learned * each // number)) // collected) if learned > 0 else 0

    def frames(self, collected: int) -> int:
        """Transitions that one learning pass learns from."""
        return self.size


@dataclass(frozen=True)
class Take:
    """`rollout.take`: each collecting pass is learned from by one learning pass."""

    filler: str
    epochs: int
    staleness: int
    after: ClassVar[int] = 0
    store: ClassVar[Carried] = "rollout"

    def rate(self, collected: int) -> Fraction:
        """As `Sample.rate`."""
        return Fraction(1, collected)

    def due(self, collected: int, passes: int) -> int:
        """As `Sample.due`."""
        return passes

    def needed(self, collected: int, learned: int) -> int:
        """As `Sample.needed`."""
        return max(0, learned)

    def frames(self, collected: int) -> int:
        """As `Sample.frames`."""
        return self.epochs * collected


Source = Sample | Take
"""What a learning domain begins with."""

Operation = Step | Insert | Put | Sample | Take
