"""Plans at random in real processes: refused by the name of a rule, or run exactly as drawn.

    python bench/random_plans.py [plans]        default: 300 that keep the laws
    python bench/random_plans.py PLAN.json      one that failed, as it was printed

Partitions of the graphs of six algorithms into fragments, replicas, staleness and channels, as in
tests/conformance/random_plans.py. Of each that keeps the laws: there are as many processes as fragments times replicas,
each node is executed only where it was placed, each stream carries what its edge says, to the byte, the asked steps are
reached, and with staleness 0 the cells are those of the inline runtime, to the bit. It takes some seconds a plan.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "conformance"))

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from measure import report
from random_plans import SEED, graph_of, plans, rule_of, run_inline, run_processes

from headrace.graph import Fragment, Plan
from headrace.graph.plan import Cut

ASKED = sys.argv[1] if len(sys.argv) > 1 else "300"
PLANS = int(ASKED) if ASKED.isdigit() else 0


def as_drawn(plan: Plan) -> bool:
    """Run a plan in processes; whether it has nothing stale, and was seen to give the bits of the inline runtime."""
    theirs, counted = run_processes(plan)
    if any(cut.staleness for cut in plan.cuts):
        return False
    ours, counters = run_inline(plan)
    assert counters == counted
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
    return True


def replay(plan: Plan, error: Exception) -> str:
    """What went wrong, and a plan by which it can be tried again: `python bench/random_plans.py PLAN.json`."""
    drawn = {"algorithm": plan.graph.algorithm, "policy": plan.policy}
    drawn |= {"fragments": [asdict(one) for one in plan.fragments], "cuts": [asdict(one) for one in plan.cuts]}
    return f"FAILED (seed {SEED}): {type(error).__name__}: {error}\n{json.dumps(drawn)}"


def again(path: Path) -> None:
    """Try the plan of a file, as `replay` prints it."""
    held = json.loads(path.read_text())
    fragments = [Fragment(**f | {"nodes": tuple(f["nodes"]), "cores": tuple(f["cores"])}) for f in held["fragments"]]
    cuts = tuple(Cut(**cut) for cut in held["cuts"])
    as_drawn(Plan(graph_of(held["algorithm"]), held["policy"], tuple(fragments), cuts))


def main() -> None:
    began, seen, shapes, failed, processes = time.monotonic(), Counter[str](), set[str](), list[str](), 0

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
        if seen["tried"] >= PLANS:
            return
        rule = rule_of(plan)
        if rule is not None or plan.gradients is not None:  # replicas that learn as one: tests/conformance
            seen[f"refused by {rule}" if rule else "left out: gradients cross"] += 1
            return
        shape = f"{plan.policy}, {[(fragment.nodes, fragment.replicas) for fragment in plan.fragments]}"
        if shape in shapes:
            return
        shapes.add(shape)
        try:
            same = as_drawn(plan)
        except Exception as error:  # noqa: BLE001 - the others are tried too; all that failed is said at the end
            failed.append(replay(plan, error))
            print(failed[-1], file=sys.stderr, flush=True)
            return
        finally:
            seen["tried"] += 1
        seen["ran"] += 1
        seen["bits of inline"] += same
        processes += sum(fragment.replicas for fragment in plan.fragments)
        print(f"{seen['tried']} of {PLANS}: {shape}", file=sys.stderr, flush=True)

    check()
    assert not failed, f"{len(failed)} of {seen['tried']} plans failed:\n" + "\n".join(failed)
    del seen["tried"]
    figures = {"plans that ran as drawn": seen.pop("ran"), "processes started": processes}
    report("random_plans", figures | dict(sorted(seen.items())) | {"seconds": time.monotonic() - began})


if __name__ == "__main__":
    main() if PLANS else again(Path(ASKED))
