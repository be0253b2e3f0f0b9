"""`headrace train` in a process of its own, looked at from outside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.run.record import read_metrics

TINY = ["--set", "num_envs=4", "warmup=64", "batch_size=32", "hidden=16", "replay_capacity=2000"]
TIMEOUT = 600.0
"""Seconds that anything may take on any machine, however busy."""


class Command:
    """A run in a session of its own, as from a terminal: a signal to the group reaches every process of it."""

    def __init__(self, path: Path, *words: str):
        self.path = path
        self.errors = path.with_suffix(".err")
        with self.errors.open("w") as errors:
            self.handle = subprocess.Popen(
                [sys.executable, "-m", "headrace", "train", *words, "--out", str(path), *TINY],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self.errors.read_text()

    def signal(self, number: int) -> None:
        """To every process of the run, as a terminal does."""
        os.killpg(self.handle.pid, number)

    def processes(self) -> list[str]:
        """Those of the run that are there; one that ended and was not asked about yet is not."""
        running = ["pgrep", "-g", str(self.handle.pid), "-r", "DRSTt"]
        return subprocess.run(running, capture_output=True, text=True, timeout=TIMEOUT).stdout.split()

    def learns(self) -> bool:
        """Whether it got as far as learning."""
        return any(line["time/update_frames"] for line in self.metrics())

    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.path)

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for something."""
        end = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < end, f"not within {TIMEOUT:g} s; it said: {self.said}"
            time.sleep(0.02)

    def __enter__(self) -> Command:
        return self

    def __exit__(self, *error: object) -> None:
        if self.handle.poll() is None:
            self.handle.kill()
            self.handle.wait()


def orphans(seconds: float = TIMEOUT) -> list[str]:
    """Files in /dev/shm that stay although nobody who lives has mapped them; other tests have some of their own."""
    end = time.monotonic() + seconds
    while (left := _unmapped()) and time.monotonic() < end:
        time.sleep(0.2)
    return left


def _unmapped() -> list[str]:
    # Semaphores of Python's own multiprocessing are somebody else's: headrace makes none.
    there = [str(path) for path in Path("/dev/shm").iterdir() if not path.name.startswith("sem.mp-")]
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            mapped += maps.read_text()
    return [path for path in there if path not in mapped]
