"""Asynchronous gradients: loops that compute them, each at its own pace, and the fragment that applies them.

Pass k of loop i is number k * loops + i. It may begin once all but `staleness` of those before it were applied, and
they are applied in their order: so no gradient is older than that many, and with staleness 0 it is the inline order.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from headrace.compile.cells import cached_program
from headrace.compile.gradients import apply, gradient
from headrace.compile.rng import PassRng
from headrace.exec.cells import Workspace
from headrace.exec.lane import Pass
from headrace.exec.learn import Learn, Reported
from headrace.shm.memory import fence


class GradientWorker:
    """The learning of a loop that computes gradients and sends them to be applied."""

    def __init__(self, learn: Learn):
        self.learn, self.fabric, self.replica = learn, learn.fabric, learn.replica
        graph, jit = learn.programs.graph, learn.jit
        compute = gradient(graph, learn.programs.cell_layout)
        self.program = cached_program(graph, ("gradients", jit), lambda: jit(compute))
        self.nodes = graph.where(domain="learn", kind="stage")
        plan = self.fabric.sections.plan
        self.loops = plan.shares
        self.staleness = next(cut.staleness for cut in plan.cuts if cut.channel == "apply")

    def may_begin(self, number: int) -> bool:
        """Whether enough earlier gradients were applied for a collecting pass of this loop to begin."""
        return bool(self.fabric.ledger.applied[0] >= number * self.loops + self.replica - self.staleness)

    def run(self, number: int, refresh: Callable[[], Any]) -> Pass:
        """Compute and send the gradients that are due after collecting pass `number`."""
        learn, queue = self.learn, self.fabric.gradients(self.replica)
        learned = learn.learned
        due = learn.programs.graph.domains[0].due(number + 1) - learned
        for i in range(max(1, due)):
            if i and self.staleness == 0:
                yield lambda: not len(queue)
                refresh()
            if queue.full:
                yield lambda: not queue.full
            flags, *held = queue.slot()
            flags[:] = due > 0, i >= due - 1
            if due:
                rng = PassRng(learn.bases, np.uint32(learned + i))
                values = learn.draw(learned + i, 1)
                if learn.fused:
                    values = {name: [leaf[0] for leaf in leaves] for name, leaves in values.items()}
                changes, report = self.program(learn.cells.flat, values, rng)
                learn.took(self.nodes, report, learned + i)
                for place, array in zip(held, changes, strict=True):
                    place[...] = array
            queue.commit(learn.cells.version)
        if due:
            fence()
            self.fabric.ledger.learned[learn.place] = learned + due
            learn.release(learned + due)


class Applier:
    """Applies gradients in the order of their passes."""

    def __init__(self, workspace: Workspace, reported: Reported):
        self.fabric, programs, self.cells, _, jit = workspace
        self.reported, graph = reported, programs.graph
        change = apply(graph, programs.cell_layout)
        self.program = cached_program(graph, ("applying", jit), partial(jit, change, donate_argnums=0))
        self.nodes = graph.where(domain="learn", kind="stage")
        self.loops = self.fabric.sections.plan.shares

    @property
    def waiting(self) -> bool:
        """Whether the next gradient in order is there."""
        return len(self.fabric.gradients(int(self.fabric.ledger.applied[0]) % self.loops)) > 0

    def run(self, publish: Callable[[], None], version: int = 0) -> None:
        """Apply the next gradient; `publish` is called when that is done, before the gradient is counted as applied."""
        ledger = self.fabric.ledger
        applied = int(ledger.applied[0])
        queue = self.fabric.gradients(applied % self.loops)
        (there, last), *changes = queue.oldest()
        if there:
            ledger.lag(applied % self.loops, version - queue.version)
            self.cells.flat, report = self.program(self.cells.flat, changes)
            self.reported(self.nodes, report, applied // self.loops)
            publish()
        # In this order: a successor of one that died in between may apply a gradient twice, but never waits forever.
        fence()
        ledger.applied[0] += last
        queue.release()
