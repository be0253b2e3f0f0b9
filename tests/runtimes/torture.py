"""A run whose processes are killed again and again, by SIGKILL and at random, under the eyes of a witness."""

from __future__ import annotations

import gc
import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil
from faulty_envs import Checked, nowhere, over, wrong
from runs import orphans

import headrace
from headrace.compile.cells import optimiser_steps
from headrace.runtimes import Options, Processes, boot

TIMEOUT = 600.0
"""Seconds that anything may take on any machine, however busy."""

ALGORITHM = headrace.SAC(
    num_envs=4,
    hidden=(16,),
    batch_size=32,
    warmup=64,
    samples_per_insert=128,
    replay_capacity=5_000,
    policy_delay=1,
)


class Witness:
    """Watches the replay from outside: nothing committed may be lost, torn or taken back."""

    def __init__(self, runtime: Processes):
        self.ledger = runtime.ledger
        self.tables = [runtime.fabric.store("replay", loop) for loop in range(max(1, runtime.plan.shares))]
        self.streamed = bool(runtime.sections.streams)
        """Whether others see the steps of environments before they are stored."""
        self.counters = self._counters()
        self.compared = 0
        self.changed = 0
        self.backwards = 0
        self.remember()

    def _counters(self) -> list[Any]:
        ledger = self.ledger
        counters = [ledger.learned, ledger.finished, ledger.applied, *(table.written for table in self.tables)]
        return [counter.copy() for counter in counters]

    def look(self) -> None:
        """See that no counter went back."""
        now = self._counters()
        self.backwards += sum(int((a < b).sum()) for a, b in zip(now, self.counters, strict=True))
        self.counters = now

    def remember(self) -> None:
        """Copy all that is committed now."""
        self.held = []
        for table in self.tables:
            until, rows = table.written.copy(), [stripe.copy() for stripe in table.stripes]
            since = np.maximum(0, table.written - table.ring + 1)  # others were overwritten meanwhile
            self.held.append((until, rows, since))

    def compare(self) -> None:
        """See that what was remembered is still there, but for what was overwritten since."""
        for table, (until, held, before) in zip(self.tables, self.held, strict=True):
            rows = [stripe.copy() for stripe in table.stripes]
            since = np.maximum(before, table.written - table.ring + 1)
            for writer in range(table.writers):
                at = np.arange(since[writer], until[writer]) % table.ring
                self.compared += len(at) * table.envs
                for leaf, first, then in zip(jax.tree.leaves(table.rows), held, rows, strict=True):
                    # The newest step may have been marked as truncated, by whoever went on after a killed sampler.
                    kept = at[:-1] if leaf is table.rows.truncated else at
                    differ = first[writer, kept] != then[writer, kept]
                    self.changed += int(differ.reshape(*differ.shape[:2], -1).any(axis=-1).sum())

    def audit(self) -> dict[str, int]:
        """Check every row that is held, and that each follows the one before it; after the run."""
        found = {"rows": 0, "torn": 0, "misplaced": 0, "severed": 0, "nowhere": 0}
        for table in self.tables:
            for writer in range(table.writers):
                written = int(table.written[writer])
                at = np.arange(max(0, written - table.steps), written) % table.ring
                tree = jax.tree.structure(table.rows)
                rows = jax.tree.unflatten(tree, [stripe[writer, at] for stripe in table.stripes])
                ended = rows.terminated | rows.truncated
                follows = (rows.next_obs[:-1] == rows.obs[1:]).all(axis=-1)
                begins = rows.obs[1:, :, 1] == 0
                made_up = nowhere(rows) & wrong(rows) & self.streamed
                # One that was killed before the others saw what its last step led to costs two such steps.
                again = made_up[:-1] & made_up[1:] & follows
                found["rows"] += rows.reward.size
                found["torn"] += int((wrong(rows) & ~made_up).sum())
                found["misplaced"] += int((np.where(ended[:-1], begins | again, follows) == 0).sum())
                found["severed"] += int((ended & ~over(rows)).sum())
                found["nowhere"] += int(made_up.sum())
        return found


def left_behind() -> list[str]:
    """What a run of this process must not leave: children, files in /dev/shm, blocks of memory."""
    gc.collect()  # a runtime and its supervisor hold each other
    spare = [template.process.pid for template in boot._templates]  # for the next run
    children = [
        f"{child.pid} {child.cmdline()}"
        for child in psutil.Process().children(recursive=True)
        if child.pid not in spare
    ]
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:headrace" in line]
    opened = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return children + orphans() + mapped + [target for target in opened if "memfd:headrace" in target]


