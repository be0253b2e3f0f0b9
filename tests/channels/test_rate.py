"""rate: what is replayed for what is inserted never drifts."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.algorithms import DQN
from headrace.channels.rate import Rate
from headrace.graph import trace
from headrace.types import Box, Discrete, EnvSpec


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 500),
    st.fractions(Fraction(1, 50), 60, max_denominator=50),
    st.integers(1, 300),
    st.lists(st.integers(0, 97), min_size=1, max_size=60),
    st.integers(1, 9),
)
def test_replayed_follows_inserted_to_within_one_batch_at_every_moment(after, per_insert, size, inserts, repeat):
    rate = Rate(after, per_insert, size)
    inserted = passes = 0
    for number in inserts:
        inserted += number
        passes += rate.due(inserted, passes)
        earned = max(0, inserted - after) * per_insert
        assert passes * size <= earned < (passes + 1) * size
        assert rate.due(inserted, passes) == 0
    # Taken `repeat` at a time, or all at the end, it is the same number.
    assert rate.due(inserted, 0) == passes
    in_groups = 0
    while rate.due(inserted, in_groups) >= repeat:
        in_groups += repeat
    assert passes - repeat < in_groups <= passes


@pytest.mark.parametrize(
    ("inserted", "passes", "due"), [(0, 0, 0), (100, 0, 0), (103, 0, 0), (104, 0, 1), (112, 1, 2), (112, 9, 0)]
)
def test_due_by_hand(inserted, passes, due):
    assert Rate(after=100, per_insert=Fraction(16), size=64).due(inserted, passes) == due


@pytest.mark.parametrize(
    ("text", "exact"), [(0.1, Fraction(1, 10)), (16, Fraction(16)), (1 / 3, Fraction(1, 3)), (2.5, Fraction(5, 2))]
)
def test_a_rate_is_the_fraction_a_person_meant(text, exact):
    algorithm = DQN(hidden=(4,), samples_per_insert=text, batch_size=32, warmup=77)
    rate = Rate.of(trace(algorithm, EnvSpec("toy", Box((2,)), Discrete(2), 8)).source)
    assert rate == Rate(after=77, per_insert=exact, size=32)


def test_no_drift_after_a_billion_inserts():
    rate = Rate(after=1000, per_insert=Fraction(1, 10), size=7)
    assert rate.due(10**9 + 1000, 0) == 10**8 // 7
