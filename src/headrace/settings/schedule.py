"""Settings that change while a run learns: Optax's schedules as frozen values that are written as text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from headrace.errors import ConfigError, nearest

KINDS = ("linear", "cosine", "exponential")
FORM = f"KIND:START:END:UPDATES, such as linear:3e-4:0:1e5, where KIND is {', '.join(KINDS[:-1])} or {KINDS[-1]}"


@dataclass(frozen=True)
class Schedule:
    """A number that goes from `start` to `end` in so many `updates` of the network it belongs to, and stays there.

    Schedule("linear", 3e-4, 0.0, 100_000)      # as text: linear:3e-4:0:1e5
    """

    kind: str
    """linear, cosine or exponential, as Optax defines them."""
    start: float
    end: float
    updates: int

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"there is no schedule '{self.kind}'{nearest(self.kind, KINDS)}; write {FORM}.")
        if not (math.isfinite(self.start) and math.isfinite(self.end)):
            raise ConfigError(f"the schedule {self} must start and end at finite numbers.")
        if not (isinstance(self.updates, int) and self.updates >= 1):
            raise ConfigError(f"the schedule {self} must take a whole number of updates, 1 or more.")
        # Optax has both as multiples of where they start.
        if self.kind == "exponential" and not (self.start > 0 and self.end > 0):
            raise ConfigError(f"the schedule {self} must start and end above 0; linear may reach 0.")
        if self.kind == "cosine" and self.start == 0:
            raise ConfigError(f"the schedule {self} must not start at 0; linear may.")

    def __call__(self, count: Any) -> Any:
        """The number after `count` updates: what Optax takes as a learning rate."""
        import optax  # a launcher reads settings before it may load JAX

        if self.kind == "linear":
            return optax.linear_schedule(self.start, self.end, self.updates)(count)
        if self.kind == "cosine":
            return optax.cosine_decay_schedule(self.start, self.updates, self.end / self.start)(count)
        rate = self.end / self.start
        return optax.exponential_decay(self.start, self.updates, rate, end_value=self.end)(count)

    def __str__(self) -> str:
        return f"{self.kind}:{float(self.start)!r}:{float(self.end)!r}:{self.updates}"

    @staticmethod
    def parse(text: str) -> float | Schedule:
        """What a text such as `linear:3e-4:0:1e5` says; `constant:3e-4` is a number."""
        kind, *numbers = text.split(":")
        known = ("constant", *KINDS)
        if kind not in known:
            raise ConfigError(f"there is no schedule '{kind}'{nearest(kind, known)}; write {FORM}.")
        try:
            values = [float(number) for number in numbers]
        except ValueError:
            values = []
        if kind == "constant" and len(values) == 1:
            return values[0]
        if kind == "constant" or len(values) != 3:
            raise ConfigError(f"'{text}' is not a schedule; write {FORM}.")
        start, end, updates = values
        return Schedule(kind, start, end, int(updates) if updates.is_integer() else updates)  # type: ignore[arg-type]


def value_at(setting: float | Schedule, count: Any) -> Any:
    """A setting after `count` updates: itself, or what its schedule has come to."""
    return setting(count) if isinstance(setting, Schedule) else setting
