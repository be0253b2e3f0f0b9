"""The cost model: from a plan, and what its nodes cost, to the load of every resource and what everything waits for.

An item is an update frame of a replay loop or an environment step of an on-policy loop. A process costs so many seconds
of its core for each; the load of a core is the sum over what runs on it; and 1 / (the largest load) is the throughput.
Where collecting and learning take turns, as they do when nothing may be stale, the two add up instead. `auto` judges
policies by it and the tuner what a policy leaves open: a `Choice` says in place of the plan what may vary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headrace.graph import Fragment, Graph, Node, Plan
from headrace.graph.sections import Section, Sections
from headrace.machine import Machine
from headrace.tune.choice import Choice, config_of
from headrace.types import tree_bytes

CROSSING = 60e-6
"""Seconds that a process waits for another beyond the work that it waits for: there and back, by a stream in shared
memory (bench/crossing.py)."""

COPYING = 4e9
"""Bytes in a second that one core copies through shared memory (bench/crossing.py)."""

REDUCING = 2e-3
"""Seconds that replicas in processes of one machine take to average a small gradient, beside their work (gloo; 1.2e-3
alone, 2026-11-16; bench/crossing.py). To have it applied elsewhere takes as long: bench/policies.py, `central`."""

SAMPLER = "sampler"
"""What the samplers are called in a load."""

GRADIENTS = "gradients"
"""What the exchange of gradients is called in a load."""

TURNS = "all, in turns"
"""The resource of those that wait for each other."""


@dataclass(frozen=True)
class Part:
    """What a fragment does, of a whole loop."""

    id: str
    steps: bool = False
    """Whether it has the environments."""
    acts: float = 0.0
    """Its share of acting."""
    learns: float = 0.0
    """Its share of learning: 1 where every learning stage is in it."""
    replicas: int = 1
    """As the plan has it; those of the environments are the choice's."""
    device: str | None = None
    """The accelerator that it computes on."""
    publishing: float = 0.0
    """Seconds after each learning program until others have the cells that it wrote."""


@dataclass(frozen=True)
class Terms:
    """What choices are judged by: of a plan and a machine."""

    cores: int
    parts: tuple[Part, ...]
    """In the plan's order; those that learn in the loop's."""
    per_insert: float
    """Items for each transition collected; 1 of an on-policy loop."""
    steps: int
    """Transitions that each environment adds in one collecting pass."""
    size: int
    """Items of one learning pass, where the choice does not say."""
    turns: bool = False
    """Whether collecting and learning wait for each other."""
    groups: int = 1
    """Sets of environments that take turns, so that stepping and acting overlap."""
    gradients: float = 0.0
    """Seconds for each item in which replicas of the loop exchange gradients."""

    @staticmethod
    def of(plan: Plan, machine: Machine) -> Terms:
        """Those of any plan; of a loop with several rates, items are counted by the first."""
        graph, domain, sections = plan.graph, plan.graph.domains[0], Sections(plan)
        size = domain.frames if domain.fused else domain.collected
        order = {section.fragment.id: i for i, section in enumerate(sections.learning)}
        fragments = sorted(plan.fragments, key=lambda fragment: order.get(fragment.id, -1))
        exchange = REDUCING + tree_bytes(graph.cells) / COPYING if plan.gradients else 0.0
        return Terms(
            cores=machine.cores,
            parts=tuple(_part(fragment, sections, machine) for fragment in fragments if fragment.nodes),
            per_insert=float(domain.rate * size),
            steps=graph.steps,
            size=size,
            turns=plan.turns,
            groups=plan.collector.groups,
            gradients=exchange * _updates(graph) / size,
        )

    @cached_property
    def collector(self) -> Part:
        """The part that has the environments."""
        return next(part for part in self.parts if part.steps)

    @cached_property
    def learners(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.learns)

    @property
    def alone(self) -> bool:
        """Whether one process does everything, on all cores."""
        return len(self.parts) == 1

    def homes(self, part: Part, choice: Choice) -> list[tuple[int, ...]]:
        """The cores of each process of a part, as the processes runtime deals them out."""
        cores = choice.cores.get(part.id) or tuple(range(self.cores))
        number = choice.replicas if part.steps else part.replicas
        return [cores[replica::number] or (cores[replica % len(cores)],) for replica in range(number)]


def _part(fragment: Fragment, sections: Sections, machine: Machine) -> Part:
    graph, (collecting, learning) = sections.graph, sections.of(fragment)
    own = () if collecting is None else collecting.nodes
    acting = graph.where(role="acting")
    crossing = {cut.what for cut in sections.plan.cuts if cut.channel == "latest" and cut.source in fragment.nodes}
    copied = sum(tree_bytes(graph.cells[cell]) for cell in crossing) / COPYING
    return Part(
        fragment.id,
        steps=any(node.kind == "env" for node in own),
        acts=sum(node in own for node in acting) / max(1, len(acting)),
        learns=_share(graph, learning),
        replicas=fragment.replicas,
        device=None if fragment.device == machine.host else fragment.device,
        publishing=CROSSING + copied if crossing else 0.0,
    )


