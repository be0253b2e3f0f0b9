"""When a run is over."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headrace.errors import UsageError
from headrace.settings.values import fits

DEFAULT_STEPS = 1_000_000


@dataclass(frozen=True)
class StopRule:
    """Stop after a number of environment steps, of seconds, or at an evaluated return, whichever comes first."""

    steps: int | None = None
    seconds: float | None = None
    until: float | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not fits(value, float | None):
                raise UsageError(f"--{name} takes a number, got {value!r}.")
        if self.until is not None and math.isnan(self.until):
            raise UsageError("--until must be a number, got nan.")
        for name in ("steps", "seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"--{name} must be above 0, got {value}.")

    @staticmethod
    def of(steps: int | None, seconds: float | None, until: float | None) -> StopRule:
        """The rule asked for; a million steps by default."""
        if steps is None and seconds is None and until is None:
            return StopRule(steps=DEFAULT_STEPS)
        return StopRule(steps, seconds, until)

    @property
    def bounded(self) -> bool:
        """Whether steps or seconds are limited."""
        return self.steps is not None or self.seconds is not None

    def share(self, steps: int, elapsed: float) -> float:
        """Progress from 0 to 1."""
        parts = [steps / self.steps] if self.steps else []
        parts += [elapsed / self.seconds] if self.seconds else []
        return min(1.0, max(parts, default=0.0))

    def left(self, steps: int, elapsed: float, speed: float) -> float | None:
        """Seconds until the end at the latest, at `speed` steps a second; None if unknown."""
        parts = [(self.steps - steps) / speed] if self.steps and speed > 0 else []
        parts += [self.seconds - elapsed] if self.seconds else []
        return max(0.0, min(parts)) if parts else None

    def spent(self, steps: int, elapsed: float) -> bool:
        """Whether the steps or the seconds are used up."""
        return self.bounded and self.share(steps, elapsed) >= 1.0

    def reached(self, score: float) -> bool:
        """Whether an evaluation is good enough to stop."""
        return self.until is not None and score >= self.until

    def __str__(self) -> str:
        parts = [f"{self.steps:,} steps"] if self.steps is not None else []
        parts += [f"{self.seconds:g} s"] if self.seconds is not None else []
        parts += [f"a return of {self.until:g}"] if self.until is not None else []
        return "until " + " or ".join(parts)
