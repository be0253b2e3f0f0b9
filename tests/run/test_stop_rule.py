"""goal: when a run is over."""

from __future__ import annotations

import pytest

from headrace.errors import UsageError
from headrace.run.stop_rule import DEFAULT_STEPS, StopRule


def test_without_a_goal_a_million_steps():
    assert StopRule.of(None, None, None) == StopRule(steps=DEFAULT_STEPS) == StopRule(steps=1_000_000)
    assert StopRule.of(None, 5.0, None) == StopRule(seconds=5.0)


@pytest.mark.parametrize(
    ("goal", "steps", "elapsed", "share", "spent"),
    [
        (StopRule(steps=100), 0, 99.0, 0.0, False),
        (StopRule(steps=100), 99, 0.0, 0.99, False),
        (StopRule(steps=100), 100, 0.0, 1.0, True),
        (StopRule(steps=100), 250, 0.0, 1.0, True),
        (StopRule(seconds=10), 10**9, 5.0, 0.5, False),
        (StopRule(seconds=10), 0, 10.0, 1.0, True),
        (StopRule(steps=100, seconds=10), 50, 2.0, 0.5, False),
        (StopRule(steps=100, seconds=10), 50, 10.0, 1.0, True),
        (StopRule(until=3.0), 10**9, 10.0**9, 0.0, False),
    ],
)
def test_whatever_comes_first(goal, steps, elapsed, share, spent):
    assert goal.share(steps, elapsed) == pytest.approx(share)
    assert goal.spent(steps, elapsed) is spent


@pytest.mark.parametrize(
    ("until", "score", "reached"),
    [
        (-200.0, -199.0, True),
        (-200.0, -200.0, True),
        (-200.0, -201.0, False),
        (None, 1e9, False),
        (0.0, float("nan"), False),
    ],
)
def test_reached(until, score, reached):
    assert StopRule(until=until).reached(score) is reached


@pytest.mark.parametrize("values", [{"steps": 0}, {"steps": -5}, {"seconds": 0.0}, {"seconds": float("nan")}])
def test_nothing_to_do_is_refused(values):
    (name,) = values
    with pytest.raises(UsageError, match=rf"--{name} must be above 0, got"):
        StopRule(**values)


def test_as_a_person_reads_it():
    assert str(StopRule(10_000, 60.0, -200.0)) == "until 10,000 steps or 60 s or a return of -200"
    assert StopRule(steps=1).bounded
    assert not StopRule(until=1.0).bounded
