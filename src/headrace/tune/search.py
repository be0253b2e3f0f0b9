"""Trying every candidate in the cost model."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.tune.choice import Choice
from headrace.tune.model import Costs, Terms, load

AS_GOOD = 0.03
"""Candidates within this share of the best are as good: measurements are no more exact."""

Layout = dict[str, tuple[int, ...]]
"""The cores of each fragment."""


@dataclass(frozen=True)
class Freedom:
    """What may be chosen, and what stays as it is."""

    envs: bool
    """Whether num_envs may change."""
    replicas: bool
    memory: float = math.inf
    """Bytes that all environments together may take."""


def choose(usual: Choice, terms: Terms, costs: Costs, freedom: Freedom) -> Choice | None:
    """The best candidate; of those about as good, the one nearest to what is usual. None if nothing was measured."""
    if not costs.collect or not costs.learn:
        return None
    judged = [
        dataclasses.replace(choice, expected=found.throughput * costs.given)
        for choice in candidates(usual, terms, costs, freedom)
        if (found := load(choice, terms, costs)) is not None
    ]
    if not judged:
        return None
    enough = (1 - AS_GOOD) * max(choice.expected or 0.0 for choice in judged)
    return min((choice for choice in judged if (choice.expected or 0.0) >= enough), key=lambda c: _distance(c, usual))


def _distance(choice: Choice, usual: Choice) -> tuple[float, ...]:
    """How far a choice is from the usual one: what changes learning comes first."""
    return (
        abs(math.log2((choice.batch_size or 1) / (usual.batch_size or 1))),
        abs(math.log2(choice.num_envs / usual.num_envs)),
        choice.num_envs,
        abs(math.log2(choice.repeat / usual.repeat)),
        choice.cores != usual.cores,
        choice.replicas,
        sum(len(cores) for cores in choice.cores.values()),
        -(choice.expected or 0.0),
    )


def candidates(usual: Choice, terms: Terms, costs: Costs, freedom: Freedom) -> Iterator[Choice]:
    """Everything that could be chosen, of what was measured."""
    threads = sorted({threads for _, threads, _, _ in costs.learn})
    programs = sorted({(repeat, size) for _, _, repeat, size in costs.learn})
    for layout in layouts(terms, threads):
        for number in _samplers(layout, terms, usual, freedom):
            for num_envs in _environments(usual, costs, freedom, number):
                for repeat, size in programs:
                    # What one pass collects is at most what one program learns from, or learning comes in bursts.
                    if terms.turns or num_envs == usual.num_envs or num_envs * terms.per_insert <= repeat * size:
                        batch_size = None if usual.batch_size is None else size
                        yield Choice(num_envs, number, repeat, batch_size, layout, usual.unit)


def _samplers(layout: Layout, terms: Terms, usual: Choice, freedom: Freedom) -> list[int]:
    """Numbers of samplers that suit the cores to collect with: one for each, as more would only share them.

    Or a single one that runs beside every learner, now here, now there, wherever one of them waits.
    """
    cores = layout.get(terms.collector.id, ())
    taken = {core for learner in terms.learners for core in layout.get(learner.id, ())}
    roams = not terms.turns and len(cores) > 1 and set(cores) <= taken
    suited = {max(1, len(cores))} | ({1} if roams else set())
    if freedom.replicas:
        return sorted(suited)
    return [usual.replicas] if usual.replicas in suited or usual.replicas > len(cores) else []


def _environments(usual: Choice, costs: Costs, freedom: Freedom, number: int) -> list[int]:
    """Numbers of environments that so many samplers can share."""
    totals = {usual.num_envs} if usual.num_envs % number == 0 else set()
    if freedom.envs:
        most = freedom.memory / costs.memory if costs.memory else math.inf
        totals |= {number * envs for envs in costs.collect if number * envs <= most}
    return sorted(totals)


def layouts(terms: Terms, threads: list[int]) -> Iterator[Layout]:
    """The ways to deal out the cores, with learners on as many as were measured.

    Learners stand side by side from the first core on. Samplers have cores of their own behind them, or run beside
    learners of one thread; never beside one of several, whose threads would all wait for the one that shares its core.
    """
    collector, learners = terms.collector.id, [part.id for part in terms.learners]
    everything = range(terms.cores)
    if terms.alone:
        yield {}
    elif terms.turns:
        for number, width in itertools.product(_counts(terms.cores), threads):
            taken = tuple(everything[-number:])
            yield {collector: taken} | {name: tuple(everything[:width]) for name in learners}
    elif terms.cores < len(learners):
        yield dict.fromkeys((collector, *learners), (0,))
    else:
        for widths in itertools.product(threads, repeat=len(learners)):
            ends = list(itertools.accumulate(widths))
            if ends[-1] > terms.cores:
                continue
            starts = [end - width for end, width in zip(ends, widths, strict=True)]
            homes = {name: tuple(range(start, end)) for name, start, end in zip(learners, starts, ends, strict=True)}
            shared = [cores[0] for cores in homes.values() if len(cores) == 1]
            subsets = (itertools.combinations(shared, n) for n in range(len(shared) + 1))
            for beside in itertools.chain.from_iterable(subsets):
                for spare in (0, *_counts(terms.cores - ends[-1])):
                    taken = (*beside, *everything[ends[-1] : ends[-1] + spare])
                    if taken:
                        yield {collector: taken} | homes


def _counts(most: int) -> list[int]:
    """Numbers of samplers to try: all of them up to 8, then larger and larger ones."""
    ladder = [8 * 2**i + 4 * 2**i * half for i in range(12) for half in (0, 1)]
    return sorted({*range(1, min(most, 8) + 1), *(n for n in ladder if n <= most), *([most] if most > 0 else [])})
