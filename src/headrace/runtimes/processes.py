"""The processes runtime: one process for each fragment replica, and one for the evaluator.

The parent allocates one shared block, starts the processes, replaces those that die, and reads how far they are.
Data crosses in shared memory alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import asdict
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.channels.memory import Memory, measure
from headrace.config import object_path, to_json
from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell
from headrace.envs import Episode, env_id
from headrace.errors import HeadraceError, UsageError
from headrace.graph import Plan
from headrace.graph.compile import make_cells
from headrace.runtimes.base import Runtime
from headrace.runtimes.shared import EPISODES, Shared
from headrace.runtimes.worker import TASK, Task
from headrace.services.evaluate import Score
from headrace.services.progress import Progress

BOOT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: never outlive the parent, whatever it died of
from headrace.runtimes.worker import main
sys.exit(main())
"""
"""What a process runs first: before JAX is imported, which takes seconds in which the parent may die."""

POLL = 0.05
"""Seconds between two looks at the processes."""

GRACE = 4.0
"""Seconds that processes have to end by themselves."""

DEATHS, WITHIN = 20, 60.0
"""Deaths of processes, within so many seconds, after which a run is given up."""


class FragmentError(HeadraceError):
    """A process that cannot do its work."""


class Process:
    """One worker, started anew when it dies."""

    def __init__(self, name: str, task: Task, fds: tuple[int, ...]):
        self.name = name
        self.task = task
        self.fds = fds
        self.said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.start()

    def start(self) -> None:
        words = [sys.executable, "-c", BOOT]
        self.said.seek(0)
        self.said.truncate()
        environment = os.environ | {TASK: self.task.to_json(), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self.handle = subprocess.Popen(words, env=environment, pass_fds=self.fds, stdout=self.said, stderr=self.said)

    def last_words(self) -> str:
        """What it printed."""
        self.said.seek(0)
        return self.said.read().decode(errors="replace").strip()


class Processes(Runtime):
    """Runs a plan in processes of its own."""

    evaluates = True

    def __init__(self, plan: Plan, algorithm: Algorithm[Any], env: Any, seed: int, debug: bool = False):
        if debug:
            raise UsageError("--debug needs the inline runtime, where print and breakpoint() reach you.")
        if len(plan.fragments) == 1:
            raise UsageError(
                f"policy '{plan.policy}' has one fragment, so there is nothing to run in processes of its own; "
                "use the inline runtime or another policy."
            )
        self.plan = plan
        self.algorithm = algorithm
        self.env = env
        self.seed = seed
        self.progress = Progress()
        self.start = make_cells(algorithm, plan.graph, seed)
        size = measure(lambda layout: Shared(layout, plan, self.start))
        self.memory = Memory.create(size, "the replay store and the weights", "set replay_capacity lower")
        self.shared = Shared(self.memory.layout(), plan, self.start)
        self.processes: list[Process] = []
        self.deaths: deque[float] = deque()
        self.read = np.zeros(self.shared.replicas, np.int64)
        self.scored = 0

    def _launch(self) -> None:
        """Start every process."""
        roles = [("sampler", i) for i in range(self.shared.replicas)] + [("learner", 0), ("evaluator", 0)]
        for role, replica in roles:
            task = Task(
                role=role,
                replica=replica,
                algorithm=object_path(type(self.algorithm)),
                settings=to_json(self.algorithm.config),
                env=env_id(self.env),
                seed=self.seed,
                policy=self.plan.policy,
                fragments=[asdict(fragment) for fragment in self.plan.fragments],
                cuts=[asdict(cut) for cut in self.plan.cuts],
                memory=dict(self.memory.description),
                parent=os.getpid(),
            )
            self.processes.append(Process(f"{role} {replica}", task, self.memory.fds))

    def advance(self) -> None:
        if not self.processes:
            self._launch()
        time.sleep(POLL)
        self._supervise()
        self._look()

    def _supervise(self) -> None:
        """Replace what died; give up when too much does, or when it is the user's mistake."""
        for process in self.processes:
            code = process.handle.poll()
            if code is None:
                continue
            if code >= 0:
                words = process.last_words()
                raise FragmentError(
                    f"the {process.name} failed: {words.splitlines()[-1] if words else f'exit code {code}'}"
                )
            now = time.monotonic()
            self.deaths.append(now)
            while self.deaths and now - self.deaths[0] > WITHIN:
                self.deaths.popleft()
            if len(self.deaths) > DEATHS:
                raise FragmentError(
                    f"processes died {len(self.deaths)} times in a minute, the last the {process.name}."
                )
            process.start()

    def _look(self) -> None:
        """Take over what the processes have done since."""
        shared, progress = self.shared, self.progress
        progress.passes = int(shared.passes.min())
        progress.env_steps = int(shared.passes.sum()) * shared.pace.collected // shared.replicas
        progress.learned = shared.learned
        source = self.plan.graph.source
        each = source.option("epochs") * shared.pace.collected if self.plan.graph.on_policy else source.option("size")
        progress.update_frames = progress.learned * each
        if progress.learned:
            progress.metrics = dict(zip(shared.names, shared.metrics.tolist(), strict=False))
        for replica in range(shared.replicas):
            newest = int(shared.finished[replica])
            for i in range(max(int(self.read[replica]), newest - EPISODES), newest):
                reward, length = shared.episodes[replica, i % EPISODES]
                progress.episodes.append(Episode(float(reward), int(length)))
            self.read[replica] = newest

    def take_score(self) -> Score | None:
        """The evaluator's newest result, once."""
        newer = self.shared.score.read(newer_than=self.scored)
        if newer is None:
            return None
        self.scored, (table,) = newer
        return Score(tuple(table[0].tolist()), tuple(int(n) for n in table[1]))

    def updates(self) -> int:
        return self.shared.updates

    def cells(self) -> dict[str, Cell]:
        self._stand_still()
        try:
            held = self.shared.state.read()
            return self.start if held is None else self.shared.shelf.cells([jnp.array(leaf) for leaf in held[1]])
        finally:
            self.shared.pause(False)

    def _stand_still(self) -> None:
        """Have samplers and learner stand still, the learner's state published."""
        self.shared.pause(True)
        while self.processes and (self.shared.paused != self.shared.pauses).any():
            time.sleep(0.002)
            self._supervise()
        self._look()

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self._stand_still()
        try:
            held = self.shared.state.read()
            flat = self.shared.shelf.flat(self.start) if held is None else list(held[1])
            arrays: dict[str, Any] = {"cells": self.shared.shelf.arrays(flat)}
            if self.shared.table is not None:
                contents = self.shared.table.contents()
                arrays["replay"] = contents | {"rows": [rows.copy() for rows in contents["rows"]]}
            return arrays, self.progress.counters()
        finally:
            self.shared.pause(False)

    def restore(self, arrays: dict[str, Any], values: dict[str, Any]) -> None:
        self.progress = Progress(**values)
        self.shared.state.publish([np.asarray(leaf) for leaf in jax.tree.leaves(arrays["cells"])])
        self.shared.learned = self.progress.learned
        self.shared.passes[:] = self.progress.passes
        if self.shared.table is not None:
            self.shared.table.fill(arrays["replay"])

    def close(self) -> None:
        """End every process: by a word, then by force."""
        self.shared.stop()
        until = time.monotonic() + GRACE
        for process in self.processes:
            try:
                process.handle.wait(max(0.05, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.handle.kill()
                process.handle.wait()
            process.said.close()
        self.memory.close()
