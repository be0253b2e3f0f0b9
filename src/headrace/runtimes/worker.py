"""What runs in a process of its own: a sampler, the learner, or the evaluator.

Its task is one JSON object in the environment; everything else it needs is in the shared block.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.channels.memory import Memory
from headrace.channels.wait import wait
from headrace.config import from_json, load_object
from headrace.core.algorithm import Algorithm
from headrace.envs import make
from headrace.errors import HeadraceError
from headrace.graph import Plan, trace
from headrace.graph.compile import Programs, Ticket, bases, draws, make_cells
from headrace.graph.plan import Cut, Fragment
from headrace.machine import keep_compiled
from headrace.runtimes.base import optimiser_steps
from headrace.runtimes.collect import Collector
from headrace.runtimes.inline import hosted
from headrace.runtimes.shared import Shared
from headrace.services.evaluate import Evaluator

TASK = "HEADRACE_TASK"
PATIENCE = 3600.0
"""Seconds to wait for the other side; whoever supervises notices much earlier if it is stuck."""

KEEP = 5.0
"""Seconds between two copies of the learner's whole state in shared memory: what its successor goes on from."""


@dataclass(frozen=True)
class Task:
    """What a process is to do."""

    role: str
    """sampler, learner or evaluator."""
    replica: int
    algorithm: str
    settings: dict[str, Any]
    env: str
    seed: int
    policy: str
    fragments: list[dict[str, Any]]
    cuts: list[dict[str, Any]]
    memory: dict[str, Any]
    parent: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Task:
        return Task(**json.loads(text))


def main() -> int:
    """Do the task; exit code 0 when told to stop, 2 for a mistake of the user's, 1 for anything else."""
    # Ctrl-C reaches every process of a terminal; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    task = Task.from_json(os.environ[TASK])
    try:
        Worker(task).run()
    except HeadraceError as error:
        print(f"{error}", file=sys.stderr)
        return 2
    return 0


