"""A whole loop in one process: collects and learns in the loop's own order, alone or with others as one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.channels.memory import fence
from headrace.graph.compile import Programs, Ticket, stages
from headrace.graph.replicated import averaging, together
from headrace.graph.reports import Report
from headrace.runtimes.base import optimiser_steps
from headrace.runtimes.group import Group, mesh_of
from headrace.runtimes.learner import KEEP, REPORT
from headrace.runtimes.part import Part, sets_of
from headrace.runtimes.remote import worker_envs
from headrace.runtimes.worker import Worker
from headrace.types import Array


def run(worker: Worker, kind: type[Loop]) -> None:
    """Train until told to stop."""
    loop = kind(worker)
    try:
        while not loop.ends():
            if loop.may_go_on():
                loop.turn()
        loop.keep()
        loop.report()
    finally:
        loop.part.close()


class Loop:
    """One replica of a loop."""

    def __init__(self, worker: Worker):
        self.worker = worker
        self.shared = shared = worker.shared
        self.replica = replica = worker.task.replica
        self.graph = graph = worker.part
        self.programs = Programs(graph, shared.shelf)
        self.domain = worker.graph.domain
        self.repeat = worker.plan.learner.repeat
        (fragment,) = worker.plan.learners
        self.stages = stages(graph, fragment)
        self.reports: Report | None = None

        def stepped() -> None:
            shared.steps[worker.who] += 1
            shared.beat(worker.who)

        worker.begin()
        table = shared.tables[replica] if shared.tables else None
        first = replica * sets_of(worker.plan)
        self.part = Part(graph, self.programs, worker_envs(worker), table, worker.task.seed, first, jax.jit, stepped)
        number = int(shared.looped[replica])
        if number:
            self.part.restart(number)
            if table is not None:
                table.sever()
        self.flat: list[Array] = [jnp.array(leaf) for leaf in shared.load(worker.start)]
        self.kept = self.reported = time.monotonic()
        self.grouped = worker.plan.gradients == "reduce"
        self.agreed = False
        """Of those that learn as one: whether all have heard that they are to pause or to end. One that did so alone
        would leave the others waiting for it."""
        self.prepare()

    def ends(self) -> bool:
        """Whether to end now."""
        return self.worker.over() and (self.agreed or not self.grouped or self._done())

    def _done(self) -> bool:
        """Whether all steps that were asked for are collected."""
        most = self.worker.options.steps
        return most is not None and int(self.shared.looped[self.replica]) * self.shared.pace.collected >= most

    def prepare(self) -> None:
        """Make the program that learns, over all replicas where there are several."""
        learn: Callable[..., Any] = self.programs.learner(self.stages)
        number = self.worker.plan.parts
        if number > 1:
            self.group = Group(mesh_of(number))
            learn = together(averaging(_asking(learn)), number, (None, 0, Ticket(0, None), 0), None, self.group.mesh)
        self.program = jax.jit(learn, donate_argnums=0)
        self.publish()

    def may_go_on(self) -> bool:
        """Answer a request to pause; whether there is something to do after that."""
        worker, done = self.worker, self._done()
        if worker.asked_to_pause and (self.agreed or not self.grouped or done):
            self.keep()
            self.agreed = False
            worker.stand()
            return False
        if time.monotonic() - self.kept > KEEP:
            self.keep()
        if done:
            worker.wait(lambda: worker.asked_to_pause)
        return not done

    def turn(self) -> None:
        """One collecting pass and the learning that is due after it."""
        shared, replica = self.shared, self.replica
        number = int(shared.looped[replica])
        if not shared.steps[self.worker.who]:
            self.worker.be_long()
        self.part.collect(self.flat, number)
        shared.report(replica, self.part.drain())
        learned = int(shared.learned[replica])
        due = self.domain.due(number + 1) - learned
        for i in range(due // self.repeat):
            self.learn(learned + i * self.repeat)
        fence()
        shared.looped[replica] = number + 1

    def learn(self, learned: int) -> None:
        """One program."""
        data = self.part.data(learned, self.repeat)
        ticket = Ticket(self.part.bases, np.uint32(learned))
        asked = np.float32(self.worker.asked_to_pause or self.worker.over())
        self.worker.be_long()  # after the last sign of life: it may be compiled, and others may be slower
        if self.worker.plan.parts > 1:
            data, keys, asked = jax.tree.map(lambda leaf: np.asarray(leaf)[None], (data, ticket.bases, asked))
            ticket = ticket._replace(bases=keys)
            self.flat, (self.reports, heard) = self.group.run(self.program, self.flat, data, ticket, asked)
            self.agreed = bool(heard > 0)
        else:
            self.flat, self.reports = self.program(self.flat, data, ticket)
        self.worker.heed(self.stages, self.reports, learned)
        self.shared.learned[self.replica] = learned + self.repeat
        self.shared.beat(self.worker.who)
        self.publish()
        self.report_if_due()

    def publish(self) -> None:
        """Let those who watch see the cells."""
        if self.replica == 0:
            places = self.shared.published[0]
            self.shared.weights[0].publish([np.asarray(self.flat[i]) for i in places])

    def report_if_due(self) -> None:
        """Say now and then what learning measured."""
        if self.replica == 0 and time.monotonic() - self.reported > REPORT:
            self.reported = time.monotonic()
            self.report()
            self.count()

    def report(self) -> None:
        """Say what learning last measured."""
        if self.replica == 0 and self.reports is not None:
            self.shared.note(self.stages, self.reports)

    def count(self) -> None:
        """Say how often cells were updated."""
        self.shared.updates[0] = optimiser_steps(self.shared.shelf.cells(self.flat))

    def keep(self) -> None:
        """Put the whole state where a successor finds it, and what it adds up to where it is compared."""
        self.kept = time.monotonic()
        arrays = [np.asarray(self.flat[i]) for i in self.shared.owned[0]]
        digest = hashlib.blake2b(digest_size=8)
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        self.shared.digests[self.replica] = int.from_bytes(digest.digest(), "little")
        if self.replica == 0:
            self.shared.state[0].publish(arrays)
            self.count()


def _asking(learn: Callable[..., Any]) -> Callable[..., Any]:
    """A learning program that also tells every replica how many of them, as a share, were asked to pause or to end."""

    def learn_and_ask(flat: Any, data: Any, ticket: Ticket, asked: Array) -> Any:
        flat, report = learn(flat, data, ticket)
        return flat, (report, asked)

    return learn_and_ask
