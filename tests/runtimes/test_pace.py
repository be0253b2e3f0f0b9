"""The limiter: whatever the order in which processes get to run, both sides stay together and none waits for ever."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace.graph.ir import Domain, Node
from headrace.graph.operations import Sample, Take
from headrace.runtimes import Options, Processes
from headrace.runtimes.pace import Pace

EXAMPLES = settings(max_examples=150, deadline=None)

rates = st.builds(
    Sample,
    st.just("replay.insert"),
    size=st.integers(1, 16),
    after=st.integers(0, 40),
    per_insert=st.fractions(Fraction(1, 2), 20, max_denominator=8),
    gamma=st.just(0.99),
    steps=st.just(1),
)
taking = st.just(Take("rollout.put", epochs=1, staleness=0))
few = st.integers(0, 3)
orders = st.lists(st.integers(0, 59), min_size=20, max_size=200)
"""Which of the permitted moves is made, again and again."""


@st.composite
def paces(draw, on_policy=False, bounds=few):
    """Any pace, of a loop that replays or, where `on_policy`, possibly of one whose programs are single passes."""
    how = draw(taking | rates if on_policy else rates)
    source = Node("source", "store", "source", (), (), operation=how, domain="learn")
    domain = Domain((source,), collected=draw(st.integers(1, 12)))
    return Pace(domain, draw(st.integers(1, 8)) if domain.replays else 1, draw(bounds), draw(bounds))


class Run:
    """A run's counters, and the moves that are permitted now: every pass begins at one moment and counts at a later."""

    def __init__(self, pace: Pace, replicas: int, learners: int):
        self.pace = pace
        self.passes, self.learned = np.zeros(replicas, np.int64), np.zeros(learners, np.int64)
        self.collecting, self.learning = [False] * replicas, [0] * learners

    def moves(self):
        for i, number in enumerate(self.passes):
            if self.collecting[i]:
                yield "collected", i
            elif self.pace.may_collect(int(number), int(self.learned.min())):
                yield "collect", i
        for i in range(len(self.learned)):
            if self.learning[i]:
                yield "learned", i
            elif self.pace.may_learn(int(self.passes.min()), self.learned, i):
                yield "learn", i

    def move(self, what: str, i: int) -> None:
        match what:
            case "collect" | "collected":
                self.passes[i] += self.collecting[i]
                self.collecting[i] = not self.collecting[i]
            case "learn" | "learned":
                self.learned[i] += self.learning[i]
                self.learning[i] = 0 if self.learning[i] else self.pace.repeat

    def replay(self, choices: list[int]):
        """Make permitted moves, chosen by these numbers; there is always one. Yields after each."""
        for choice in choices:
            permitted = list(self.moves())
            assert permitted, f"nobody may go on: {self.pace}, collected {self.passes}, learned {self.learned}"
            self.move(*permitted[choice % len(permitted)])
            yield permitted[choice % len(permitted)]


def earned(pace: Pace, number: int) -> int:
    """Learning passes that so many collecting passes allow."""
    return pace.domain.due(number)


@given(paces(on_policy=True), st.integers(0, 50))
def test_what_may_be_collected_is_what_the_limiter_allows_one_by_one(pace: Pace, learned: int) -> None:
    free = pace.may_collect_until(learned)
    assert free == 0 or pace.may_collect(free - 1, learned)
    assert not pace.may_collect(free, learned)


@EXAMPLES
@given(paces(on_policy=True), st.integers(1, 3), st.integers(1, 2), orders)
def test_nobody_gets_further_ahead_than_the_bound(pace, replicas, learners, order):
    run = Run(pace, replicas, learners)
    for _ in run.replay(order):
        assert run.learned.max() <= earned(pace, int(run.passes.min()))
        # A pass that is in the store began when learning was at most so many programs behind what came before it.
        ahead = earned(pace, max(0, int(run.passes.max()) - 1)) - int(run.learned.min())
        assert ahead < (pace.staleness + 1) * pace.repeat
        if learners == 2:
            first, second = run.learned
            assert first - second <= (pace.apart + 1) * pace.repeat
            assert second - first <= pace.apart * pace.repeat


@EXAMPLES
@given(paces(), st.integers(1, 3), st.integers(1, 2), orders, st.lists(st.integers(1, 12), min_size=1))
def test_fusing_more_or_fewer_passes_on_the_way_stops_nobody(pace, replicas, learners, order, repeats):
    run = Run(pace, replicas, learners)
    largest = max(pace.repeat, *repeats)
    each = -(-len(order) // len(repeats))
    for i, _ in enumerate(run.replay(order)):
        if i % each == each - 1:
            run.pace = run.pace.fused(repeats[i // each])
        assert run.learned.max() <= earned(pace, int(run.passes.min())) + largest
        assert abs(int(run.learned[0] - run.learned[-1])) <= (pace.apart + 2) * largest
    # And everybody gets on from there, not just somebody.
    before = run.passes.min(), run.learned.min()
    got_on = (run.passes.min() > before[0] and run.learned.min() > before[1] for _ in run.replay(list(range(5_000))))
    assert any(got_on), f"somebody stands still: {run.pace}, collected {run.passes}, learned {run.learned}"


@EXAMPLES
@given(paces(on_policy=True, bounds=st.just(0)), st.integers(1, 2), st.integers(5, 60))
def test_with_nothing_stale_the_order_is_that_of_the_inline_runtime(pace, learners, passes):
    run = Run(pace, replicas=1, learners=learners)
    learned = 0
    for number in range(passes):
        assert pace.learned_before(number) == learned
        assert list(run.moves()) == [("collect", 0)]
        run.move("collect", 0)
        assert list(run.moves()) == [("collected", 0)]
        run.move("collected", 0)
        due = earned(pace, number + 1)
        while due - learned >= pace.repeat:  # as in runtimes/inline.py: every learner, in the loop's order
            for who in range(learners):
                assert list(run.moves()) == [("learn", who)]
                run.move("learn", who)
                assert list(run.moves()) == [("learned", who)]
                run.move("learned", who)
            learned += pace.repeat


@EXAMPLES
@given(paces(), st.integers(1, 3), orders)
def test_over_any_window_what_is_replayed_follows_what_is_inserted(pace, replicas, order):
    run, (rate,) = Run(pace, replicas, learners=1), pace.domain.taken
    behind = []
    for _ in run.replay([choice + i for choice in order for i in range(3)]):
        if run.passes.min() * pace.collected >= rate.after:
            inserted = Fraction(int(run.passes.sum()) * pace.collected, replicas)
            behind.append((inserted - rate.after) * rate.per_insert - int(run.learned[0]) * rate.size)
    # Not replayed yet: what may be stale, a program that is not whole, a batch that is not, and the newest pass.
    bound = ((pace.staleness + 1) * pace.repeat + 1) * rate.size + rate.per_insert * pace.collected
    assert all(0 <= owed < bound for owed in behind)
    # So in every window: what was replayed in it is the rate times what was inserted, to within the same bound.
    assert max(behind, default=0) - min(behind, default=0) < bound


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
    wanted = 100 * 3 * runtime.shared.pace.repeat
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