def _share(graph: Graph, sections: list[Section]) -> float:
    """How much of learning some sections do: what a stage computes grows with the networks that it reads and writes."""

    def work(nodes: tuple[Node, ...]) -> float:
        used = ((node, {bound.cell for bound in (*node.reads, *node.writes)}) for node in nodes)
        return sum(tree_bytes(graph.cells[cell]) / node.every for node, cells in used for cell in cells)

    return sum(work(section.nodes) for section in sections) / work(graph.where(domain="learn"))


def _updates(graph: Graph) -> int:
    """Steps down a gradient that a learning pass takes."""
    domain, rows = graph.domains[0], graph.collected
    if domain.fused:
        return 1
    return domain.frames // rows * max(1, rows // int(getattr(config_of(graph), "minibatch_size", rows)))


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
    whole: bool = False
    """Whether one fragment with all of learning was measured, for those of any plan to be worked out from."""

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

    def acting(self, envs: int) -> float:
        """Seconds of them that acting takes: what does not grow with the environments, half of all at most."""
        whole = self.collecting(envs)
        return min(max(0.0, 2 * self.collecting(max(1, envs // 2)) - whole), whole / 2)

    def learning(self, part: Part, threads: int, repeat: int, size: int) -> float | None:
        """Seconds of one learning program, None if that was not measured."""
        if not self.whole:
            return self.learn.get((part.id, threads, repeat, size))
        each: dict[int, float] = {}
        """Seconds of an item by the threads, of the program nearest in passes."""
        for (_, known, passes, items), seconds in sorted(self.learn.items(), key=lambda one: -abs(one[0][2] - repeat)):
            each[known] = seconds / (passes * items)
        low = max((known for known in each if known <= threads), default=min(each))
        high = min((known for known in each if known >= threads), default=max(each))
        slope = math.log(each[high] / each[low]) / math.log(high / low) if low < high else 0.0
        return float(part.learns * each[low] * (threads / low) ** slope * repeat * size)


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


def load(choice: Choice, terms: Terms, costs: Costs) -> Load | None:
    """What a choice asks of every resource; None if that was not measured. `Choice.of(plan)` is the plan as it is."""
    size = choice.batch_size or terms.size
    learning: dict[str, float] = {}
    collecting: list[tuple[float, list[tuple[int, ...]]]] = []
    on: dict[str, dict[str, float]] = {}
    for part in terms.parts:
        homes = terms.homes(part, choice)
        if part.learns:
            seconds = costs.learning(part, len(homes[0]), choice.repeat, size)
            if seconds is None:
                return None
            learning[part.id] = (seconds / len(homes) + part.publishing) / (choice.repeat * size)
            places = [f"core {core}" for home in homes for core in home]
            for place in [*places, part.device] if part.device else places:
                on.setdefault(place, {})[part.id] = learning[part.id]
        if part.steps or part.acts:
            collecting.append((_collecting(part, len(homes), choice, terms, costs), homes))
    # Fragments that have a part in each step wait for each other, unless there is another set of environments.
    chain = max if terms.groups > 1 else sum
    if terms.turns:
        crowded = [each * max(Counter(home[0] for home in homes).values()) for each, homes in collecting]
        exchange = {GRADIENTS: terms.gradients} if terms.gradients else {}
        return Load({TURNS: {SAMPLER: chain(crowded)} | learning | exchange})
    for each, homes in collecting:
        for home in homes:
            _pour(each, [on.setdefault(f"core {core}", {}) for core in home])
    if len(collecting) > 1 or any(len(home) > 1 for _, homes in collecting for home in homes):
        on[SAMPLER] = {SAMPLER: chain(each for each, _ in collecting)}  # each runs on one core at a time
    return Load({place: parts for place, parts in on.items() if parts})


def _collecting(part: Part, number: int, choice: Choice, terms: Terms, costs: Costs) -> float:
    """Seconds for an item of each of `number` processes, which do one n-th each, in passes of their environments."""
    envs = choice.num_envs // number
    acting = 0.0 if part.steps and part.acts == 1 else costs.acting(envs)
    seconds = costs.collecting(envs) - (1 - part.acts) * acting if part.steps else part.acts * acting
    if not part.steps:  # every set of environments waits for its actions in every step
        seconds += CROSSING * terms.steps * terms.groups * choice.replicas / number
    return seconds / (choice.num_envs * terms.steps * terms.per_insert)


def _pour(seconds: float, cores: list[dict[str, float]]) -> None:
    """Load a sampler onto the cores it may run on: it takes what the others leave of them."""
    if len(cores) == 1:
        cores[0][SAMPLER] = cores[0].get(SAMPLER, 0.0) + seconds
        return
    loads = sorted(sum(parts.values()) for parts in cores)
    level = min((seconds + sum(loads[:n])) / n for n in range(1, len(loads) + 1))
    for parts in cores:
        if (free := level - sum(parts.values())) > 0:
            parts[SAMPLER] = parts.get(SAMPLER, 0.0) + free
