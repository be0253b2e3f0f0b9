"""The cost model: what every process costs its core for one item, and what the busiest core lets through.

An item is an update frame of a replay loop or an environment step of an on-policy loop. A process costs so many seconds
of its core for each; the load of a core is the sum over what runs on it; and 1 / (the largest load) is the throughput.
Where collecting and learning take turns, as they do when nothing may be stale, the two add up instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.graph.plan import FUSED_INSERTS
from headrace.tune.choice import Choice

GATHERED = 1 << 28
"""Bytes of the batches gathered for one program, at most: several such live at once."""


@dataclass(frozen=True)
class Terms:
    """What choices are judged by: of an algorithm, a policy and a machine."""

    cores: int
    collector: str
    """The fragment that collects."""
    learners: tuple[str, ...]
    """The fragments that learn, in the loop's order."""
    per_insert: float
    """Items for each transition collected; 1 of an on-policy loop."""
    steps: int
    """Transitions that each environment adds in one collecting pass."""
    size: int
    """Items of one learning pass, where the choice does not say."""
    turns: bool = False
    """Whether collecting and learning wait for each other."""
    alone: bool = False
    """Whether one process does everything, on all cores."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """The accelerators of the learners that have one."""


@dataclass(frozen=True)
class Costs:
    """What was measured."""

    collect: Mapping[int, float]
    """Seconds of one collecting pass on one core, by the environments of the sampler."""
    learn: Mapping[tuple[str, int, int, int], float]
    """Seconds of one learning program, by fragment, threads, passes fused and batch size."""
    memory: float = 0.0
    """Bytes of one environment."""
    given: float = 1.0
    """Share of its cores that other programs left to a probe; the seconds above are those on cores of its own."""

    def collecting(self, envs: int) -> float:
        """Seconds of one collecting pass; on the line through the two nearest measurements where there is none."""
        if envs in self.collect:
            return self.collect[envs]
        if len(self.collect) == 1:
            ((known, seconds),) = self.collect.items()
            return seconds * envs / known
        low, high = sorted(sorted(self.collect, key=lambda known: abs(known - envs))[:2])
        slope = (self.collect[high] - self.collect[low]) / (high - low)
        return max(self.collect[low] + slope * (envs - low), min(self.collect.values()) / 2)


@dataclass(frozen=True)
class Load:
    """Seconds for one item, on each resource, of all samplers and of each learner that use it."""

    on: Mapping[str, Mapping[str, float]]

    @property
    def busiest(self) -> str:
        """The resource that everything waits for."""
        return max(self.on, key=lambda name: sum(self.on[name].values()))

    @property
    def throughput(self) -> float:
        """Items in a second."""
        return 1 / sum(self.on[self.busiest].values())


SAMPLER = "sampler"
"""What the samplers are called in a load."""

TURNS = "all, in turns"
"""The resource of those that wait for each other."""


def load(choice: Choice, terms: Terms, costs: Costs) -> Load | None:
    """What a choice asks of every core; None if that was not measured."""
    size = choice.batch_size or terms.size
    learning: dict[str, float] = {}
    for name in terms.learners:
        threads = terms.cores if terms.alone else len(choice.cores[name])
        seconds = costs.learn.get((name, threads, choice.repeat, size))
        if seconds is None:
            return None
        learning[name] = seconds / (choice.repeat * size)
    # Each of n samplers does one n-th, in passes of its own environments.
    each = costs.collecting(choice.envs) / (choice.num_envs * terms.steps * terms.per_insert)
    homes = sampler_cores(choice, terms)
    if terms.turns:
        crowd = max(Counter(home[0] for home in homes).values())
        return Load({TURNS: {SAMPLER: crowd * each} | learning})
    on: dict[str, dict[str, float]] = {}
    for name, seconds in learning.items():
        places = [f"core {core}" for core in choice.cores[name]]
        places += [terms.devices[name]] if name in terms.devices else []
        for place in places:
            on.setdefault(place, {})[name] = seconds
    for home in homes:
        _pour(each, [on.setdefault(f"core {core}", {}) for core in home])
        if len(home) > 1:
            on[SAMPLER] = {SAMPLER: each}  # it runs on one core at a time
    return Load({place: parts for place, parts in on.items() if parts})


def _pour(seconds: float, cores: list[dict[str, float]]) -> None:
    """Load a sampler onto the cores it may run on: it takes what the others leave of them."""
    loads = sorted(sum(parts.values()) for parts in cores)
    level = min((seconds + sum(loads[:n])) / n for n in range(1, len(loads) + 1))
    for parts in cores:
        if (free := level - sum(parts.values())) > 0:
            parts[SAMPLER] = parts.get(SAMPLER, 0.0) + free


def sampler_cores(choice: Choice, terms: Terms) -> list[tuple[int, ...]]:
    """The cores of each sampler, as the processes runtime deals them out."""
    cores, number = choice.cores.get(terms.collector) or tuple(range(terms.cores)), choice.replicas
    return [cores[replica::number] or (cores[replica % len(cores)],) for replica in range(number)]


def fusable(usual: int, size: int, per_insert: float, row: int) -> list[int]:
    """Numbers of passes worth fusing, about the usual one.

    What is collected between two programs is bounded, so that acting does not lag, and so is the memory of the batches.
    `row` is the bytes of one transition.
    """
    tried = {max(1, usual // 2), usual, 2 * usual, 4 * usual}
    bounds = min(FUSED_INSERTS * per_insert, GATHERED / max(1, row))
    return sorted(repeat for repeat in tried if repeat * size <= bounds) or [1]
