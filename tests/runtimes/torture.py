"""A run whose processes are killed again and again, by SIGKILL and at random, under the eyes of a witness."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from faulty_envs import Checked, wrong

import headrace
from headrace.runtimes import Options, Processes

TIMEOUT = 120.0
ALGORITHM = headrace.SAC(
    num_envs=4, hidden=(16,), batch_size=32, warmup=64, samples_per_insert=128, replay_capacity=20_000
)


class Witness:
    """Watches a table from outside: nothing committed may be lost, torn or taken back."""

    def __init__(self, runtime: Processes):
        self.shared = runtime.shared
        self.table = runtime.shared.table
        self.counters = self._counters()
        self.compared = 0
        self.changed = 0
        self.backwards = 0
        self.remember()

    def _counters(self) -> list[Any]:
        return [self.table.written.copy(), self.shared.learned.copy(), self.shared.finished.copy()]

    def look(self) -> None:
        """See that no counter went back."""
        now = self._counters()
        self.backwards += sum(int((a < b).sum()) for a, b in zip(now, self.counters, strict=True))
        self.counters = now

    def remember(self) -> None:
        """Copy all that is committed now."""
        self.until = self.table.written.copy()
        self.rows = [stripe.copy() for stripe in self.table.stripes]
        self.since = np.maximum(0, self.table.written - self.table.ring + 1)  # others were overwritten meanwhile

    def compare(self) -> None:
        """See that what was remembered is still there, but for what was overwritten since."""
        rows = [stripe.copy() for stripe in self.table.stripes]
        since = np.maximum(self.since, self.table.written - self.table.ring + 1)
        flags = [stripe is self._truncated() for stripe in self.table.stripes]
        for writer in range(self.table.writers):
            steps = np.arange(since[writer], self.until[writer])
            at = steps % self.table.ring
            self.compared += len(at) * self.table.envs
            for before, after, flag in zip(self.rows, rows, flags, strict=True):
                # The newest step may have been marked as truncated, by whoever went on after a killed sampler.
                kept = at[:-1] if flag else at
                differ = before[writer, kept] != after[writer, kept]
                self.changed += int(differ.reshape(len(kept), self.table.envs, -1).any(axis=-1).sum())

    def _truncated(self) -> Any:
        places = jax.tree.leaves(self.table.rows)
        return self.table.stripes[next(i for i, leaf in enumerate(places) if leaf is self.table.rows.truncated)]

    def audit(self) -> dict[str, int]:
        """Check every row that the table holds, and that each follows the one before it; after the run."""
        found = {"rows": 0, "torn": 0, "misplaced": 0, "severed": 0}
        for writer in range(self.table.writers):
            written = int(self.table.written[writer])
            at = np.arange(max(0, written - self.table.steps), written) % self.table.ring
            tree = jax.tree.structure(self.table.rows)
            rows = jax.tree.unflatten(tree, [stripe[writer, at] for stripe in self.table.stripes])
            ended = rows.terminated | rows.truncated
            follows = (rows.next_obs[:-1] == rows.obs[1:]).all(axis=-1)
            begins = rows.obs[1:, :, 1] == 0
            found["rows"] += rows.reward.size
            found["torn"] += int(wrong(rows).sum())
            found["misplaced"] += int((np.where(ended[:-1], begins, follows) == 0).sum())
            found["severed"] += int((rows.truncated & ~_at_end(rows)).sum())
        return found


def _at_end(rows: Any) -> Any:
    """Where an episode ended by itself."""
    from faulty_envs import EPISODES, length

    episode = np.rint(rows.obs[..., 0] * EPISODES).astype(np.int64)
    return np.rint(rows.next_obs[..., 1] * 256).astype(np.int64) == length(episode)


def left_behind() -> list[str]:
    """What a run of this process must not leave: children, names in /dev/shm, blocks of memory."""
    children = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    here = [line for line in children.stdout.splitlines() if " ps " not in line]
    named = [str(path) for path in Path("/dev/shm").iterdir()]
    held = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return here + named + [target for target in held if "memfd:headrace" in target]


class Torture:
    """Drives a runtime while killing its processes."""

    def __init__(self, policy: str, seed: int, hang_seconds: float = 10.0):
        self.random = random.Random(seed)
        options = Options(view="ring", eval_episodes=2, deaths=1000, restarts=1000, hang_seconds=hang_seconds)
        self.runtime = Processes(
            headrace.plan(ALGORITHM, Checked, policy, replicas=2), ALGORITHM, Checked, seed, options
        )
        self.witness = Witness(self.runtime)
        self.killed: dict[str, int] = {}
        self.recovery: list[float] = []
        self.awaited: dict[Any, float] = {}

    def advance(self) -> None:
        runtime, now = self.runtime, time.monotonic()
        runtime.advance()
        runtime.progress.episodes = []
        self.witness.look()
        for process in [process for process in self.awaited if self.works(process)]:
            self.recovery.append(now - self.awaited.pop(process))

    def works(self, process: Any) -> bool:
        """Whether it has shown a sign of life since it was started."""
        beat = self.runtime.shared.beats[self.runtime.shared.member(process.task.role, process.task.replica)]
        return process.restart_at is None and beat > process.started * 1e9

    def until(self, condition: Any, what: str) -> None:
        end = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < end, f"waited {TIMEOUT:g} s for {what}"
            self.advance()

    def everybody_gets_on(self) -> None:
        """Wait until each process has done something that was not there before."""
        shared = self.runtime.shared
        before = self.done()
        self.until(lambda: all(a > b for a, b in zip(self.done(), before, strict=True)), "everybody to get on")
        assert shared.learned.min() > 0

    def done(self) -> list[int]:
        shared = self.runtime.shared
        return [*map(int, shared.passes), *map(int, shared.learned), shared.score.version, shared.frame.version]

    def kill(self, working: bool) -> None:
        """Kill a process: one that works, or any, also one that is only starting."""
        alive = [p for p in self.runtime.processes if p.handle.poll() is None and (self.works(p) or not working)]
        if not alive:
            return
        process = self.random.choice(alive)
        self.witness.remember()
        os.kill(process.handle.pid, signal.SIGKILL)
        self.killed[process.name] = self.killed.get(process.name, 0) + 1
        self.awaited[process] = time.monotonic()

    def run(self, kills: int, pause: float) -> None:
        """Kill so many processes, about `pause` seconds apart."""
        self.everybody_gets_on()
        while sum(self.killed.values()) < kills:
            rest = time.monotonic() + self.random.uniform(0, 2 * pause)
            self.kill(working=self.random.random() < 0.8)
            while time.monotonic() < rest:
                self.advance()
            self.witness.compare()
        self.everybody_gets_on()

    def end(self) -> dict[str, Any]:
        """End the run, and what was found."""
        runtime = self.runtime
        handles = [process.handle for process in runtime.processes]
        runtime.stop()
        witness, found = self.witness, self.witness.audit()
        runtime.close()
        figures = {
            "kills": sum(self.killed.values()),
            "killed": ", ".join(f"{name}: {number}" for name, number in sorted(self.killed.items())),
            "exit codes at the end": sorted({handle.returncode for handle in handles}),
            "seconds to be replaced, median": statistics.median(self.recovery) if self.recovery else 0.0,
            "environment steps": runtime.progress.env_steps,
            "learning passes": runtime.progress.learned,
            "rows checked in the table": found["rows"],
            "rows torn": found["torn"],
            "rows that do not follow the one before": found["misplaced"],
            "rows cut off by a replacement": found["severed"],
            "rows compared across kills": witness.compared,
            "rows lost or changed across kills": witness.changed,
            "counters that went back": witness.backwards,
        }
        return figures
