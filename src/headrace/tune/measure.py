"""Starting the probes, and ending them in time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import IO, Any

from headrace.runtimes.boot import present_cores, start
from headrace.runtimes.places import visible_devices
from headrace.tune.model import Costs
from headrace.tune.probe import TASK, ProbeTask

PATIENCE = 1.0
"""Seconds to wait for a killed process: it takes some hundredths to be gone, unless the machine is overloaded."""

RESERVE = 6.0
"""Seconds kept for each later group of probes, at most: the first tells most."""

LOOK = 0.05
"""Seconds between two looks at the probes."""


def measured(groups: Sequence[Sequence[ProbeTask]], until: float) -> tuple[Costs, list[str]]:
    """What the probes found until a moment of `time.monotonic`, and what those said that failed."""
    lines: list[dict[str, Any]] = []
    troubles: list[str] = []
    for i, group in enumerate(groups):
        left, after = until - time.monotonic(), len(groups) - i - 1
        found, troubles = _together(group, until - after * min(RESERVE, left / (after + 1)))
        lines += found
        if troubles:
            break
    return costs(lines), troubles


def costs(lines: Iterable[dict[str, Any]]) -> Costs:
    """Of each kind of measurement the lower quartile: whatever disturbs one only ever makes it longer."""
    collect: dict[int, list[float]] = defaultdict(list)
    learn: dict[tuple[str, int, int, int], list[float]] = defaultdict(list)
    memory, wanted, taken = [0.0], 0.0, 0.0
    for line in lines:
        if "wall" in line:
            # Each measurement took about as long, so each counts the same.
            wanted, taken = wanted + line["seconds"] / line["wall"], taken + 1
        if "envs" in line:
            collect[line["envs"]].append(line["seconds"])
            memory.append(line["memory"])
        elif "fragment" in line:
            learn[line["fragment"], line["threads"], line["repeat"], line["size"]].append(line["seconds"])
    return Costs(
        {envs: _low(found) for envs, found in sorted(collect.items())},
        {program: _low(found) for program, found in sorted(learn.items())},
        max(memory),
        wanted / taken if taken else 1.0,
    )


def _low(found: list[float]) -> float:
    return sorted(found)[len(found) // 4]


class Probe:
    """A running probe and what it says."""

    def __init__(self, task: ProbeTask):
        self.out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the probe
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        present = present_cores()
        cores = [present[core] for core in task.cores if core < len(present)]
        devices = visible_devices([each["device"] for each in task.fragments], alone=False)
        how: Any = {"variables": {TASK: json.dumps(asdict(task)), **devices}, "out": self.out, "errors": self.errors}
        # In a session of its own: whatever its environments start can be ended with it.
        self.process = start("headrace.tune.probe", cores, task.threads, session=True, **how)

    def lines(self) -> list[dict[str, Any]]:
        """What it has measured; a line that is being written does not count."""
        whole = os.pread(self.out.fileno(), 1 << 24, 0).rpartition(b"\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line.startswith(b"{")]

    def trouble(self) -> str | None:
        """The last words of one that ended by itself."""
        if self.process.poll() is None:
            return None
        said = os.pread(self.errors.fileno(), 1 << 24, 0).decode(errors="replace").strip().splitlines()
        return said[-1].rstrip(".") if said else f"a probe ended with {self.process.returncode}"

    def kill(self) -> None:
        """End it, and whatever it started, at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Let go of what is left of it."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            threading.Thread(target=self.process.wait, daemon=True).start()
        self.out.close()
        self.errors.close()


def _together(group: Sequence[ProbeTask], until: float) -> tuple[list[dict[str, Any]], list[str]]:
    """Run probes side by side until each has measured everything, one has failed, or it is time."""
    probes: list[Probe] = []
    try:
        for task in group:
            probes.append(Probe(task))
        troubles: list[str] = []
        while time.monotonic() < until and not troubles and not all({"done": True} in p.lines() for p in probes):
            time.sleep(min(LOOK, max(0.0, until - time.monotonic())))
            troubles = [trouble for probe in probes if (trouble := probe.trouble()) is not None]
        return [line for probe in probes for line in probe.lines()], troubles
    finally:
        for probe in probes:
            probe.kill()
        for probe in probes:
            probe.close()
