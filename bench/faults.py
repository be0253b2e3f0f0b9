"""A run that is shot at: processes of every kind killed at random, one sampler stopped, every row checked.

    python bench/faults.py [kills] [seconds] [policy ...]    defaults: 60 kills of each policy, about 2 s apart

SAC with a small network, an evaluator and a viewer beside it, under four policies: a table that samplers fill, two
learners, environments apart whose steps are streamed, and loops whose gradients are applied in one place. Every row of
its environment can be checked from its own numbers (tests/runtimes/faulty_envs.py). It takes some minutes and fails if
anything that was committed is lost, torn or taken back, if somebody does not get on again, or if anything is left
behind.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "runtimes"))

from measure import report
from torture import Torture, left_behind

KILLS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
PAUSE = float(sys.argv[2]) if len(sys.argv) > 2 else 2.0
POLICIES = sys.argv[3:] or ["desktop", "dual_device", "single_learner_fine", "central"]
# `multiple_learners` is not among them: there all are started anew when one dies, from the pass that the slowest of
# them was in, so counters do go back.
NEVER = (
    "counters that went back",
    "rows lost or changed across kills",
    "rows torn",
    "rows that do not follow the one before",
)


def shoot_at(policy: str) -> dict[str, object]:
    """What one run went through."""
    began = time.monotonic()
    tortured = Torture(policy, seed=0, hang_seconds=10.0)
    tortured.get_on(spectators=True)
    tortured.run(KILLS, PAUSE)
    tortured.get_on(spectators=True)
    frozen = tortured.freeze()
    tortured.get_on(spectators=True)
    found = tortured.end() | {"seconds until a stopped one's successor works": frozen}
    del tortured
    found |= {"left behind": left_behind(), "seconds": time.monotonic() - began}
    assert not any(found[what] for what in (*NEVER, "left behind")), found
    assert found["rows that end an episode nobody could go on with"] <= found["such rows at most"], found
    # Whoever watches stands back for the others, and may not hear in time.
    assert set(found["did not end by themselves"]) <= {"evaluator 0", "viewer 0"}, found
    return found


def main() -> None:
    found = {policy: shoot_at(policy) for policy in POLICIES}
    report(
        "faults", {f"{policy}, {what}": value for policy, figures in found.items() for what, value in figures.items()}
    )


if __name__ == "__main__":
    main()
