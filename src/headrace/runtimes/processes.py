"""The processes runtime: one process for each fragment replica, and one each for the evaluator and the viewer.

The parent allocates one shared block, starts the processes, has those replaced that die, and reads how far they are.
Data crosses in shared memory alone.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import asdict, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.channels.memory import Memory, fence, measure
from headrace.channels.table import require_store
from headrace.config import object_path, to_json
from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell
from headrace.envs import recipe_json
from headrace.errors import DivergenceError, FragmentError, PlanError, UsageError
from headrace.graph import Graph, Plan
from headrace.graph.compile import Programs, Shelf, Ticket, bases, make_cells
from headrace.graph.replicated import averaging, part_of, together
from headrace.runtimes.base import PLAIN, Options, Runtime, optimiser_steps
from headrace.runtimes.boot import prepare, present_cores
from headrace.runtimes.group import APART
from headrace.runtimes.inline import contents, fill
from headrace.runtimes.places import Role, fragment_at, sight, spectators, training
from headrace.runtimes.shared import EPISODES, Shared
from headrace.runtimes.supervisor import Process, Supervisor
from headrace.runtimes.watch import GOES_ON
from headrace.runtimes.worker import Task
from headrace.services.evaluate import Score
from headrace.services.progress import Progress

POLL = 0.05
"""Seconds between two looks at the processes."""


class Processes(Runtime):
    """Runs a plan in processes of its own."""

    def __init__(self, plan: Plan, algorithm: Algorithm[Any], env: Any, seed: int, options: Options = PLAIN):
        _check(plan, options)
        self.plan = plan
        self.algorithm = algorithm
        self.env = env
        self.seed = seed
        self.options = options
        self.evaluates = options.evaluate
        self.progress = Progress()
        part = part_of(plan, algorithm)
        self.frames = part.domain.frames * plan.parts
        require_store(plan.graph)
        prepare()  # while the cells are made here
        self.start = make_cells(algorithm, plan.graph, seed)
        if plan.gradients == "reduce":
            prove(plan, part, self.start)

        def share(layout: Any) -> Shared:
            return Shared(layout, plan, part, self.start, options)

        self.memory = Memory.create(measure(share), "what the processes share", "set hidden to smaller sizes")
        self.shared = share(self.memory.layout())
        for held, leaf in zip(self.shared.begin, self.shared.shelf.flat(self.start), strict=True):
            held[...] = leaf
        self.supervisor = Supervisor(options, self._silent_for, self._patience, self._doing)
        self.read = np.zeros(len(self.shared.finished), np.int64)
        self.group: tuple[str, int] | None = None
        self.scored = 0
        self.told: set[str] = set()
        self.waiting: list[tuple[Role, int]] = []
        self.before = self._counts()

    @property
    def processes(self) -> list[Process]:
        """Those that run."""
        return self.supervisor.processes

    def _launch(self, roles: list[tuple[Role, int]]) -> None:
        """Start some processes."""
        options = self.options
        if self.plan.gradients == "reduce" and ("loop", 0) in roles:
            self.group = (f"127.0.0.1:{free_port()}", self.plan.parts)
        for role, replica in roles:
            task = Task(
                role=role,
                replica=replica,
                algorithm=object_path(type(self.algorithm)),
                settings=to_json(self.algorithm.config),
                env=recipe_json(self.env),
                seed=self.seed,
                policy=self.plan.policy,
                fragments=[asdict(fragment) for fragment in self.plan.fragments],
                cuts=[asdict(cut) for cut in self.plan.cuts],
                memory=dict(self.memory.description),
                options=asdict(options),
                parent=os.getpid(),
                group=self.group if role == "loop" else None,
            )
            cores, threads = self._cores(role, replica)
            seen = sight(self.plan, role, replica, [*training(self.plan), *spectators(options)])
            self.processes.append(Process(task, cores, threads, seen, self.memory.fds))

    def _cores(self, role: Role, replica: int) -> tuple[list[int], int]:
        """The cores a process runs on, and its threads."""
        present = present_cores()
        plan = self.plan
        fragment = fragment_at(plan, role, replica) or plan.filler
        wanted = [present[i] for i in fragment.cores if i < len(present)] or present
        if role == "learner" or (role == "loop" and fragment.replicas == 1):
            return wanted, len(wanted)
        if role in ("sampler", "environment", "loop"):
            own = wanted[replica :: fragment.replicas] or [wanted[replica % len(wanted)]]
            if role == "loop" and plan.gradients == "reduce":
                # A collective's threads spin: on one core they would wait for each other's time slices (4 ms, not 1.2).
                return wanted, len(own)
            return own, len(own) if role == "loop" else 1
        return wanted, 1

    def advance(self) -> None:
        if not self.processes:
            self._launch(training(self.plan))
            self.waiting = spectators(self.options)
        time.sleep(POLL)
        self._look()
        if self.waiting and self.progress.learned:
            self._launch(self.waiting)
            self.waiting = []

    def _silent_for(self, process: Process) -> float:
        beat = int(self.shared.beats[self.shared.member(process.task.role, process.task.replica)])
        return (time.monotonic_ns() - beat) / 1e9 if beat > process.started * 1e9 else 0.0

    def _steps(self, process: Process) -> int | None:
        """Steps that a process has begun with its environments, if it has any."""
        task = process.task
        stepping = task.role in ("sampler", "environment", "loop")
        return int(self.shared.steps[self.shared.member(task.role, task.replica)]) if stepping else None

    def _patience(self, process: Process) -> float:
        # A learner runs no code of an environment's, and one program of a large network may take long. A first reset
        # may have much to load.
        slow = process.task.role == "learner" or self._steps(process) == 0
        return self.options.hang_seconds * (6 if slow else 1)

    def _doing(self, process: Process) -> str:
        """What a silent process was doing."""
        step = self._steps(process)
        if step is None:
            return f"{process.name} hangs"
        if not step:
            return f"'{process.task.env['env']}' does not come back from its first reset in {process.name}"
        return f"'{process.task.env['env']}' does not come back from step {step} in {process.name}"

    def _look(self) -> None:
        """Take over what the processes have done since, and see to those that are in trouble."""
        self._take_over()
        self._heed()
        self.supervisor.look()
        loops = [process for process in self.processes if process.task.role == "loop"]
        if self.group is not None and any(process.restart_at is not None for process in loops):
            self._regroup(loops)
        self.progress.notices += self.supervisor.notices
        self.supervisor.notices.clear()

    def _take_over(self) -> None:
        shared, progress = self.shared, self.progress
        self._count_passes()
        progress.update_frames = progress.learned * self.frames
        progress.metrics = dict(shared.measured())
        for replica in range(len(shared.finished)):
            newest = int(shared.finished[replica])
            fence()
            for i in range(max(int(self.read[replica]), newest - EPISODES), newest):
                progress.episodes.append(shared.reported(replica, i))
            self.read[replica] = newest

    def _heed(self) -> None:
        """End a run that has diverged, or say so once for each stage."""
        for found in self.shared.divergences():
            if self.options.on_divergence == "stop":
                raise DivergenceError(str(found))
            if found.node.id not in self.told:
                self.told.add(found.node.id)
                self.progress.notices.append(GOES_ON.format(found))

    def _count_passes(self) -> None:
        shared, progress = self.shared, self.progress
        progress.passes = int(shared.passes.min())
        progress.env_steps = int(shared.passes.sum()) * shared.pace.collected // shared.replicas
        progress.learned = int(shared.learned.min())

    def _counts(self) -> dict[str, Any]:
        return {
            "time": time.monotonic_ns(),
            "waited": self.shared.waited.copy(),
            "lags": self.shared.lags[:, :2].sum(axis=0),
            "steps": self.progress.env_steps,
            "frames": self.progress.update_frames,
        }

    def figures(self) -> dict[str, float]:
        """Lag, rate and busy shares since this was last asked."""
        before, now = self.before, self._counts()
        self.before = now
        lag, passes = now["lags"] - before["lags"]
        figures: dict[str, float] = {}
        if passes > 0:
            figures["lag/actor_versions"] = float(lag / passes)
            figures["lag/actor_versions_max"] = float(self.shared.lags[:, 2].max())
            self.shared.lags[:, 2] = 0
        if now["steps"] > before["steps"]:
            figures["rate/per_insert"] = (now["frames"] - before["frames"]) / (now["steps"] - before["steps"])
        share = 1 - (now["waited"] - before["waited"]) / max(1, now["time"] - before["time"])
        for process in self.processes:
            who = self.shared.member(process.task.role, process.task.replica)
            if self.shared.beats[who]:
                figures[f"busy/{process.name.replace(' ', '_')}"] = float(np.clip(share[who], 0, 1))
        return figures

    def take_score(self) -> Score | None:
        """The evaluator's newest result, once."""
        newer = self.shared.score.read(newer_than=self.scored)
        if newer is None:
            return None
        self.scored, (table, (version, steps), *arrays) = newer
        actor: dict[str, Any] = {}
        for bound in self.plan.graph.play.reads:
            like = self.plan.graph.cells[bound.cell]
            count = len(jax.tree.leaves(like))
            actor[bound.cell] = jax.tree.unflatten(jax.tree.structure(like), arrays[:count])
            arrays = arrays[count:]
        lengths = tuple(int(n) for n in table[1])
        successes = tuple(table[2][~np.isnan(table[2])].tolist())
        return Score(tuple(table[0].tolist()), lengths, int(version), int(steps), actor, successes)

    def version(self) -> int:
        return max(weights.version for weights in self.shared.weights)

    def frame(self) -> tuple[np.ndarray[Any, Any], dict[str, float]] | None:
        """The viewer's newest picture and what it shows; None before the first."""
        newest = self.shared.frame.read()
        if newest is None:
            return None
        image, (height, width, episode, step, reward) = newest[1]
        return image[: int(height), : int(width)], {"episode": episode, "step": step, "reward": reward}

    def updates(self) -> int:
        return int(self.shared.updates.max())

    def cells(self) -> dict[str, Cell]:
        self._stand_still()
        try:
            flat = self.shared.load(self.shared.shelf.flat(self.start))
            return self.shared.shelf.cells([jnp.array(leaf) for leaf in flat])
        finally:
            self.shared.pause(False)

    def _stand_still(self) -> None:
        """Have samplers and learners stand still, the learners' state published."""
        if self.processes:
            self.shared.pause(True)
            while (self.shared.paused != self.shared.pauses).any():
                time.sleep(0.002)
                self._look()
            fence()
            self._look()

    def _regroup(self, loops: list[Process]) -> None:
        """Start those that learn as one anew, all of them: the others wait for one that is gone."""
        self.group = (f"127.0.0.1:{free_port()}", self.plan.parts)
        for process in loops:
            process.kill()
        for counters in (self.shared.learned, self.shared.looped):
            counters[:] = counters.min()
        for process in loops:
            process.task = replace(process.task, group=self.group)
            process.start()

    def _same(self) -> None:
        """Refuse replicas that have come apart."""
        if self.group is not None and self.processes and (self.shared.digests != self.shared.digests[0]).any():
            raise FragmentError(APART)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        self._stand_still()
        try:
            self._same()
            flat = self.shared.load(self.shared.shelf.flat(self.start))
            arrays: dict[str, Any] = {"cells": self.shared.shelf.arrays(flat)}
            if self.shared.tables:
                held = contents(self.shared.tables)
                # A copy: they go on writing.
                arrays["replay"] = jax.tree.map(np.copy, held) if self.processes else held
            return arrays, self.progress.counters()
        finally:
            self.shared.pause(False)

    def restore(self, arrays: dict[str, Any], values: dict[str, Any]) -> None:
        self.progress = Progress(**values)
        self.shared.save(jax.tree.leaves(arrays["cells"]))
        self.shared.learned[:] = self.progress.learned
        self.shared.looped[:] = self.progress.passes
        self.shared.applied[:] = self.progress.passes * self.shared.replicas
        for queue in (queue for queues in self.shared.queues for queue in queues):
            queue.restart(self.progress.learned)  # what was collected and not learned from is not in a checkpoint
        if self.shared.tables:
            fill(self.shared.tables, arrays["replay"])
        self.shared.updates[:] = optimiser_steps(self.cells())
        self._count_passes()
        self.before = self._counts()

    def _finish(self) -> None:
        """If all is collected, let what is due be learned: so that a run of so many steps is always the same run."""
        shared = self.shared
        passes, most = int(shared.passes.min()), self.options.steps
        while self.processes and most is not None and passes * shared.pace.collected >= most:
            if self.plan.loops:
                return  # each learned what was due before it counted its last pass
            if not any(shared.pace.due(passes) >= learned + shared.pace.repeat for learned in shared.learned):
                return
            time.sleep(POLL)
            self._look()

    def stop(self, at_once: bool = False) -> None:
        if not at_once:
            self._finish()
        self.shared.stop()
        running = bool(self.processes)
        self.supervisor.stop(at_once)
        if running and not at_once:
            self._look()

    def close(self) -> None:
        self.stop(at_once=True)
        self.memory.close()


