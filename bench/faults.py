"""A run that is shot at: processes of every kind killed at random, one sampler stopped, every row checked.

    python bench/faults.py [kills] [seconds]        defaults: 60 kills of each policy, about 2 s apart

SAC with a small network, samplers, learners, evaluator and viewer side by side, over an environment whose every row can
be checked from its own numbers (tests/runtimes/faulty_envs.py). It takes some minutes and fails if anything that was
committed is lost, torn or taken back, if somebody does not get on again, or if anything is left behind.
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
    found = tortured.end() | {"seconds until a stopped sampler's successor works": frozen}
    del tortured
    found |= {"left behind": left_behind(), "seconds": time.monotonic() - began}
    assert not any(found[what] for what in (*NEVER, "left behind")), found
    # Whoever watches stands back for the others, and may not hear in time.
    assert set(found["did not end by themselves"]) <= {"evaluator 0", "viewer 0"}, found
    return found


def main() -> None:
    found = {policy: shoot_at(policy) for policy in ("desktop", "dual_device")}
    report(
        "faults", {f"{policy}, {what}": value for policy, figures in found.items() for what, value in figures.items()}
    )


if __name__ == "__main__":
    main()
