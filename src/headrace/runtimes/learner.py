"""A learner: runs its stages on what the store gives, as fast as the pace allows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.channels.memory import fence
from headrace.graph.compile import Ticket, bases, stages
from headrace.graph.reports import Report
from headrace.runtimes.base import optimiser_steps
from headrace.runtimes.shared import Mirror
from headrace.runtimes.worker import PATIENCE, Worker

KEEP = 5.0
"""Seconds between two copies of a learner's whole state in shared memory: what its successor goes on from."""

REPORT = 0.5
"""Seconds between two reports of what learning measured."""


def learn(worker: Worker) -> None:
    """Learn until told to stop."""
    learner = Learner(worker)
    while learner.keep_up() and worker.wait(learner.may_learn):
        if not worker.asked_to_pause:
            learner.run()
    learner.keep()
    learner.report()


class Learner:
    """The learning stages of one fragment."""

    def __init__(self, worker: Worker):
        self.worker = worker
        self.shared = shared = worker.shared
        self.graph = worker.graph
        self.number = worker.task.replica
        self.stages = own = stages(self.graph, shared.learners[self.number])
        self.flat = [jnp.array(leaf) for leaf in shared.load(worker.start)]
        self.mirror = Mirror(shared, self.flat, own, but=self.number)
        self.bases = bases(self.graph, worker.task.seed, replica=0)
        self.program: Callable[..., Any] = jax.jit(worker.programs.learner(own), donate_argnums=0)
        self.compiled: set[int] = set()
        self.reports: Report | None = None
        self.repeat = shared.pace.repeat
        self.kept = self.reported = time.monotonic()
        self._release()  # a predecessor may have died before it did
        self.publish()

    def may_learn(self) -> bool:
        shared, pace = self.shared, self.shared.pace
        self.repeat = pace.repeat  # for `run`: it may be another one a moment later
        return self.worker.asked_to_pause or pace.may_learn(int(shared.passes.min()), shared.learned, self.number)

    def run(self) -> None:
        """One program: a trajectory, or as many batches as are fused."""
        shared = self.shared
        learned, repeat = int(shared.learned[self.number]), self.repeat
        ticket = Ticket(self.bases, np.uint32(learned))
        self.mirror.refresh()
        if repeat not in self.compiled:
            self.compiled.add(repeat)
            self.worker.be_long()
        self.flat, self.reports = self.program(self.flat, self._data(ticket, repeat), ticket)
        self.mirror.flat = self.flat
        self.worker.heed(self.stages, self.reports, learned)
        self.publish()  # waits for the program, so that what it read may be given back
        fence()
        shared.learned[self.number] = learned + repeat
        self._release()
        if time.monotonic() - self.reported > REPORT:
            self.report()

    def _data(self, ticket: Ticket, repeat: int) -> Any:
        shared, source = self.shared, self.graph.source
        if shared.table is None:
            slots = [queue.peek(PATIENCE, self.worker.alive) for queue in shared.queues[self.number]]
            parts = list(zip(*(slot.arrays for slot in slots), strict=True))
            return {source.id: [x[0] if len(x) == 1 else np.concatenate(x, axis=1) for x in parts]}
        return shared.table.batches(source, ticket, repeat)

    def _release(self) -> None:
        """Give back every trajectory that was learned from."""
        for queue in self.shared.queues[self.number] if self.shared.queues else ():
            while queue.consumed < self.shared.learned[self.number]:
                queue.release()

    def publish(self) -> None:
        """Let the others see this learner's cells."""
        places = self.shared.published[self.number]
        arrays = [np.asarray(self.flat[i]) for i in places]
        self.shared.weights[self.number].publish(arrays)
        if not places:
            jax.block_until_ready(self.flat)

    def keep_up(self) -> bool:
        """Keep the state when it is asked for or time; stand still while a pause lasts. False if it is time to end."""
        asked = self.worker.asked_to_pause  # once: a pause that begins a moment later finds nothing kept
        if asked or time.monotonic() - self.kept > KEEP:
            self.keep()
        if asked:
            self.worker.stand()
        return not self.worker.over()

    def keep(self) -> None:
        """Put the whole state where a successor finds it."""
        self.kept = time.monotonic()
        self.shared.state[self.number].publish([np.asarray(self.flat[i]) for i in self.shared.owned[self.number]])
        self.shared.updates[self.number] = optimiser_steps(self.shared.shelf.cells(self.flat))

    def report(self) -> None:
        """Say what learning last measured."""
        self.reported = time.monotonic()
        self.shared.updates[self.number] = optimiser_steps(self.shared.shelf.cells(self.flat))
        if self.reports is not None:
            self.shared.note(self.stages, self.reports)
