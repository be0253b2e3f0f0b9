"""A plan runs as drawn in real processes, too, and with nothing stale gives the bits of the inline runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from random_plans import ALGORITHMS, plans, rule_of, run_inline, run_processes

from headrace.graph import Plan

REAL = 2
"""Plans of each algorithm."""


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