class Torture:
    """Drives a runtime while its processes are killed."""

    def __init__(self, policy: str, seed: int, hang_seconds: float = TIMEOUT):
        self.random = random.Random(seed)
        self.options = Options(view="ring", eval_episodes=2, eval_every=200, deaths=1000, hang_seconds=hang_seconds)
        plan = headrace.plan(ALGORITHM, Checked, policy, replicas=2)
        self.runtime = Processes(plan, ALGORITHM, Checked, seed, self.options)
        self.witness = Witness(self.runtime)
        self.killed: dict[str, int] = {}
        self.struck = 0
        """Signals to processes that have environments."""
        self.waiting: dict[Any, tuple[int, float]] = {}
        self.recovery: list[float] = []

    def advance(self) -> None:
        self.runtime.advance()
        self.runtime.progress.episodes = []
        self.witness.look()
        for process, (pid, since) in list(self.waiting.items()):
            if process.handle.pid != pid and self.works(process):
                self.recovery.append(time.monotonic() - since)
                del self.waiting[process]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < end, f"waited {TIMEOUT:g} s for {what}"
            self.advance()

    def works(self, process: Any) -> bool:
        """Whether it has shown a sign of life since it was started."""
        beat = self.runtime.ledger.beats[self.runtime.member(process)]
        return process.restart_at is None and beat > process.started * 1e9

    def steps(self, process: Any) -> bool:
        """Whether it has environments."""
        return process.task.fragment == self.runtime.plan.collector.id

    def get_on(self, spectators: bool) -> None:
        """Wait until everybody who collects or learns, and whoever watches, has done more than before."""

        def done() -> list[int]:
            ledger, results = self.runtime.ledger, self.runtime.results
            watched = [results.score.version, results.frame.version] if spectators else []
            applied = ledger.applied if self.runtime.plan.gradients == "apply" else []
            return [*map(int, ledger.passes), *map(int, ledger.learned), *map(int, applied), *watched]

        before = done()
        self.until(lambda: all(a > b for a, b in zip(done(), before, strict=True)), "everybody to get on")

    def strike(self, process: Any, number: signal.Signals) -> None:
        """Send a signal, with what is in the table remembered."""
        self.witness.remember()
        self.struck += self.steps(process)
        os.kill(process.handle.pid, number)
        self.waiting[process] = process.handle.pid, time.monotonic()

    def kill(self) -> None:
        """Kill one that works or, one time in five, any that is there, also one that is only starting."""
        anybody = self.random.random() < 0.2
        there = [p for p in self.runtime.processes if p.handle.poll() is None and (anybody or self.works(p))]
        if there:
            process = self.random.choice(there)
            self.strike(process, signal.SIGKILL)
            self.killed[process.name] = self.killed.get(process.name, 0) + 1

    def run(self, kills: int, pause: float, among: str | None = None) -> None:
        """Kill so many or more, until the one named is `among` them, about `pause` seconds apart."""
        self.kept = optimiser_steps(self.runtime.cells())
        while sum(self.killed.values()) < kills or (among is not None and among not in self.killed):
            self.kill()
            rest = time.monotonic() + self.random.uniform(0, 2 * pause)
            self.until(lambda rest=rest: time.monotonic() >= rest, "the next kill")
            self.witness.compare()

    def freeze(self) -> float:
        """Stop one that has environments, as a debugger or a broken driver would; the seconds until another works."""
        process = next(p for p in self.runtime.processes if self.steps(p) and self.works(p))
        began, pid = time.monotonic(), process.handle.pid
        self.strike(process, signal.SIGSTOP)
        self.until(lambda: process.handle.pid != pid and self.works(process), f"another {process.name}")
        self.witness.compare()
        return time.monotonic() - began

    def end(self) -> dict[str, Any]:
        """End the run as it should end, and say what was found."""
        runtime = self.runtime
        there = list(runtime.processes)
        runtime.stop()
        found, steps = self.witness.audit(), optimiser_steps(runtime.cells())
        runtime.close()
        return {
            "kills": sum(self.killed.values()),
            "killed": ", ".join(f"{name}: {number}" for name, number in sorted(self.killed.items())),
            "seconds until a successor works, median": statistics.median(self.recovery or [0.0]),
            "did not end by themselves": [process.name for process in there if process.handle.returncode != 0],
            "environment steps": runtime.progress.env_steps,
            "learning passes": runtime.progress.learned,
            "optimiser steps before the first kill": self.kept,
            "optimiser steps at the end": steps,
            "counters that went back": self.witness.backwards,
            "rows compared across kills": self.witness.compared,
            "rows lost or changed across kills": self.witness.changed,
            "rows checked at the end": found["rows"],
            "rows torn": found["torn"],
            "rows that do not follow the one before": found["misplaced"],
            "episodes cut short by a replacement": found["severed"],
            "rows that end an episode nobody could go on with": found["nowhere"],
            "such rows at most": 2 * self.struck * ALGORITHM.config.num_envs // runtime.plan.collector.replicas,
        }
