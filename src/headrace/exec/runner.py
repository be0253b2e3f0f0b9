"""The runner: executes one replica of a fragment, any fragment, in a process of its own.

It runs the fragment's sections in the loop's order, as far as the pace allows: a collecting pass, then the learning
programs that are due. What a fragment happens to be, a sampler, a learner, a whole loop, an environment worker or an
inference server, follows from the sections that it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from headrace.compile.cells import make_flat, optimiser_steps
from headrace.compile.programs import Programs
from headrace.envs import HostEnv
from headrace.exec.apply import Applier, GradientWorker
from headrace.exec.cells import CellReader, Cells, Workspace, readers
from headrace.exec.collect import Collect
from headrace.exec.group import joined
from headrace.exec.lane import Pass
from headrace.exec.learn import Learn
from headrace.exec.pace import Pace
from headrace.graph import Fragment
from headrace.shm.memory import fence

KEEP = 5.0
"""Seconds between two snapshots of a learner's state in shared memory, for a successor."""

REPORT = 0.5
"""Seconds between two reports of metrics."""


class Runner:
    """One replica of a fragment."""

    def __init__(self, host: Any, fragment: Fragment, replica: int, envs: Callable[[], list[HostEnv]]):
        """`host` is the process: it waits, sends heartbeats, and knows when to end. `envs` makes the
        environments of this replica."""
        self.host, self.fragment, self.replica = host, fragment, replica
        self.fabric, self.ledger = fabric, ledger = host.fabric, host.fabric.ledger
        sections = fabric.sections
        plan, self.who = sections.plan, host.who
        collecting, learning = sections.of(fragment)
        self.sends = plan.gradients == "apply"
        applies = self.sends and not fragment.nodes
        read = {cell for section in (collecting, *learning) if section is not None for cell in section.read}
        if self.sends and not applies:  # all cells come from the applier
            sources = [CellReader(fabric.state(s), fabric.owned[s]) for s in sections.learning]
        else:
            sources = readers(fabric, read, but=fragment.id)
        self.cells = Cells(make_flat(fabric.load(fabric.begin)), sources)
        self.cells.refresh()
        workspace = Workspace(fabric, Programs(host.part, fabric.layout), self.cells, host.seed)
        self.pace = Pace.of(sections, fragment.id, replica) if fragment.nodes else None
        self.collected = sections.graph.collected
        self.learns = [Learn(workspace, section, replica, host.check_divergence) for section in learning]
        for learn in self.learns if plan.gradients == "reduce" and plan.shares > 1 else ():
            learn.calls = [joined(segment.program, plan.shares) for segment in learn.segments]
        self.worker = GradientWorker(self.learns[0]) if self.sends and self.learns else None
        self.applier = Applier(workspace, host.check_divergence) if applies else None
        self.collect: Collect | None = None
        self.place = -1
        if collecting is not None:
            self.place = collecting.first + replica
            own = envs() if any(node.kind == "env" for node in collecting.nodes) else []
            if own:
                host.begin()
            self.collect = Collect(workspace, collecting, replica, own, host.stepped if own else None)
            self.collect.start(int(ledger.passes[self.place]))
        self.free = 0
        self.collected_once = False
        self.compiled: set[Any] = set()
        self.kept = self.reported = time.monotonic()

    def run(self) -> None:
        """Run until told to stop."""
        self.publish()
        try:
            while not self.host.over():
                if self.learns and time.monotonic() - self.kept > KEEP:
                    self.keep()
                if self.turn():
                    continue
                if self.may_rest():
                    self.rest()
                elif not self.host.wait(self.anything):
                    break
            self.keep()
            self.report()
        finally:
            if self.collect is not None:
                self.collect.close()

    def turn(self) -> bool:
        """Run the next pass or program if allowed; returns whether one ran."""
        if self.applier is not None:
            if not self.applier.waiting:
                return False
            self.host.suspend_watchdog()  # it may compile; the next check is a heartbeat
            self.applier.run(self.publish, self.fabric.state(self.fabric.sections.learning[0]).version)
            self.report_if_due()
            return True
        if self.may_collect():
            return self.collect_pass()
        return self.learn_due()

    def anything(self) -> bool:
        """Whether there is something to run, or a pause to follow."""
        if self.applier is not None:
            return self.applier.waiting or self.may_rest()
        return self.may_collect() or self.may_learn() or self.may_rest()

    def may_collect(self) -> bool:
        if self.collect is None:
            return False
        ledger, most = self.ledger, self.host.options.steps
        number = int(ledger.passes[self.place])
        if most is not None and number * self.collected >= most:
            return False
        if ledger.pausing and ledger.begun.max() <= number:
            return False  # no other section has begun it, so none waits for this one
        # The limit only grows, so the pace is asked again only once it is reached.
        if number >= self.free:
            assert self.pace is not None
            if self.worker is not None:
                self.free = number + 1 if self.worker.may_begin(number) else 0
            else:
                self.free = self.pace.may_collect_until(ledger.learned, ledger.repeat)
            if number >= self.free:
                return False
        return self.collect.ready(number)

    def collect_pass(self) -> bool:
        """One collecting pass; False if it is time to end instead."""
        ledger, collect = self.ledger, self.collect
        assert collect is not None
        number = int(ledger.passes[self.place])
        ledger.begun[self.place] = number + 1
        self.cells.refresh()
        if not ledger.steps[self.who]:
            self.host.suspend_watchdog()
        if not self.drive(collect.run(number)):
            return False
        if self.cells.readers and self.worker is None:
            ledger.lag(self.place, self.cells.lag())
        ledger.add_episodes(self.who, collect.drain())
        if self.worker is not None and not self.drive(self.worker.run(number, self.cells.refresh)):
            return False
        fence()
        ledger.passes[self.place] = number + 1
        if not self.collected_once:
            self.collected_once = True
            ledger.runs(self.who, collect.executes)
        if self.worker is not None:
            self.report_if_due()
        return True

    def may_learn(self) -> bool:
        if self.worker is not None or self.pace is None:
            return False
        ledger, pace = self.ledger, self.pace
        return any(pace.may_learn(one.section, ledger.passes, ledger.learned, ledger.repeat) for one in self.learns)

    def learn_due(self) -> bool:
        """Run a learning program of each section that is due, in the loop's order; returns whether there were any."""
        ledger, pace, did = self.ledger, self.pace, False
        if self.worker is not None or pace is None:
            return False
        for learn in self.learns:
            if not pace.may_learn(learn.section, ledger.passes, ledger.learned, ledger.repeat):
                continue
            repeat = pace.fused(learn.domain, ledger.repeat)
            self.cells.refresh()
            first = (learn.section, repeat) not in self.compiled
            if first or self.collect is not None:
                self.compiled.add((learn.section, repeat))
                self.host.suspend_watchdog()
            if not self.drive(learn.run(repeat)):
                return False
            if first:
                ledger.runs(self.who, learn.executes)
            self.publish(learn)  # waits for the program, so that its input buffers may be released
            fence()
            learn.done(repeat)
            self.host.beat()
            self.report_if_due()
            did = True
        return did

    def drive(self, turn: Pass) -> bool:
        """Run a pass to its end; False if it is time to end instead."""
        return all(self.host.wait(ready) for ready in turn)

    def may_rest(self) -> bool:
        """Whether a pause is requested and nothing is left to do that others might wait for."""
        ledger = self.ledger
        if not ledger.pausing:
            return False
        halted = bool((ledger.begun == ledger.passes).all() and (ledger.passes == ledger.passes[0]).all())
        if self.applier is not None:
            return halted and not self.applier.waiting
        if self.collect is not None and self.may_collect():
            return False
        return (halted and not self.may_learn()) if self.learns else not self.may_collect()

    def rest(self) -> None:
        """Save all state and wait until the pause is over or there is something to do after all."""
        ledger = self.ledger
        this = ledger.pauses
        self.keep()
        fence()
        ledger.stood[self.who] = this
        self.host.wait(lambda: ledger.pauses != this or not self.may_rest())
        ledger.stood[self.who] = 0

    def publish(self, only: Learn | None = None) -> None:
        """Publish the cells written here, by one section or by all."""
        if self.applier is not None:
            (section,) = self.fabric.sections.learning
            self._publish(self.fabric.state(section), self.fabric.owned[section])
            self._publish(self.fabric.weights(section), self.fabric.published[section])
        elif self.worker is None and self.replica == 0:
            for learn in self.learns if only is None else [only]:
                self._publish(self.fabric.weights(learn.section), self.fabric.published[learn.section])
        elif self.learns:
            jax.block_until_ready(self.cells.flat)

    def _publish(self, latest: Any, places: list[int]) -> None:
        if places:
            latest.publish([np.asarray(self.cells.flat[i]) for i in places])
        else:
            jax.block_until_ready(self.cells.flat)

    def keep(self) -> None:
        """Save the whole state for a successor, and its checksum for comparing replicas."""
        self.kept = time.monotonic()
        if self.worker is None:
            for learn in self.learns:
                self.ledger.digests[learn.place] = learn.digest() if self.fragment.replicas > 1 else 0
                if self.replica == 0:
                    self._publish(self.fabric.state(learn.section), self.fabric.owned[learn.section])
        self.count()

    def count(self) -> None:
        """Record the number of optimiser steps."""
        if self.replica == 0 and (self.applier is not None or (self.learns and self.worker is None)):
            steps = optimiser_steps(self.fabric.layout.cells(self.cells.flat))
            places = [learn.place for learn in self.learns] or [0]
            self.ledger.updates[places] = steps

    def report_if_due(self) -> None:
        """Report metrics, where the interval is over."""
        if time.monotonic() - self.reported > REPORT:
            self.report()

    def report(self) -> None:
        """Report the last metrics."""
        self.reported = time.monotonic()
        if self.replica == 0:
            for learn in self.learns:
                for nodes, report in learn.reports:
                    self.ledger.record_metrics(nodes, report)
        self.count()