class Worker:
    """One process of a run."""

    def __init__(self, task: Task):
        keep_compiled()
        self.task = task
        kind: type[Algorithm[Any]] = load_object(task.algorithm)
        self.algorithm = kind(from_json(kind.config_type, task.settings))
        probe = make(task.env, 1)
        graph = trace(self.algorithm, probe.spec.with_envs(self.algorithm.config.num_envs))
        fragments = tuple(Fragment(**f | {"nodes": tuple(f["nodes"])}) for f in task.fragments)
        self.plan = Plan(graph, task.policy, fragments, tuple(Cut(**cut) for cut in task.cuts))
        self.graph = graph
        cells = make_cells(self.algorithm, graph, task.seed)
        self.shared = Shared(Memory.attach(task.memory).layout(), self.plan, cells)
        self.programs = Programs(graph, self.shared.shelf)
        self.start = self.shared.shelf.flat(cells)

    def run(self) -> None:
        roles: dict[str, Callable[[], None]] = {
            "sampler": self.sample,
            "learner": self.learn,
            "evaluator": self.evaluate,
        }
        roles[self.task.role]()

    def alive(self) -> bool:
        """Whether there is still somebody to work for."""
        return os.getppid() == self.task.parent and not self.shared.stopping

    def over(self) -> bool:
        """Whether to end now."""
        return not self.alive()

    def wait(self, ready: Callable[[], bool]) -> bool:
        """Wait until ready; False if it is time to end instead."""
        wait(lambda: ready() or self.over(), PATIENCE, lambda: True)
        return not self.over()

    def stand(self, who: int) -> None:
        """Stand still while a pause lasts."""
        if self.shared.pauses % 2:
            self.shared.paused[who] = self.shared.pauses
            wait(lambda: self.shared.pauses % 2 == 0 or self.over(), PATIENCE, lambda: True)

    def sample(self) -> None:
        """Collect, pass after pass, with the latest weights."""
        shared, replica = self.shared, self.task.replica
        env = hosted(make(self.task.env, self.graph.spec.num_envs // shared.replicas))
        collector = Collector(self.graph, self.programs, env, self.task.seed, replica, jax.jit)
        number = int(shared.passes[replica])
        if number:
            collector.restart(number)
            if shared.table is not None:
                shared.table.sever(replica)
        version, flat = 0, []
        while not self.over():
            shared.beat(replica)
            self.stand(replica)
            if not self.wait(partial(self._may_collect, number)):
                break
            if shared.pauses % 2:
                continue
            if (newer := shared.weights.read(newer_than=version)) is not None:
                version, flat = newer[0], shared.flat(newer[1])
            rows = collector.collect(flat, number)
            if shared.table is not None:
                shared.table.insert(rows, replica)
            else:
                slot = shared.queues[replica].reserve(PATIENCE, self.alive)
                for held, row in zip(slot, rows, strict=True):
                    held[...] = row
                shared.queues[replica].commit(version)
            number += 1
            shared.passes[replica] = number
            shared.report(replica, env.drain())
        env.close()

    def _may_collect(self, number: int) -> bool:
        shared = self.shared
        if shared.pauses % 2:
            return True
        return shared.weights.version > 0 and shared.pace.may_collect(number, shared.learned)

    def learn(self) -> None:
        """Learn as fast as the pace allows, publishing weights after every program."""
        shared, graph, pace = self.shared, self.graph, self.shared.pace
        who = shared.replicas
        flat = self.start
        if (held := shared.state.read()) is not None:
            flat = [jnp.array(leaf) for leaf in held[1]]
        seeds = bases(graph, self.task.seed, replica=0)
        one = self.programs.learner(graph.where(domain="learn", kind="stage"))
        learn_many = jax.jit(self.programs.repeated(one, graph.source), donate_argnums=0)
        learn_once = jax.jit(one, donate_argnums=0)
        self._publish(flat)
        reported, kept = 0.0, time.monotonic()
        while not self.over():
            shared.beat(who)
            asked = shared.pauses % 2 == 1 and shared.paused[who] != shared.pauses
            if asked or time.monotonic() - kept > KEEP:
                kept = time.monotonic()
                shared.updates = optimiser_steps(shared.shelf.cells(flat))
                shared.state.publish([np.asarray(leaf) for leaf in flat])
            self.stand(who)
            if not self.wait(self._may_learn):
                break
            if shared.pauses % 2:
                continue
            learned = shared.learned
            ticket = Ticket(seeds, np.uint32(learned))
            if shared.table is not None:
                source = graph.source
                rng = draws(source, ticket)
                lead = (pace.repeat, source.option("size"))
                batches = shared.table.sample(rng, lead, source.option("gamma"), source.option("steps"))
                flat, metrics = learn_many(flat, batches, ticket)
            else:
                slots = [queue.peek(PATIENCE, self.alive) for queue in shared.queues]
                whole = [np.concatenate(x, axis=1) for x in zip(*(slot.arrays for slot in slots), strict=True)]
                flat, metrics = learn_once(flat, {graph.source.id: whole}, ticket)
            self._publish(flat)
            for queue in shared.queues:
                queue.release()
            shared.learned = learned + pace.repeat
            if time.monotonic() - reported > 0.5:
                reported = time.monotonic()
                shared.updates = optimiser_steps(shared.shelf.cells(flat))
                for i, name in enumerate(shared.names):
                    value = np.asarray(metrics[name], np.float64).ravel()
                    value = value[np.isfinite(value)]
                    if value.size:
                        shared.metrics[i] = value.mean()

    def _may_learn(self) -> bool:
        shared = self.shared
        return shared.pauses % 2 == 1 or shared.pace.may_learn(int(shared.passes.min()), shared.learned)

    def _publish(self, flat: list[Any]) -> None:
        self.shared.weights.publish([np.asarray(flat[i]) for i in self.shared.seen])

    def evaluate(self) -> None:
        """Play the newest weights, over and over, for a share of the time."""
        shared = self.shared
        who = shared.replicas + 1
        evaluator: Evaluator | None = None
        version = 0
        while not self.over():
            shared.beat(who)
            if not self.wait(partial(self._is_newer, version)):
                break
            newer = shared.weights.read(newer_than=version)
            if newer is None:
                continue
            version = newer[0]
            flat = list(self.start)
            for place, array in zip(shared.seen, newer[1], strict=True):
                flat[place] = jnp.array(array)
            cells = shared.shelf.cells(flat)
            if evaluator is None:
                evaluator = Evaluator(
                    self.graph, cells, self.task.env, self.task.seed, shared.score.structs[0].shape[1]
                )
            began = time.monotonic()
            score = evaluator.score(cells)
            shared.score.publish([np.array([score.returns, score.lengths], np.float64)])
            rest = time.monotonic() + (time.monotonic() - began) * 9  # a tenth of a core
            while time.monotonic() < rest and not self.over():
                time.sleep(0.05)

    def _is_newer(self, version: int) -> bool:
        return self.shared.weights.version > version and self.shared.learned > 0
