"""The pace: whatever the order in which processes get to run, all stay together and none waits for ever."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from fractions import Fraction
from functools import cache

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

import headrace
from headrace.algorithms import DQN, PPO, SAC, DQNConfig
from headrace.core import Algorithm, Env, Learned, Reads, Replay, Rollout, Writes, stage
from headrace.errors import PlanError
from headrace.exec.pace import Pace
from headrace.graph import Fragment, Graph, Plan, cut, trace, verify
from headrace.graph.laws import copies_used, nobody_waits_in_circles
from headrace.graph.sections import Section, Sections, per_step, refs_of, segments
from headrace.graph.verify import RULES
from headrace.machine import Machine
from headrace.policies import dual_device, multiple_learners, single, single_learner_coarse, single_learner_fine
from headrace.runtimes import Options, Processes
from headrace.stores.replay import Sample
from headrace.types import Box, Discrete, EnvSpec

EXAMPLES = settings(max_examples=100, deadline=None)
MACHINE = Machine(cores=4, memory=1 << 34, devices=("cpu:0",))
CONTINUOUS = EnvSpec("toy", Box((3,)), Box((1,), bounded=True), 12)
DISCRETE = EnvSpec("toy", Box((4,)), Discrete(2), 12)


class Rates(Algorithm[DQNConfig]):
    """Two stages that learn at rates of their own, each with what the other one writes."""

    def cells(self, spec, key):
        return {name: Learned(jnp.zeros((4, 2)), optax.sgd(0.1)) for name in ("fast", "slow")}

    @stage
    def act(self, obs, fast: Reads):
        return jnp.argmax(obs @ fast, axis=-1).astype(jnp.int32)

    play = act

    @stage
    def learn_fast(self, batch, slow: Reads, fast: Writes):
        return fast, {}

    @stage
    def learn_slow(self, batch, fast: Reads, slow: Writes):
        return slow, {}

    def loop(self, env: Env, replay: Replay, other: Replay):
        step = env.step(self.act(env.observe()))
        replay.insert(step)
        other.insert(step)
        self.learn_fast(replay.sample(8, per_insert=2))
        self.learn_slow(other.sample(8, after=30, per_insert=0.5))


class Mixed(Rates):
    """One replays, one takes each trajectory once."""

    def loop(self, env: Env, replay: Replay, rollout: Rollout):
        steps = env.unroll(self.act, steps=3)
        rollout.put(steps)
        replay.insert(steps)
        self.learn_slow(rollout.take(staleness=9))
        self.learn_fast(replay.sample(8, per_insert=2))


class Noted(Rates):
    """What is kept in one store depends on a cell that is learned from the other."""

    @stage
    def note(self, reward, slow: Reads):
        return reward + slow.sum()

    @stage
    def learn_fast(self, batch, fast: Writes):
        return fast, {}

    @stage
    def learn_slow(self, batch, slow: Writes):
        return slow, {}

    def loop(self, env: Env, replay: Replay, other: Replay):
        step = env.step(self.act(env.observe()))
        other.insert(step)
        replay.insert(step._replace(reward=self.note(step.reward)))
        self.learn_fast(replay.sample(8, per_insert=2))
        self.learn_slow(other.sample(8, per_insert=2))


@cache
def traced(name: str) -> Graph:
    made = {
        "sac": lambda: trace(SAC(hidden=(4,), num_envs=12), CONTINUOUS),
        "dqn": lambda: trace(DQN(hidden=(4,), num_envs=12), DISCRETE),
        "ppo": lambda: trace(PPO(hidden=(4,), num_envs=12, horizon=4, minibatch_size=12), DISCRETE),
        "rates": lambda: trace(Rates(num_envs=12), DISCRETE),
        "mixed": lambda: trace(Mixed(num_envs=12), DISCRETE),
        "noted": lambda: trace(Noted(num_envs=12), DISCRETE),
    }
    return made[name]()


REPLAYS, ALL = ("sac", "dqn", "rates"), ("sac", "dqn", "ppo", "rates", "mixed")
sampled = st.builds(
    Sample,
    st.just(""),
    size=st.integers(1, 16),
    after=st.integers(0, 40),
    per_insert=st.fractions(Fraction(1, 2), 20, max_denominator=8),
    gamma=st.just(0.99),
    steps=st.just(1),
)
few = st.integers(0, 3)
orders = st.lists(st.integers(0, 59), min_size=20, max_size=200)
"""Which of those who may go on does, again and again."""


@st.composite
def graphs(draw, names=ALL):
    """A graph with any rates and any number of environments."""
    graph = traced(draw(st.sampled_from(names)))

    def with_rate(node):
        if not isinstance(node.operation, Sample):
            return node
        return dataclasses.replace(node, operation=dataclasses.replace(draw(sampled), filler=node.operation.filler))

    nodes = tuple(with_rate(node) for node in graph.nodes)
    spec = graph.spec.with_envs(draw(st.sampled_from([1, 2, 5, 12])))
    return dataclasses.replace(graph, nodes=nodes, spec=spec)


def coarse(draw, graph):
    return single_learner_coarse(graph, MACHINE, draw(st.integers(1, 3)))


def fine(draw, graph):
    return single_learner_fine(graph, MACHINE, draw(st.integers(1, 3)))


def dual(draw, graph):
    return dual_device(graph, MACHINE, draw(st.integers(1, 2)))


def alone(draw, graph):
    return single(graph, MACHINE)


def shares(draw, graph):
    return multiple_learners(graph, MACHINE, draw(st.integers(1, 2)))


def parted(draw, graph):
    """Each learning stage apart, with what it draws."""
    fragments = [Fragment("collect", tuple(n.id for n in graph.where(domain="collect")), draw(st.integers(1, 2)))]
    for node in graph.where(role="learning"):
        drawn = {ref.node for ref in node.sources}
        fragments.append(Fragment(node.id, tuple(n.id for n in graph.nodes if n.id in {node.id, *drawn})))
    return cut(graph, "parted", tuple(fragments), staleness=0)


def scattered(draw, graph):
    """Any partition that is executed: environments whole, what draws from a store anywhere, and often."""
    homes = {node.id: {draw(st.integers(0, 2))} for node in graph.nodes}
    homes["env.step"] = homes["env.observe"]
    for node in graph.where(domain="learn", kind="store"):
        homes[node.id] |= draw(st.sets(st.integers(0, 2), max_size=1))
    fragments = []
    for i in range(3):
        own = [node for node in graph.nodes if i in homes[node.id]]
        learns = any(node.domain == "learn" for node in own)
        replicas = 1 if learns else draw(st.integers(1, 2))
        if own:
            fragments.append(Fragment(f"f{i}", tuple(node.id for node in own), replicas))
    return cut(graph, "scattered", tuple(fragments), staleness=0)


WHOLE = (alone, coarse, dual, shares, parted)
"""Plans without streams."""


@st.composite
def plans(draw, names=ALL, kinds=(*WHOLE, fine, scattered), bounds=few):
    """Any plan of a graph, with any passes fused, and any bound for each cell that crosses."""
    kind = draw(st.sampled_from(kinds))
    graph = draw(graphs(("sac",) if kind is dual else names))
    whole = traced(graph.algorithm)
    plan = kind(draw, whole)
    fused = {node.id for domain in graph.domains if domain.fused for node in domain.nodes}
    repeat = draw(st.integers(1, 8))
    fragments = tuple(dataclasses.replace(f, repeat=repeat if fused & {*f.nodes} else 1) for f in plan.fragments)
    cuts = tuple(dataclasses.replace(c, staleness=draw(bounds)) if c.channel == "latest" else c for c in plan.cuts)
    for rule in RULES:
        try:
            rule(dataclasses.replace(plan, cuts=cuts) if rule is nobody_waits_in_circles else plan, MACHINE)
        except PlanError:
            assume(rule not in (nobody_waits_in_circles, copies_used))
            raise
    return Shown(graph, plan.policy, fragments, cuts)


class Shown(Plan):
    """A plan that is shown in a few lines where a test fails."""

    def __repr__(self) -> str:
        draws = [draw for domain in self.graph.domains for draw in domain.draws]
        bounds = [(cut.what, cut.target, cut.staleness) for cut in self.cuts if cut.channel == "latest"]
        return f"{self.graph.algorithm}, {self.graph.collected} collected, {draws}, {self.fragments}, {bounds}"

    def _repr_pretty_(self, printer, cycle) -> None:
        printer.text(repr(self))


class Worker:
    """A replica of a fragment: turns its sections as `exec.runner.Runner` does, and yields what it waits for."""

    def __init__(self, run: Run, fragment: Fragment, replica: int):
        self.run, self.fragment, self.replica = run, fragment, replica
        self.pace = Pace.of(run.sections, fragment.id, replica)
        self.collecting, self.learning = run.sections.of(fragment)
        self.inward = {stream.source.id: stream for stream in run.sections.received_by(fragment)}
        self.outward = run.sections.sent_by(fragment)
        self.turn = self.turns()

    def turns(self):
        while True:
            if self.may_collect():
                yield from self.collect()
                continue
            did = False
            for section in self.learning:
                if self.may_learn(section):
                    yield from self.learn(section)
                    did = True
            if not did:
                yield lambda: self.may_collect() or any(map(self.may_learn, self.learning))

    @property
    def number(self) -> int:
        """Its next collecting pass."""
        return int(self.run.passes[self.collecting.first + self.replica])

    def may_collect(self) -> bool:
        if self.collecting is None or not self.pace.may_collect(self.number, self.run.learned, self.run.repeat):
            return False
        takes = [ref.node for ref in self.groups(self.collecting)[0][1]]
        return all(self.there(node, self.number) for node in takes if node in self.inward)

    def may_learn(self, section: Section) -> bool:
        return self.pace.may_learn(section, self.run.passes, self.run.learned, self.run.repeat)

    def groups(self, section: Section):
        """Nodes that run together, and what they take."""
        if section.domain is None:
            stages = [[node] for node in section.nodes]
        else:
            drawn = [[node] for node in section.nodes if node.kind == "store"]
            sent = {stream.source.id for stream in self.outward}
            stages = drawn + segments(section.stages, self.inward, sent)
        return [(group, refs_of(group)) for group in stages]

    def collect(self):
        run, number, graph = self.run, self.number, self.run.graph
        run.begin(self.collecting, self.replica, number)
        yield always
        groups = self.groups(self.collecting)
        for i in range(graph.steps):
            for group, takes in groups:
                if per_step(graph, group[0].id):
                    yield from self.execute(group, takes, number, number * graph.steps + i)
        for group, takes in groups:
            if not per_step(graph, group[0].id):
                yield from self.execute(group, takes, number, number)
        self.release(number)
        run.passes[self.collecting.first + self.replica] += 1

    def learn(self, section: Section):
        run = self.run
        place = section.first + (self.replica if run.plan.shares > 1 else 0)
        repeat = self.pace.fused(section.domain, run.repeat)
        learned = int(run.learned[place])
        run.begin(section, self.replica, learned)
        yield always
        for group, takes in self.groups(section):
            yield from self.execute(group, takes, learned // repeat, learned // repeat)
        self.release(learned // repeat, section)
        run.learned[place] += repeat

    def execute(self, group, takes, number: int, step: int):
        """Run nodes at a step of a pass: wait for what they take, and for room for what others take of them."""
        run = self.run
        for node in dict.fromkeys(ref.node for ref in takes):
            if node in self.inward:
                at = step if per_step(run.graph, node) == per_step(run.graph, group[0].id) else last(run.graph, number)
                yield lambda node=node, at=at: self.there(node, at)
        for stream in self.outward:
            if stream.source in group:
                yield lambda stream=stream: self.free(stream, number)
                run.sent[stream.name, self.replica] = step + 1

    def there(self, node: str, step: int) -> bool:
        stream = self.inward[node]
        senders = opposite(self.replica, stream.receiver.replicas, stream.sender.replicas)
        return all(self.run.sent[stream.name, sender] > step for sender in senders)

    def free(self, stream, number: int) -> bool:
        single_steps = stream.source.domain == "collect" and not self.run.graph.unrolled
        receivers = opposite(self.replica, stream.sender.replicas, stream.receiver.replicas)
        slots = 8 if single_steps else 2
        return all(self.run.taken[stream.name, receiver] > number - slots for receiver in receivers)

    def release(self, number: int, section: Section | None = None) -> None:
        for stream in self.inward.values():
            side = self.run.graph.domain_of.get(stream.source.id)
            if side == (None if section is None else section.domain.index):
                self.run.taken[stream.name, self.replica] = number + 1


def always() -> bool:
    return True


def last(graph: Graph, number: int) -> int:
    """The last step of a pass."""
    return number * graph.steps + graph.steps - 1


def opposite(place: int, number: int, others: int) -> range:
    """The replicas of another fragment that one of `number` exchanges with."""
    if others <= number:
        return range(place // (number // others), place // (number // others) + 1)
    return range(place * (others // number), (place + 1) * (others // number))


class Run:
    """A run's counters, and those who count."""

    def __init__(self, plan: Plan):
        self.plan, self.graph = plan, plan.graph
        self.sections = Sections(plan)
        self.passes = np.zeros(sum(s.fragment.replicas for s in self.sections.collecting), np.int64)
        self.learned = np.zeros(sum(s.fragment.replicas for s in self.sections.learning), np.int64)
        self.sent, self.taken = Counter(), Counter()
        self.repeat = 0
        self.seen = {}
        """The versions of the cells that a section read when it began a pass: by its place, replica and pass."""
        self.begun = []
        self.workers = [Worker(self, fragment, i) for fragment in plan.fragments for i in range(fragment.replicas)]
        self.waiting = [next(worker.turn) for worker in self.workers]

    def begin(self, section: Section, replica: int, number: int) -> None:
        side = "collect" if section.domain is None else "learn"
        self.begun.append((side, section.first, replica, number))
        self.seen[side, section.first, replica, number] = self.versions(section, replica)

    def versions(self, section: Section, replica: int) -> dict[str, int]:
        own = replica if self.plan.shares > 1 else 0
        writers = {cell: self.sections.writer_of(cell) for cell in section.read}
        return {cell: int(self.learned[writer.first + own]) for cell, writer in writers.items() if writer is not None}

    def replay(self, choices):
        """Let one after the other go on, chosen by these numbers; there is always one. Yields after each."""
        for choice in choices:
            able = [i for i, ready in enumerate(self.waiting) if ready()]
            assert able, f"nobody may go on: {self.plan.fragments}, collected {self.passes}, learned {self.learned}"
            i = able[choice % len(able)]
            self.waiting[i] = next(self.workers[i].turn)
            yield

    def stored(self, section: Section, replica: int) -> int:
        """Collecting passes that are in all stores that a section draws from."""
        stores = [s for s in self.graph.stores.values() if {*s.draws} & {*section.domain.sources}]
        places = {p for s in stores for p in self.sections.filler(s).places}
        own = [self.sections.filler(stores[0]).first + replica] if self.plan.shares > 1 else sorted(places)
        return int(self.passes[own].min())

    def replicas(self):
        """Every replica of every learning section, with its place."""
        several = self.plan.shares > 1
        for section in self.sections.learning:
            for replica in range(section.fragment.replicas if several else 1):
                yield section, replica, section.first + replica

    def goes_on(self) -> bool:
        """Whether everybody gets on from here, not just somebody."""
        passes, learned = self.passes.copy(), self.learned.copy()
        slowest = min(min(domain.rate * self.graph.collected for domain in self.graph.domains), Fraction(1))
        begins = max(domain.begins for domain in self.graph.domains)
        most = 400 * (begins + int(16 / slowest)) * len(self.workers) * self.graph.steps
        return any(
            (self.passes > passes).all() and (self.learned > learned).all()
            for _ in self.replay(i * 7 + i // 5 for i in range(most))
        )


@EXAMPLES
@given(plans(), st.data())
def test_what_may_be_collected_is_what_the_pace_allows_one_by_one(plan, data):
    run = Run(plan)
    learned = np.array(data.draw(st.lists(st.integers(0, 50), min_size=len(run.learned), max_size=len(run.learned))))
    repeat = data.draw(st.integers(0, 6))
    for worker in run.workers:
        free = worker.pace.may_collect_until(learned, repeat)
        if not worker.pace.limits:
            assert free > 10**12  # it follows the streams it takes
            continue
        assert free == 0 or worker.pace.may_collect(free - 1, learned, repeat)
        assert not worker.pace.may_collect(free, learned, repeat)


def within_bounds(run: Run) -> None:
    """Nobody is further ahead than the cuts of the plan allow."""
    plan, graph, sections = run.plan, run.graph, run.sections
    for section, replica, place in run.replicas():
        assert run.learned[place] <= section.domain.due(run.stored(section, replica))
    for one in plan.cuts:
        source, target = graph.by_id[one.source], graph.by_id[one.target]
        if one.channel != "latest":
            continue
        writer = sections.writer_of(one.what)
        wrote, repeat = int(run.learned[writer.first]), writer.repeat
        if target.domain == "collect":
            reader = next(section for section in sections.collecting if target in section.nodes)
            # A pass that is over began when learning was at most so many programs behind what came before it.
            began = max(0, int(run.passes[list(reader.places)].max()) - 1)
            assert writer.domain.due(began) - wrote < (one.staleness + 1) * repeat
        elif graph.domain_of[target.id] == graph.domain_of[source.id]:
            reader = next(s for s in sections.learning if target in s.nodes)
            ahead = int(run.learned[reader.first]) - wrote
            later = sections.learning.index(reader) > sections.learning.index(writer)
            assert ahead <= (one.staleness + (not later)) * repeat
            assert -ahead <= (one.staleness + later) * repeat


@EXAMPLES
@given(plans(), orders)
def test_nobody_gets_further_ahead_than_the_bound(plan, order):
    run = Run(plan)
    for _ in run.replay(order):
        within_bounds(run)


@EXAMPLES
@given(plans(), orders)
def test_nobody_waits_for_ever(plan, order):
    run = Run(plan)
    for _ in run.replay(order):
        pass
    assert run.goes_on(), f"somebody stands still: {plan.fragments}, collected {run.passes}, learned {run.learned}"


repeats = st.lists(st.integers(1, 12), min_size=1)


@EXAMPLES
@given(plans(names=("sac", "dqn"), kinds=WHOLE), orders, repeats)
def test_fusing_more_or_fewer_passes_on_the_way_stops_nobody(plan, order, repeats):
    fuse_on_the_way(plan, order, repeats)


@settings(EXAMPLES, phases=(Phase.explicit, Phase.generate))
@given(plans(names=("rates",), kinds=(alone, coarse, shares, parted)), orders, repeats)
def test_fusing_more_or_fewer_passes_of_two_rates_on_the_way_stops_nobody(plan, order, repeats):
    fuse_on_the_way(plan, order, repeats)


def fuse_on_the_way(plan: Plan, order: list[int], repeats: list[int]) -> None:
    """Let a run go on, with other numbers of fused passes now and then."""
    run = Run(plan)
    largest = max(*repeats, *(fragment.repeat for fragment in plan.fragments))
    apart = max((cut.staleness for cut in plan.cuts), default=0)
    each = -(-len(order) // len(repeats))
    for i, _ in enumerate(run.replay(order)):
        if i % each == each - 1:
            run.repeat = repeats[i // each]
        for section, replica, place in run.replicas():
            assert run.learned[place] <= section.domain.due(run.stored(section, replica)) + largest
            bonds = next(w.pace for w in run.workers if w.fragment is section.fragment and w.replica == replica).bonds
            for bond in bonds[place]:
                if bond.other.domain is section.domain:
                    assert abs(int(run.learned[place] - run.learned[bond.place])) <= (apart + 2) * largest
    assert run.goes_on(), f"somebody stands still: {plan.fragments}, collected {run.passes}, learned {run.learned}"


def inline(run: Run, passes: int) -> list:
    """What begins, and with which versions, in the order of runtimes/inline.py."""
    order = []
    for number in range(passes):
        for section in run.sections.collecting:
            for replica in range(section.fragment.replicas):
                order.append((("collect", section.first, replica, number), run.versions(section, replica)))
        run.passes += 1
        for domain in run.graph.domains:
            own = [section for section in run.sections.learning if section.domain is domain]
            repeat = own[0].repeat
            while domain.due(number + 1) >= run.learned[own[0].first] + repeat:
                for section in own:
                    for i in range(section.fragment.replicas):
                        place = section.first + i
                        order.append((("learn", section.first, i, int(run.learned[place])), run.versions(section, i)))
                    run.learned[list(section.places)] += repeat
    return order


@EXAMPLES
@given(plans(bounds=st.just(0)), orders)
def test_with_nothing_stale_everybody_reads_what_the_inline_runtime_reads(plan, order):
    reads_as_inline(plan, order)


def test_with_nothing_stale_nobody_reads_a_cell_that_was_learned_too_early():
    fragments = (
        Fragment("act", ("env.observe", "act", "env.step", "other.insert")),
        Fragment("note", ("note", "replay.insert")),
        Fragment("fast", ("replay.sample", "learn_fast")),
        Fragment("slow", ("other.sample", "learn_slow")),
    )
    plan = verify(cut(traced("noted"), "mine", fragments, staleness=0), MACHINE)
    for seed in range(20):
        reads_as_inline(plan, np.random.default_rng(seed).integers(0, 60, 100).tolist())


def reads_as_inline(plan: Plan, order: list[int]) -> None:
    """Let a run go on, and compare the version of each cell that was read in each pass."""
    run = Run(plan)
    for _ in run.replay([choice + i for choice in order for i in range(3)]):
        pass
    expected = dict(inline(Run(plan), int(run.passes.max()) + 1))
    assert set(run.seen) <= set(expected)
    assert run.seen == {began: expected[began] for began in run.seen}


@EXAMPLES
@given(plans(kinds=(alone, coarse, dual, parted), bounds=st.just(0)), st.integers(5, 60))
def test_with_nothing_stale_the_order_is_that_of_the_inline_runtime(plan, passes):
    plan = dataclasses.replace(plan, fragments=tuple(dataclasses.replace(f, replicas=1) for f in plan.fragments))
    run = Run(plan)
    expected = [began for began, _ in inline(Run(plan), passes)]
    while len(run.begun) < len(expected):
        before = len(run.begun)
        for _ in run.replay([before]):
            pass
        assert sum(ready() for ready in run.waiting) == 1  # nobody has a choice
    assert run.begun == expected


@EXAMPLES
@given(plans(names=REPLAYS, kinds=(alone, coarse, dual, parted, fine)), orders)
def test_over_any_window_what_is_replayed_follows_what_is_inserted(plan, order):
    run, graph = Run(plan), plan.graph
    loose = max((c.staleness for c in plan.cuts if graph.by_id[c.target].domain == "collect"), default=0)
    behind = {section.first: [] for section in run.sections.learning}
    filled = [place for section in run.sections.fillers for place in section.places]
    for _ in run.replay([choice + i for choice in order for i in range(3)]):
        for section in run.sections.learning:
            (rate,) = section.domain.draws
            if run.passes[filled].min() * graph.collected >= rate.after:
                inserted = Fraction(int(run.passes[filled].sum()) * graph.collected, len(filled))
                owed = (inserted - rate.after) * rate.per_insert - int(run.learned[section.first]) * rate.size
                behind[section.first].append(owed)
    for section in run.sections.learning:
        (rate,) = section.domain.draws
        # Not replayed yet: what may be stale, a program that is not whole, a batch that is not, and the newest pass.
        bound = ((loose + 1) * section.repeat + 1) * rate.size + rate.per_insert * graph.collected
        found = behind[section.first]
        assert all(0 <= owed < bound for owed in found)
        # So in every window: what was replayed in it is the rate times what was inserted, to within the same bound.
        assert max(found, default=0) - min(found, default=0) < bound


TINY = {
    "dqn": (headrace.DQN(num_envs=4, warmup=64, batch_size=32, hidden=(16,), replay_capacity=5_000), "CartPole-v1"),
    "sac": (headrace.SAC(num_envs=4, warmup=64, batch_size=32, hidden=(16,), replay_capacity=5_000), "Pendulum-v1"),
}


@pytest.mark.parametrize("name", list(TINY))
def test_a_run_holds_its_rate(name: str) -> None:
    algorithm, env = TINY[name]
    runtime = Processes(
        headrace.plan(algorithm, env, "desktop"), algorithm, env, 0, Options(evaluate=False, hang_seconds=600)
    )
    # What may be stale at either end of the window is to be less than a hundredth of it.
    wanted = 100 * 3 * runtime.repeat
    end = time.monotonic() + 600
    try:
        while runtime.progress.learned == 0 and time.monotonic() < end:
            runtime.advance()
        runtime.figures()
        began = runtime.progress.learned
        while runtime.progress.learned < began + wanted and time.monotonic() < end:
            runtime.advance()
        assert runtime.progress.learned >= began + wanted
        assert runtime.figures()["rate/per_insert"] == pytest.approx(algorithm.config.samples_per_insert, rel=0.01)
    finally:
        runtime.close()
