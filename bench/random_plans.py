"""Plans at random in real processes: refused by the name of a rule, or run exactly as drawn.

    python bench/random_plans.py [plans]        default: 300 that run

Partitions of the graphs of six algorithms into fragments, replicas, staleness and channels, as in
tests/conformance/random_plans.py. Of each that keeps the laws: there are as many processes as fragments times replicas,
each node is executed only where it was placed, each stream carries what its edge says, to the byte, the asked steps are
reached, and with staleness 0 the cells are those of the inline runtime, to the bit. It takes some seconds a plan.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "conformance"))

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from measure import report
from random_plans import plans, rule_of, run_inline, run_processes

from headrace.graph import Plan

PLANS = int(sys.argv[1]) if len(sys.argv) > 1 else 300


def main() -> None:
    began, seen, shapes, processes = time.monotonic(), Counter[str](), set[str](), 0

    @settings(
        max_examples=40 * PLANS,
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(plans())
    def check(plan: Plan) -> None:
        nonlocal processes
        if seen["ran"] >= PLANS:
            return
        rule = rule_of(plan)
        if rule is not None or plan.gradients is not None:  # replicas that learn as one: tests/conformance
            seen[f"refused by {rule}" if rule else "left out: gradients cross"] += 1
            return
        shape = str([(fragment.nodes, fragment.replicas) for fragment in plan.fragments])
        if shape in shapes:
            return
        shapes.add(shape)
        theirs, counted = run_processes(plan)
        seen["ran"] += 1
        processes += sum(fragment.replicas for fragment in plan.fragments)
        if all(cut.staleness == 0 for cut in plan.cuts):
            ours, counters = run_inline(plan)
            assert counters == counted
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(a, b)
            seen["bits of inline"] += 1
        print(f"{seen['ran']} of {PLANS}: {plan.policy}, {shape}", file=sys.stderr, flush=True)

    check()
    figures = {"plans that ran as drawn": seen.pop("ran"), "processes started": processes}
    report("random_plans", figures | dict(sorted(seen.items())) | {"seconds": time.monotonic() - began})


if __name__ == "__main__":
    main()
