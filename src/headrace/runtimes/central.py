"""Gradients sent to one process that applies them: loops that work at their own pace, and the one that applies.

Pass k of loop i is number k * loops + i. It may begin once all but `staleness` of those before it were applied, and
they are applied in their order: so no gradient is older than that many, and with staleness 0 it is the inline order.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.channels.memory import fence
from headrace.graph import gradients
from headrace.graph.compile import Ticket
from headrace.runtimes.base import optimiser_steps
from headrace.runtimes.learner import REPORT
from headrace.runtimes.loop import Loop
from headrace.runtimes.worker import PATIENCE, Worker


class Working(Loop):
    """One of the loops: collects, learns aside, and sends what it would change."""

    def prepare(self) -> None:
        self.domain = self.graph.domain
        self.staleness = next(cut.staleness for cut in self.worker.plan.cuts if cut.channel == "central")
        self.program = jax.jit(gradients.gradient(self.graph, self.shared.shelf))
        self.version = 0

    def keep(self) -> None:
        """Whoever applies keeps the state."""
        self.kept = time.monotonic()

    def count(self) -> None:
        """And counts the updates."""

    def may_go_on(self) -> bool:
        if not super().may_go_on():
            return False
        return self.worker.wait(lambda: self._may_begin() or self.worker.asked_to_pause) and self._may_begin()

    def _may_begin(self) -> bool:
        number = int(self.shared.looped[self.replica]) * self.shared.replicas + self.replica
        return bool(self.shared.applied[0] >= number - self.staleness)

    def refresh(self) -> None:
        """Take over the newest cells."""
        newest = self.shared.state[0].read(newer_than=self.version)
        if newest is not None:
            self.version, arrays = newest
            for place, array in zip(self.shared.owned[0], arrays, strict=True):
                self.flat[place] = jnp.array(array)

    def turn(self) -> None:
        """One collecting pass, and the gradients that are due after it."""
        shared, replica = self.shared, self.replica
        number = int(shared.looped[replica])
        self.refresh()
        if not shared.steps[self.worker.who]:
            self.worker.be_long()
        self.part.collect(self.flat, number)
        shared.report(replica, self.part.drain())
        learned = int(shared.learned[replica])
        due = self.domain.due(number + 1) - learned
        for i in range(due):
            self.worker.be_long()
            ticket = Ticket(self.part.bases, np.uint32(learned + i))
            changes, self.reports = self.program(self.flat, self.part.data(learned + i, 1), ticket)
            self.worker.heed(self.stages, self.reports, learned + i)
            self._send([np.asarray(leaf) for leaf in changes], last=i == due - 1)
            self.shared.beat(self.worker.who)
            self.report_if_due()
            if self.staleness == 0 and i < due - 1:
                if not self.worker.wait(lambda: not len(shared.sent[replica])):
                    return
                self.refresh()
        if not due:
            self._send(None, last=True)
        fence()
        shared.learned[replica] = learned + due
        fence()
        shared.looped[replica] = number + 1

    def _send(self, changes: list[Any] | None, last: bool) -> None:
        queue = self.shared.sent[self.replica]
        flags, *held = queue.reserve(PATIENCE, self.worker.alive)
        flags[:] = changes is not None, last
        for place, array in zip(held, changes or (), strict=bool(changes)):
            place[...] = array
        queue.commit(self.version)


def apply(worker: Worker) -> None:
    """Apply gradients in the order of their passes, until told to stop."""
    shared, nodes = worker.shared, worker.part.where(domain="learn", kind="stage")
    program = jax.jit(gradients.apply(worker.part, shared.shelf), donate_argnums=0)
    flat = [jnp.array(leaf) for leaf in shared.load(worker.start)]
    _publish(worker, flat)
    counted = 0.0

    def count() -> None:
        shared.updates[0] = optimiser_steps(shared.shelf.cells(flat))

    def waiting() -> bool:
        return len(shared.sent[int(shared.applied[0]) % shared.replicas]) > 0

    def quiet() -> bool:
        """Whether a pause has come to everybody else, and nothing is on its way."""
        return worker.asked_to_pause and bool((shared.paused[:-1] == shared.pauses).all()) and not waiting()

    while worker.wait(lambda: waiting() or quiet()):
        if quiet():
            count()
            worker.stand()
            continue
        replica = int(shared.applied[0]) % shared.replicas
        version, ((there, last), *changes) = shared.sent[replica].peek(PATIENCE, worker.alive)
        if there:
            shared.lag(replica, shared.state[0].version - version)
            worker.be_long()  # it may be compiled; the next look is a sign of life
            flat, report = program(flat, changes)
            worker.heed(nodes, report, int(shared.applied[0]) // shared.replicas)
            _publish(worker, flat)
        if time.monotonic() - counted > REPORT:
            counted = time.monotonic()
            count()
        # In this order: a successor of one that died in between applies a gradient twice, but waits for none in vain.
        fence()
        shared.applied[0] += last
        shared.sent[replica].release()
    count()


def _publish(worker: Worker, flat: list[Any]) -> None:
    shared = worker.shared
    shared.state[0].publish([np.asarray(flat[i]) for i in shared.owned[0]])
    shared.weights[0].publish([np.asarray(flat[i]) for i in shared.published[0]])
