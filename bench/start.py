"""Seconds from the command to the first environment step and to the first update.

    python bench/start.py [rounds]        default: 3

`headrace train sac HalfCheetah-v5 --no-tune`, the whole command, once with nothing compiled before and then as it is
every further time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import report

ROUNDS = int(sys.argv[1]) if sys.argv[1:2] not in ([], ["child"]) else 3
COMMAND = ["train", "sac", "HalfCheetah-v5", "--no-tune"]


def child(began: float) -> None:
    """Run the command, and say when its processes had come so far."""
    from headrace.cli import main
    from headrace.runtimes import Processes

    look, said = Processes._look, set()

    def watched(self: Processes) -> None:
        look(self)
        for what, number in (("step", self.progress.env_steps), ("update", self.progress.learned)):
            if number and what not in said:
                said.add(what)
                print(what, time.time() - began, flush=True)

    Processes._look = watched
    with tempfile.TemporaryDirectory() as folder:
        main([*COMMAND, "--seconds", "10", "--quiet", "--out", str(Path(folder) / "run")])


def start(cache: str) -> dict[str, float]:
    words = [sys.executable, __file__, "child", str(time.time())]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | {"XDG_CACHE_HOME": cache})
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith(("step ", "update "))]
    return {what: float(seconds) for what, seconds in lines}


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        cold = start(cache)
        warm = [start(cache) for _ in range(ROUNDS)]
    report(
        "start",
        {
            "command": " ".join(["headrace", *COMMAND]),
            "first step, nothing compiled before, seconds (at most 8)": cold["step"],
            "first update, nothing compiled before, seconds (at most 15)": cold["update"],
            "first step, seconds": statistics.median(one["step"] for one in warm),
            "first update, seconds": statistics.median(one["update"] for one in warm),
        },
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(float(sys.argv[2]))
    else:
        main()
