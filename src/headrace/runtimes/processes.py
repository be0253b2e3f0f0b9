"""The processes runtime: one process for each fragment replica, and one each for the evaluator and the viewer.

The parent allocates one shared block, starts the processes, has dead ones replaced, and reads their progress. All data
is exchanged through shared memory.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.compile.cells import CellLayout, make_cells, optimiser_steps
from headrace.compile.replicas import prove, replica_graph
from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell
from headrace.envs import recipe_json
from headrace.errors import FragmentError, PlanError, UsageError
from headrace.exec.group import APART
from headrace.exec.pace import Pace
from headrace.fabric.memory import MemoryFabric
from headrace.fabric.results import Results
from headrace.graph import Plan
from headrace.graph.plan import with_services
from headrace.graph.sections import Sections
from headrace.runtimes.base import PLAIN, Options, Runtime
from headrace.runtimes.boot import free_port, prepare_template, present_cores
from headrace.runtimes.places import (
    Member,
    asked_services,
    cores_of,
    device_variables,
    service_members,
    training_members,
)
from headrace.runtimes.progress import Progress
from headrace.runtimes.stored import resume, stored_contents
from headrace.runtimes.supervisor import GRACE, Process, Supervisor
from headrace.runtimes.watch import Watch
from headrace.runtimes.worker import WorkerTask
from headrace.services.evaluate import Score
from headrace.settings.objects import object_path
from headrace.settings.values import to_json
from headrace.shm.memory import Arena, Memory, fence, measure

POLL = 0.05
"""Seconds between two checks of the processes."""


class Processes(Runtime):
    """Runs a plan in processes of its own."""

    def __init__(self, plan: Plan, algorithm: Algorithm[Any], env: Any, seed: int, options: Options = PLAIN):
        if options.debug:
            raise UsageError("--debug needs the inline runtime, where print and breakpoint() reach you.")
        if plan.one_program:
            raise PlanError(
                f"policy '{plan.policy}' makes one program of the loop and its JAX environment, so there is nothing to "
                "run in processes of its own; use the inline runtime or another policy."
            )
        plan = with_services(plan, asked_services(options))
        self.plan, self.algorithm, self.env, self.seed, self.options = plan, algorithm, env, seed, options
        self.evaluates = options.evaluate
        self.progress = Progress()
        self.part = replica_graph(plan, algorithm)
        for store in plan.graph.stores.values():
            store.require_memory()
        prepare_template()  # in the background, while the cells are made here
        self.start = make_cells(algorithm, plan.graph, seed)
        self.layout = CellLayout(self.start)
        if plan.gradients == "reduce":
            prove(plan, self.part, self.start)
        self.sections = Sections(plan)

        def share(arena: Arena) -> tuple[MemoryFabric, Results]:
            fabric = MemoryFabric(arena, self.sections, self.part, self.layout, options.log_info)
            return fabric, Results(arena, plan.graph, self.layout, options.eval_episodes)

        self.memory = Memory.create(measure(share), "what the processes share", "set hidden to smaller sizes")
        self.fabric, self.results = share(self.memory.arena())
        self.ledger = self.fabric.ledger
        for held, leaf in zip(self.fabric.begin, self.layout.flat(self.start), strict=True):
            held[...] = leaf
        self.pace = [Pace.of(self.sections, fragment.id, 0) for fragment in plan.fragments if fragment.nodes]
        self.supervisor = Supervisor(options, self._silent_for, self._patience, self._doing)
        self.read = np.zeros(len(self.ledger.finished), np.int64)
        self.group: tuple[str, int] | None = None
        self.scored = 0
        self.watch = Watch(plan.graph, options.on_divergence)
        self.waiting: list[Member] = []
        self.before = self._counts()

    @property
    def processes(self) -> list[Process]:
        """The running processes."""
        return self.supervisor.processes

    def _launch(self, members: list[Member]) -> None:
        everybody = [*training_members(self.plan), *service_members(self.plan)]
        grouped = self.plan.gradients == "reduce" and self.plan.shares > 1
        if grouped and self.group is None:
            self.group = (f"127.0.0.1:{free_port()}", self.plan.shares)
        for member in members:
            task = WorkerTask(
                fragment=member.fragment,
                replica=member.replica,
                name=member.name,
                device=member.device,
                algorithm=object_path(type(self.algorithm)),
                settings=to_json(self.algorithm.config),
                env=recipe_json(self.env),
                spec=self.plan.graph.spec.to_json(),
                seed=self.seed,
                plan=self.plan.placement(),
                memory=dict(self.memory.description),
                options=asdict(self.options),
                parent=os.getpid(),
                group=None if member.service else self.group,
            )
            cores, threads = cores_of(self.plan, member, present_cores())
            self.processes.append(Process(task, cores, threads, device_variables(member, everybody), self.memory.fds))

    def advance(self) -> None:
        if not self.processes:
            self._launch(training_members(self.plan))
            self.waiting = service_members(self.plan)
        time.sleep(POLL)
        self._look()
        if self.waiting and self.progress.learned:
            self._launch(self.waiting)
            self.waiting = []

    def member(self, process: Process) -> int:
        """The index of a process in the ledger."""
        return self.ledger.members[process.task.fragment, process.task.replica]

    def _silent_for(self, process: Process) -> float:
        beat = int(self.ledger.beats[self.member(process)])
        return (time.monotonic_ns() - beat) / 1e9 if beat > process.started * 1e9 else 0.0

    def _steps(self, process: Process) -> int | None:
        """Steps that a process has begun with its environments, if it has any."""
        stepping = process.task.fragment == self.plan.collector.id
        return int(self.ledger.steps[self.member(process)]) if stepping else None

    def _patience(self, process: Process) -> float:
        # Learning runs no code of an environment's, and one program of a large network may take long. A first reset
        # may have much to load.
        fragment = process.task.fragment
        learns = any(section.fragment.id == fragment for section in self.sections.learning)
        slow = (learns and fragment != self.plan.collector.id) or self._steps(process) == 0
        return self.options.hang_seconds * (6 if slow else 1)

    def _doing(self, process: Process) -> str:
        """What a silent process was doing."""
        step = self._steps(process)
        if step is None:
            return f"{process.name} hangs"
        where = f"step {step}" if step else "its first reset"
        return f"'{process.task.env['env']}' does not come back from {where} in {process.name}"

    def _look(self) -> None:
        """Update the progress, and replace processes that failed."""
        self._count_passes()
        self.progress.metrics = self.ledger.metrics()
        self.progress.episodes += self.ledger.episodes(self.read)
        for found in self.ledger.divergences():
            self.watch.tell(found, self.progress)
        self.supervisor.look()
        loops = [process for process in self.processes if process.task.group is not None]
        if any(process.restart_at is not None for process in loops):
            self._regroup(loops)
        self.progress.notices += self.supervisor.notices
        self.supervisor.notices.clear()

    def _count_passes(self) -> None:
        ledger, progress, graph = self.ledger, self.progress, self.plan.graph
        progress.passes, progress.env_steps = self.fabric.stored()
        learned = []
        for domain in graph.domains:
            own = [place for s in self.sections.learning if s.domain is domain for place in s.places]
            learned.append(int(ledger.learned[own].min()))
        progress.learned_in, progress.learned = learned, sum(learned)
        frames = [domain.frames * self.plan.shares for domain in self.part.domains]
        progress.update_frames = sum(n * each for n, each in zip(learned, frames, strict=True))

    def _counts(self) -> dict[str, Any]:
        return {
            "time": time.monotonic_ns(),
            "waited": self.ledger.waited.copy(),
            "lags": self.ledger.lags[:, :2].sum(axis=0),
            "steps": self.progress.env_steps,
            "frames": self.progress.update_frames,
        }

    def figures(self) -> dict[str, float]:
        """Lag, rate and busy shares since the last call."""
        before, now = self.before, self._counts()
        self.before = now
        lag, passes = now["lags"] - before["lags"]
        figures: dict[str, float] = {}
        if passes > 0:
            figures["lag/actor_versions"] = float(lag / passes)
            figures["lag/actor_versions_max"] = float(self.ledger.lags[:, 2].max())
            self.ledger.lags[:, 2] = 0
        if now["steps"] > before["steps"]:
            figures["rate/per_insert"] = (now["frames"] - before["frames"]) / (now["steps"] - before["steps"])
        share = 1 - (now["waited"] - before["waited"]) / max(1, now["time"] - before["time"])
        for process in self.processes:
            who = self.member(process)
            if self.ledger.beats[who]:
                figures[f"busy/{process.name.replace(' ', '_')}"] = float(np.clip(share[who], 0, 1))
        return figures

    def take_score(self) -> Score | None:
        """The evaluator's newest result, once."""
        newer = self.results.score.read(newer_than=self.scored)
        if newer is None:
            return None
        self.scored, (table, (version, steps), *arrays) = newer
        cells = {bound.cell: self.plan.graph.cells[bound.cell] for bound in self.plan.graph.play.reads}
        modules = jax.tree.unflatten(jax.tree.structure(list(cells.values())), arrays)
        actor = dict(zip(cells, modules, strict=True))
        lengths = tuple(int(n) for n in table[1])
        successes = tuple(table[2][~np.isnan(table[2])].tolist())
        return Score(tuple(table[0].tolist()), lengths, int(version), int(steps), actor, successes)

    def version(self) -> int:
        return max(self.fabric.weights(section).version for section in self.sections.learning)

    def frame(self) -> tuple[np.ndarray[Any, Any], dict[str, float]] | None:
        """The viewer's newest picture and what it shows; None before the first."""
        newest = self.results.frame.read()
        if newest is None:
            return None
        image, (height, width, episode, step, reward) = newest[1]
        return image[: int(height), : int(width)], {"episode": episode, "step": step, "reward": reward}

    def updates(self) -> int:
        return int(self.ledger.updates.max())

    def pids(self) -> dict[str, int]:
        return {process.name: process.handle.pid for process in self.processes}

    def members(self) -> list[dict[str, Any]]:
        return [
            {
                "name": process.name,
                "pid": process.handle.pid,
                "fragment": process.task.fragment,
                "replica": process.task.replica,
                "device": process.task.device,
                "cores": list(process.cores),
                "nodes": self.ledger.executed(self.member(process)),
            }
            for process in self.processes
        ]

    @property
    def refines(self) -> bool:
        return not self.sections.streams and any(domain.fused for domain in self.plan.graph.domains)

    @property
    def repeat(self) -> int:
        return self.ledger.repeat or max(section.repeat for section in self.sections.learning)

    def fuse(self, repeat: int) -> None:
        self.ledger.fuse(repeat)

    def cells(self) -> dict[str, Cell]:
        self._pause_training()
        try:
            flat = self.fabric.load(self.layout.flat(self.start))
            return self.layout.cells([jnp.array(leaf) for leaf in flat])
        finally:
            self.ledger.pause(False)

    def _pause_training(self, until: float | None = None) -> bool:
        """Pause all training processes, with their state saved; False if that took too long."""
        if not self.processes:
            return True
        self.ledger.pause(True)
        while not self._at_rest():
            if until is not None and time.monotonic() > until:
                return False
            time.sleep(0.002)
            self._look()
        fence()
        self._look()
        return True

    def _at_rest(self) -> bool:
        """Whether all processes rest and nothing is due. In this order: one with more to do says so first."""
        ledger = self.ledger
        if (ledger.begun != ledger.passes).any() or (ledger.passes != ledger.passes[0]).any():
            return False
        return self._nothing_due() and ledger.resting

    def _nothing_due(self) -> bool:
        ledger = self.ledger
        if self.plan.gradients == "apply":
            return bool(ledger.applied[0] == ledger.passes.sum())
        return not any(
            pace.may_learn(section, ledger.passes, ledger.learned, ledger.repeat)
            for pace in self.pace
            for section in self.sections.learning
            if section.first in pace.bonds
        )

    def _regroup(self, loops: list[Process]) -> None:
        """Restart all data-parallel replicas: the others wait for one that is gone."""
        self.group = (f"127.0.0.1:{free_port()}", self.plan.shares)
        for process in loops:
            process.kill()
        for counters in (self.ledger.learned, self.ledger.passes, self.ledger.begun):
            counters[:] = counters.min()
        for process in loops:
            process.task = replace(process.task, group=self.group)
            process.start()

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self._pause_training()
        try:
            digests = self.ledger.digests
            if self.group is not None and self.processes and (digests != digests[0]).any():
                raise FragmentError(APART)
            flat = self.fabric.load(self.layout.flat(self.start))
            held = stored_contents(self.fabric)
            if self.processes:
                held = jax.tree.map(np.copy, held)  # they go on writing
            return {"cells": self.layout.arrays(flat), **held}, self.progress.counters()
        finally:
            self.ledger.pause(False)

    def restore(self, arrays: dict[str, Any], values: dict[str, Any]) -> None:
        self.fabric.save(jax.tree.leaves(arrays["cells"]))
        self.progress = resume(self.fabric, arrays, values)
        self.ledger.updates[:] = optimiser_steps(self.cells())
        self._count_passes()
        self.before = self._counts()

    def _finish(self) -> None:
        """Once all steps are collected, finish the learning that is due, so that runs of equal length are equal."""
        most = self.options.steps
        while self.processes and most is not None and self.progress.env_steps >= most and not self._nothing_due():
            time.sleep(POLL)
            self._look()

    def stop(self, at_once: bool = False) -> None:
        if not at_once:
            self._finish()
            self._pause_training(until=time.monotonic() + GRACE)
        self.ledger.stop()
        running = bool(self.processes)
        self.supervisor.stop(at_once)
        if running and not at_once:
            self._look()

    def close(self) -> None:
        self.stop(at_once=True)
        self.memory.close()
