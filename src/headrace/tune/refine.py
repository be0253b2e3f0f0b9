"""Refining a choice on the running system: other numbers of fused passes take turns, the best stays."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from fractions import Fraction

from headrace.graph.plan import FUSED_INSERTS
from headrace.runtimes import Runtime
from headrace.tune.choice import Choice, fused, short

AFTER = 5.0
"""Seconds of learning before the first turn."""

SETTLE, TURN = 1.0, 2.5
"""Seconds of each turn that are not counted, and that are."""

WORTH = 1.02
"""How much faster another number must be to be taken."""


def refinement(
    runtime: Runtime, choice: Choice, rate: Fraction, chosen: Callable[[int, float], None]
) -> Iterator[str | None]:
    """Measures and chooses, a step between two looks at a run; what it yields last is a sentence for a person.

    `rate` are the learning passes for each transition; `chosen` is told the number that stays, and what the system does
    with it in a second.
    """
    progress, usual = runtime.progress, runtime.repeat
    # No more passes than earn the inserts that acting may lag behind.
    numbers = [usual, *(number for number in (usual // 2, usual * 2) if 1 <= number <= FUSED_INSERTS * rate)]

    def done() -> int:
        return progress.update_frames if choice.fused else progress.env_steps

    while progress.learned == 0:
        yield None
    yield from _pass(AFTER)
    seen: dict[int, list[float]] = {number: [] for number in numbers}
    for number in (*numbers, *reversed(numbers)):
        if len(numbers) > 1:
            runtime.fuse(number)
        learned = progress.learned
        while progress.learned <= learned + number:  # compiled, and taken up by every learner
            yield None
        yield from _pass(SETTLE)
        began, before = time.monotonic(), done()
        yield from _pass(TURN)
        seen[number].append((done() - before) / (time.monotonic() - began))
    speeds = {number: statistics.mean(rates) for number, rates in seen.items()}
    best = max(speeds, key=lambda number: speeds[number])
    if speeds[best] < WORTH * speeds[usual]:
        best = usual
    if len(numbers) > 1:
        runtime.fuse(best)
    chosen(best, speeds[best])
    yield refined(choice, speeds, usual, best)


def refined(choice: Choice, speeds: dict[int, float], usual: int, best: int) -> str:
    """What was measured beside what was expected, and what changes."""
    expected = f", {short(choice.expected)} expected" if choice.expected else ""
    said = f"the running system does {short(speeds[best])} {choice.unit}{expected}"
    if len(speeds) == 1:
        return f"{said}."
    others = ", ".join(f"{short(speeds[number])} with {number}" for number in sorted(speeds) if number != best)
    change = f"{fused(best)} as before" if best == usual else f"{fused(best)} instead of {usual}"
    return f"{said}; {change} ({others})."


def _pass(seconds: float) -> Iterator[None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield None