def _check(plan: Plan, options: Options) -> None:
    """Refuse what cannot run in processes."""
    if options.debug:
        raise UsageError("--debug needs the inline runtime, where print and breakpoint() reach you.")
    if plan.one_program:
        raise PlanError(
            f"policy '{plan.policy}' makes one program of the loop and its JAX environment, so there is nothing to run "
            "in processes of its own; use the inline runtime or another policy."
        )


def prove(plan: Plan, part: Graph, cells: dict[str, Cell]) -> None:
    """Refuse a loop whose replicas would not write the same cells."""
    shelf = Shelf(cells)
    learn = Programs(part, shelf).one_pass(part.where(domain="learn", kind="stage"))
    values = {part.source.id: jax.tree.leaves(part.source.output)}
    data = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((plan.parts, *leaf.shape), leaf.dtype), values)
    ticket = Ticket(np.stack([bases(part, 0, 0)] * plan.parts), np.uint32(0))
    try:
        jax.eval_shape(
            together(averaging(learn), plan.parts, (None, 0, Ticket(0, None)), None), shelf.flat(cells), data, ticket
        )
    except ValueError as error:
        if "out_axes" not in str(error):
            raise
        raise PlanError(
            f"policy '{plan.policy}' has replicas learn as one, but a stage of {plan.graph.algorithm} writes a cell "
            "from what one replica alone has seen; average that with headrace.core.averaged, or use another policy."
        ) from None


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        number: int = found.getsockname()[1]
        return number
