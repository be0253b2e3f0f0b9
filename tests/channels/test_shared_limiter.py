"""limiter between processes: neither side drifts, and one of them may always go on."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.channels.limiter import Limiter, Rate
from headrace.channels.memory import Layout
from headrace.channels.table import Table
from headrace.channels.wait import OverdueError, PeerGone
from headrace.errors import ConfigError

from .peers import ENVS, TIMEOUT, insert_limited, limited, make, result, spawn, step_struct

LEARNER = -1

rates = st.builds(Rate, st.integers(0, 300), st.fractions(Fraction(1, 20), 40, max_denominator=20), st.integers(1, 100))


def limiter_of(rate, passes=1, slack=None, writers=1):
    table = Table(step_struct(), writers, 8 * writers * ENVS)
    return table, Limiter(Layout(np.zeros(64, np.uint8)), rate, table, passes, slack)


@settings(max_examples=150, deadline=None)
@given(
    rates,
    st.integers(1, 4),
    st.integers(1, 8),
    st.none() | st.integers(0, 50),
    st.none() | st.integers(0, 6),
    st.lists(st.sampled_from([LEARNER, *range(4), *range(4)]), min_size=20, max_size=300),
)
def test_whatever_the_interleaving_neither_side_drifts_and_one_may_go_on(rate, writers, passes, more, short, turns):
    """A turn is half an insertion, its look or its commit, of a writer; or a pass of the learner."""
    table, limiter = limiter_of(rate, passes, writers=writers)
    if more is not None:
        enough = limiter.slack // 2
        limiter = Limiter(Layout(np.zeros(64, np.uint8)), rate, table, passes, enough + more)
    if short is not None:  # start as far ahead as one writer may be, or some steps short of it
        while limiter.may_insert():
            table.written[0] += 1
        table.written[0] = max(0, table.written[0] - short)
    allowed = [False] * writers
    history = [(0, 0)]
    for number in turns:
        turn = number % writers
        if number == LEARNER:
            if limiter.may_sample(passes):
                limiter.sample(passes, 0, lambda: True)
        elif allowed[turn]:
            table.written[turn] += 1
            allowed[turn] = False
        else:
            allowed[turn] = limiter.may_insert()
        ahead = (table.inserted - rate.after) * rate.per_insert - limiter.replayed
        assert limiter.replayed <= max(0, table.inserted - rate.after) * rate.per_insert
        assert ahead <= limiter.slack * rate.per_insert
        assert any(allowed) or limiter.may_insert() or limiter.may_sample(passes)
        if table.inserted >= rate.after:
            history.append((table.inserted, limiter.replayed))
    for start in history[1 :: max(1, len(history) // 20)]:
        drift = (history[-1][0] - start[0]) * rate.per_insert - (history[-1][1] - start[1])
        assert abs(drift) <= limiter.slack * rate.per_insert


@settings(max_examples=100, deadline=None)
@given(rates, st.integers(1, 4), st.integers(1, 8))
def test_with_the_least_slack_both_sides_still_go_on_for_ever(rate, writers, passes):
    table, roomy = limiter_of(rate, passes, writers=writers)
    limiter = Limiter(Layout(np.zeros(64, np.uint8)), rate, table, passes, roomy.slack // 2)
    for _ in range(30):
        for _ in range(10_000):
            if not limiter.may_insert():
                break
            table.written[0] += 1
        assert limiter.may_sample(passes)
        while limiter.may_sample(passes):
            limiter.sample(passes, 0, lambda: True)
        assert limiter.may_insert()
    assert limiter.replayed > 0


def test_less_slack_is_refused():
    rate = Rate(100, Fraction(16), 64)
    with pytest.raises(ConfigError, match=r"slack=39 must be >= 40, .* would stop both sides for ever"):
        limiter_of(rate, passes=8, slack=39, writers=2)
    assert limiter_of(rate, passes=8, slack=40, writers=2)[1].slack == 40


def test_by_hand_and_from_a_checkpoint():
    table, limiter = limiter_of(Rate(after=100, per_insert=Fraction(16), size=64), slack=8)
    inserts = 0
    while limiter.may_insert():
        table.written[0] += 1
        inserts += ENVS
    assert inserts == 108
    for _ in range(2):
        limiter.sample(1, 0, lambda: True)
    assert (limiter.replayed, limiter.may_sample(1), limiter.may_insert()) == (128, False, True)
    with pytest.raises(OverdueError, match="the samplers, which are behind"):
        limiter.sample(1, 0.01, lambda: True)
    with pytest.raises(PeerGone):
        limiter.sample(1, TIMEOUT, lambda: False)
    assert limiter.replayed == 128
    table.written[0] = 10**12
    limiter.restore(16 * (4 * 10**12 - 100) - 64)
    assert limiter.may_sample(1)
    assert not limiter.may_sample(2)


def test_two_samplers_and_a_learner_race_at_the_rate():
    rate = {"after": 200, "numerator": 5, "denominator": 3, "size": 32, "passes": 2}
    memory, (_, table, limiter) = make(lambda layout: limited(layout, **rate))
    samplers = [spawn(insert_limited, memory, writer=w, steps=1_500, pause=w * 2e-4, rate=rate) for w in range(2)]

    def alive():
        return any(sampler.poll() is None for sampler in samplers)

    learned = 0
    earned = (2 * 1_500 * ENVS - 200) * Fraction(5, 3)
    while limiter.replayed + 64 <= earned:
        limiter.sample(2, TIMEOUT, alive)
        assert limiter.replayed <= (table.inserted - 200) * Fraction(5, 3)
        learned += 64
        if learned % 640 == 0:
            time.sleep(2e-3)
    furthest = max(result(sampler) for sampler in samplers)
    assert limiter.slack / 2 < furthest <= limiter.slack  # the bound was met, and held
    assert table.inserted == 2 * 1_500 * ENVS
    assert limiter.replayed == learned == int(earned // 64) * 64
    memory.close()
