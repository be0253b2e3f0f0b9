"""Rates of drawing: what collecting allows and what learning needs are two views of one rule."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headrace.stores.replay import Sample
from headrace.stores.rollout import Take

samples = st.builds(
    Sample,
    st.just("replay.insert"),
    size=st.integers(1, 512),
    after=st.integers(0, 5_000),
    per_insert=st.sampled_from([0.25, 1 / 3, 1.0, 4.0, 256.0]),
    gamma=st.just(0.99),
    steps=st.just(1),
)
takes = st.builds(Take, st.just("rollout.put"), epochs=st.integers(1, 8), staleness=st.integers(0, 3))


@given(samples | takes, st.integers(1, 64), st.integers(1, 300))
def test_what_learning_needs_is_the_least_that_allows_it(how, collected, learned):
    needed = how.needed(collected, learned)
    assert how.due(collected, needed) >= learned
    assert how.due(collected, needed - 1) < learned
    assert how.needed(collected, 0) == 0


@given(samples | takes, st.integers(1, 64), st.integers(0, 10_000))
def test_passes_come_at_the_rate_once_enough_is_in(how, collected, passes):
    exact = max(Fraction(0), (passes * collected - how.after) * how.rate(collected))
    assert how.due(collected, passes) == int(exact)


def test_an_update_learns_from_what_it_draws():
    assert Sample("replay.insert", 32, 0, 1.0, 0.99, 1).frames(8) == 32
    assert Take("rollout.put", 4, 0).frames(8) == 32
