"""A whole loop in one process: collects and learns in the loop's own order, alone or with others as one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.channels.rate import Rate
from headrace.core.replicas import averaged
from headrace.graph.compile import Programs, Ticket, stages, together
from headrace.runtimes.base import optimiser_steps
from headrace.runtimes.group import Group, mesh_of
from headrace.runtimes.inline import averaging
from headrace.runtimes.learner import KEEP, REPORT
from headrace.runtimes.part import Part, sets_of
from headrace.runtimes.remote import remote_envs
from headrace.runtimes.worker import Worker
from headrace.types import Array


def run(worker: Worker) -> None:
    """Train until told to stop."""
    loop = Loop(worker)
    try:
        while not loop.ends():
            if loop.may_go_on():
                loop.turn()
        loop.keep()
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
        self.rate = None if graph.on_policy else Rate.of(worker.graph.source)
        self.repeat = worker.plan.learner.repeat

        def stepped() -> None:
            shared.steps[replica] += 1
            shared.beat(worker.who)

        table = shared.tables[replica] if shared.tables else None
        first = replica * sets_of(worker.plan)
        envs = remote_envs(worker)
        self.part = Part(graph, self.programs, envs, table, worker.task.seed, first, jax.jit, stepped)
        number = int(shared.looped[replica])
        if number:
            self.part.restart(number)
            for writer in range(table.writers if table is not None else 0):
                table.sever(writer)  # type: ignore[union-attr]
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
        (fragment,) = self.worker.plan.learners
        learn: Callable[..., Any] = self.programs.learner(stages(self.graph, fragment))
        if self.rate is not None:
            learn = self.programs.repeated(learn, self.graph.source)
        number = self.worker.plan.parts
        if number > 1:
            self.group = Group(mesh_of(number))
            learn = together(_asking(averaging(learn)), number, (None, 0, Ticket(0, None), 0), None, self.group.mesh)
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
        if not shared.steps[replica]:
            self.worker.be_long()
        self.part.collect(self.flat, number)
        shared.report(replica, self.part.drain())
        due = 1 if self.rate is None else self.rate.due((number + 1) * shared.pace.collected, 0)
        if self.rate is None:
            self.learn(int(shared.learned[replica]))
        else:
            while due >= shared.learned[replica] + self.repeat:
                self.learn(int(shared.learned[replica]))
        shared.looped[replica] = number + 1

    def learn(self, learned: int) -> None:
        """One program."""
        self.worker.be_long()  # it may be compiled, and others may be slower
        data = self.part.data(learned, self.repeat)
        if self.worker.plan.parts > 1:
            group = self.group
            ticket = Ticket(group.own(self.part.bases[None]), group.same(np.uint32(learned)))
            whole = [group.same(leaf) for leaf in self.flat]
            asked = np.full(1, self.worker.asked_to_pause or self.worker.over(), np.float32)
            own = jax.tree.map(lambda leaf: group.own(leaf[None]), data)
            flat, metrics, heard = self.program(whole, own, ticket, group.own(asked))
            self.flat = [group.local(leaf) for leaf in flat]
            self.agreed = bool(group.local(heard) > 0)
            metrics = {name: group.local(value) for name, value in metrics.items()}
        else:
            ticket = Ticket(self.part.bases, np.uint32(learned))
            self.flat, metrics = self.program(self.flat, data, ticket)
        self.shared.learned[self.replica] = learned + self.repeat
        self.shared.beat(self.worker.who)
        self.publish()
        self.report(metrics)

    def publish(self) -> None:
        """Let those who watch see the cells."""
        if self.replica == 0:
            places = self.shared.published[0]
            self.shared.weights[0].publish([np.asarray(self.flat[i]) for i in places])

    def report(self, metrics: dict[str, Any]) -> None:
        """Say what learning measured."""
        if self.replica == 0 and time.monotonic() - self.reported > REPORT:
            self.reported = time.monotonic()
            self.shared.updates[0] = optimiser_steps(self.shared.shelf.cells(self.flat))
            self.shared.note(metrics)

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
            self.shared.updates[0] = optimiser_steps(self.shared.shelf.cells(self.flat))


def _asking(learn: Callable[..., Any]) -> Callable[..., Any]:
    """A learning program that also tells every replica whether one of them was asked to pause or to end."""

    def learn_and_ask(flat: Any, data: Any, ticket: Ticket, asked: Array) -> Any:
        flat, metrics = learn(flat, data, ticket)
        return flat, metrics, averaged(asked)

    return learn_and_ask
