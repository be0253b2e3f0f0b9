"""Refining a choice on the running system: other numbers of fused passes take turns, the best stays."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

from headrace.graph.plan import FUSED_INSERTS
from headrace.runtimes import Processes

AFTER = 5.0
"""Seconds of learning before the first turn."""

SETTLE, TURN = 1.0, 2.5
"""Seconds of each turn that are not counted, and that are."""

WORTH = 1.02
"""How much faster another number must be to be taken."""


class Refinement:
    """Called between two looks at a run; measures, chooses, and is over."""

    def __init__(self, runtime: Processes, chosen: Callable[[int], None]):
        """`chosen` is told the number that stays."""
        self.runtime = runtime
        self.chosen = chosen
        self.turns = self._refine()

    def __call__(self) -> str | None:
        """Go on; a sentence for a person when it is over."""
        return next(self.turns, None)

    def _refine(self) -> Iterator[str | None]:
        shared = self.runtime.shared
        usual = shared.pace.repeat
        numbers = [number for number in (usual, usual // 2, usual * 2) if self._fits(number)]
        if len(numbers) < 2:
            return
        while self.runtime.progress.learned == 0:
            yield None
        yield from _pass(AFTER)
        seen: dict[int, list[float]] = {number: [] for number in numbers}
        for number in (*numbers, *reversed(numbers)):
            shared.fuse(number)
            learned = self.runtime.progress.learned
            while self.runtime.progress.learned <= learned + number:  # compiled, and taken up by every learner
                yield None
            yield from _pass(SETTLE)
            began, before = time.monotonic(), self.runtime.progress.learned
            yield from _pass(TURN)
            seen[number].append((self.runtime.progress.learned - before) / (time.monotonic() - began))
        speeds = {number: statistics.mean(rates) for number, rates in seen.items()}
        best = max(speeds, key=lambda number: speeds[number])
        if speeds[best] < WORTH * speeds[usual]:
            best = usual
        shared.fuse(best)
        self.chosen(best)
        size = shared.plan.graph.source.option("size")
        rates = ", ".join(f"K={number}: {speeds[number] * size / 1e3:.1f}k" for number in sorted(speeds))
        yield f"refined on the running system ({rates} frames/s): K={best} stays."

    def _fits(self, number: int) -> bool:
        """Whether so many passes earn no more inserts than acting may lag behind."""
        rate = self.runtime.shared.pace.rate
        return rate is not None and number >= 1 and number * rate.size <= FUSED_INSERTS * rate.per_insert


def _pass(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield None
