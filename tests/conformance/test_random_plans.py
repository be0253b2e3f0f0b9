"""A plan runs as drawn, whatever its shape: hundreds of plans at random."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from random_plans import ALGORITHMS, plans, rule_of, run_inline, run_processes

from headrace.graph import Plan

PLANS, REAL = 60, 2
"""Plans of each algorithm that are verified and run inline, and those that are run in real processes."""

seen: Counter[str] = Counter()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_plan_is_refused_by_a_rule_or_runs_inline_as_drawn(name: str) -> None:
    ran = Counter[str]()

    @settings(
        max_examples=PLANS, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(plans(names=(name,)))
    def check(plan: Plan) -> None:
        rule = rule_of(plan)
        ran[rule or "ran"] += 1
        if rule is None:
            run_inline(plan)

    check()
    assert sum(ran.values()) >= PLANS
    assert ran["ran"] >= PLANS // 6, ran
    assert len(ran) > 2, ran


@pytest.mark.parametrize("name", ALGORITHMS)
def test_plans_in_real_processes_give_the_bits_of_inline(name: str) -> None:
    found: list[Plan] = []

    @settings(max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(plans(staleness=(0,), names=(name,)))
    def collect(plan: Plan) -> None:
        if rule_of(plan) is None and plan.gradients is None and len(plan.fragments) > 1 and len(found) < 40:
            found.append(plan)

    collect()
    by_size = sorted(found, key=lambda plan: -sum(fragment.replicas for fragment in plan.fragments))
    for plan in (by_size[len(by_size) // 3], by_size[2 * len(by_size) // 3])[:REAL]:
        ours, counters = run_inline(plan)
        theirs, counted = run_processes(plan)
        assert counters == counted
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a, b)
