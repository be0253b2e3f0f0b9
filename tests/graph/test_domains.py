"""domains: what is replayed for what is inserted never drifts."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.algorithms import DQN
from headrace.graph import trace
from headrace.graph.ir import Domain, Node
from headrace.stores.replay import Sample
from headrace.stores.rollout import Take
from headrace.types import Box, Discrete, EnvSpec


def sampling(after, per_insert, size):
    return Sample("replay.insert", size, after, per_insert, gamma=0.99, steps=1)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 500),
    st.fractions(Fraction(1, 50), 60, max_denominator=50),
    st.integers(1, 300),
    st.lists(st.integers(0, 97), min_size=1, max_size=60),
    st.integers(1, 9),
)
def test_replayed_follows_inserted_to_within_one_batch_at_every_moment(after, per_insert, size, inserts, repeat):
    rate = sampling(after, per_insert, size)
    inserted = 0
    for number in inserts:
        inserted += number
        passes = rate.due(1, inserted)
        earned = max(0, inserted - after) * per_insert
        assert passes * size <= earned < (passes + 1) * size
        # What so many learning passes need is the least that allows them.
        assert rate.needed(1, passes) <= inserted < rate.needed(1, passes + 1)
    in_groups = 0
    while rate.due(1, inserted) >= in_groups + repeat:
        in_groups += repeat
    assert passes - repeat < in_groups <= passes


@pytest.mark.parametrize(
    ("collected", "passes", "due"), [(1, 0, 0), (1, 100, 0), (1, 103, 0), (1, 104, 1), (8, 13, 1), (8, 14, 3)]
)
def test_due_by_hand(collected, passes, due):
    assert sampling(100, 16, 64).due(collected, passes) == due


@pytest.mark.parametrize(
    ("text", "exact"), [(0.1, Fraction(1, 10)), (16, Fraction(16)), (1 / 3, Fraction(1, 3)), (2.5, Fraction(5, 2))]
)
def test_a_rate_is_the_fraction_a_person_meant(text, exact):
    algorithm = DQN(hidden=(4,), samples_per_insert=text, batch_size=32, warmup=77)
    (domain,) = trace(algorithm, EnvSpec("toy", Box((2,)), Discrete(2), 8)).domains
    assert domain.rate == exact / 32
    assert (domain.begins, domain.frames) == (10, 32)


def test_no_drift_after_a_billion_inserts():
    assert sampling(1000, 0.1, 7).due(1, 10**9 + 1000) == 10**8 // 7


def drawing(*draws, collected):
    nodes = (Node(f"source#{i}", "store", "source", (), (), operation=how) for i, how in enumerate(draws))
    return Domain(0, tuple(nodes), collected)


samples = st.builds(
    sampling, st.integers(0, 300), st.fractions(Fraction(1, 20), 20, max_denominator=20), st.integers(1, 64)
)
takes = st.builds(Take, st.just("rollout.put"), epochs=st.integers(1, 4), staleness=st.integers(0, 3))


@settings(max_examples=150, deadline=None)
@given(st.lists(samples | takes, min_size=1, max_size=3), st.integers(1, 50), st.integers(0, 60))
def test_a_domain_keeps_to_the_slowest_of_its_stores(draws, collected, passes):
    domain = drawing(*draws, collected=collected)
    due = domain.due(passes)
    assert due == min(draw.due(collected, passes) for draw in draws)
    assert domain.due(passes + 1) >= due
    # What so many learning passes need is the least that allows them.
    assert domain.needed(due) <= passes < domain.needed(due + 1)
    assert domain.due(domain.needed(due + 1)) > due
    # Nothing is due before it is let begin, and in the long run as much as the slowest allows.
    assert domain.begins == max(-(-draw.after // collected) for draw in draws)
    assert due == 0 or passes >= domain.begins
    many = 10**9
    missed = domain.rate * many * collected - domain.due(many)
    assert 0 <= missed <= max(draw.rate(collected) * draw.after for draw in draws) + 1
    assert domain.rate == min(draw.rate(collected) for draw in draws)
    assert domain.fused == all(isinstance(draw, Sample) for draw in draws)
    assert domain.frames == sum(draw.frames(collected) for draw in draws)
    picky = [draw.staleness for draw in draws if isinstance(draw, Take)]
    assert domain.staleness == min(picky, default=None)
