"""A plan runs as drawn, whatever its shape: hundreds of plans at random."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, seed, settings
from random_plans import ALGORITHMS, plans, rule_of, run_inline

from headrace.graph import Plan

PLANS = dict.fromkeys(ALGORITHMS, 56) | {"mappo": 20}
"""Plans of each algorithm that are verified and run inline; each of MAPPO's takes as long as several others'."""

assert sum(PLANS.values()) >= 300


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_plan_is_refused_by_a_rule_or_runs_inline_as_drawn(name: str) -> None:
    ran, number = Counter[str](), PLANS[name]

    @seed(0)  # with which each has plans that two laws or more refuse, asserted below
    @settings(max_examples=number, database=None, suppress_health_check=list(HealthCheck))
    @given(plans(names=(name,)))
    def check(plan: Plan) -> None:
        rule = rule_of(plan)
        ran[rule or "ran"] += 1
        if rule is None:
            run_inline(plan)

    check()
    assert sum(ran.values()) >= number
    assert ran["ran"] >= number // 6, ran
    assert len(ran) > 2, ran
