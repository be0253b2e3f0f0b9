"""What runs in a process of its own: its task is one JSON object in the environment, all else in the shared block."""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from headrace.channels.memory import Memory, fence
from headrace.channels.wait import wait
from headrace.config import from_json, load_object
from headrace.core.algorithm import Algorithm
from headrace.envs import Recipe, describe_env
from headrace.errors import EnvError, HeadraceError, sentence
from headrace.graph import Node, Plan, trace
from headrace.graph.compile import Programs, cell_shapes
from headrace.graph.plan import Cut, Fragment
from headrace.graph.replicated import part_of
from headrace.graph.reports import Report, find_divergence
from headrace.machine import compute_at_once, keep_compiled
from headrace.runtimes.base import Options
from headrace.runtimes.boot import end
from headrace.runtimes.places import Role, device_at, jax_device
from headrace.runtimes.shared import Shared

TASK = "HEADRACE_TASK"
PATIENCE = math.inf
"""Seconds to wait for the other side: it may be slow, or the machine asleep. Who supervises notices if it is stuck."""


@dataclass(frozen=True)
class Task:
    """What a process is to do."""

    role: Role
    replica: int
    algorithm: str
    settings: dict[str, Any]
    env: dict[str, Any]
    """A `Recipe` as JSON."""
    seed: int
    policy: str
    fragments: list[dict[str, Any]]
    cuts: list[dict[str, Any]]
    memory: dict[str, Any]
    options: dict[str, Any]
    parent: int
    group: tuple[str, int] | None = None
    """Where replicas that learn as one meet: the address, and how many they are."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Task:
        return Task(**json.loads(text))


def main() -> int:
    """Do the task; exit code 0 when told to stop, 2 for a mistake of the user's, 1 for anything else."""
    compute_at_once()
    task = Task.from_json(os.environ.pop(TASK))
    try:
        Worker(task).run()
    except EnvError as error:  # it may go well next time: whoever supervises decides
        end(1, str(error))
    except HeadraceError as error:
        end(2, str(error))
    except Exception as error:  # noqa: BLE001 - its last line is what a person is shown
        traceback.print_exc()
        end(1, sentence(error))
    return 0


class Worker:
    """One process of a run: what every role needs."""

    def __init__(self, task: Task):
        keep_compiled()
        self.task = task
        if task.group is not None:
            jax.distributed.initialize(task.group[0], task.group[1], task.replica)
        self.options = Options(**task.options)
        kind: type[Algorithm[Any]] = load_object(task.algorithm)
        self.algorithm = kind(from_json(kind.config_type, task.settings))
        self.env = Recipe.from_json(task.env)
        self.graph = graph = trace(self.algorithm, describe_env(self.env, self.algorithm.config.num_envs))
        self.plan = Plan(graph, task.policy, *_placed(task))
        cells = cell_shapes(self.algorithm, graph)
        self.part = part_of(self.plan, self.algorithm)
        block = Memory.attach(task.memory).layout()
        self.shared = Shared(block, self.plan, self.part, cells, self.options)
        self.programs = Programs(graph, self.shared.shelf)
        self.start: list[Any] = [jnp.array(leaf) for leaf in self.shared.begin]
        self.who = self.shared.member(task.role, task.replica)

    def run(self) -> None:
        # Imported here: a sampler need not know how to draw.
        from headrace.runtimes import central, learner, loop, remote, sampler, spectators

        roles: dict[Role, Callable[[Worker], None]] = {
            "environment": remote.step,
            "sampler": sampler.sample,
            "loop": partial(loop.run, kind=central.Working if self.plan.gradients == "central" else loop.Loop),
            "learner": learner.learn,
            "applier": central.apply,
            "evaluator": spectators.evaluate,
            "viewer": spectators.view,
        }
        own = device_at(self.plan, self.task.role, self.task.replica)
        with jax.default_device(jax_device(own, [own])):
            roles[self.task.role](self)

    def alive(self) -> bool:
        """Whether there is still somebody to work for; asking is a sign of life."""
        self.shared.beat(self.who)
        return os.getppid() == self.task.parent and not self.shared.stopping

    def be_long(self) -> None:
        """Say that what comes next, compiling, may take any time: silence is no sign of trouble until the next beat."""
        self.shared.beats[self.who] = 0

    def begin(self) -> None:
        """Say that the environments are reset next: those of the host may hang, those in JAX are compiled."""
        self.shared.steps[self.who] = 0
        self.be_long() if self.graph.spec.pure else self.shared.beat(self.who)

    def heed(self, nodes: Sequence[Node], report: Report, first: int) -> None:
        """Look whether a program that began with pass `first` has diverged. If that ends the run nothing more is done
        here: what diverged is not handed over, and what was kept before stays."""
        found = find_divergence(nodes, report, first)
        if found is None:
            return
        self.shared.tell(found)
        if self.options.on_divergence == "stop":
            self.wait(lambda: False)
            sys.exit(0)

    def over(self) -> bool:
        """Whether to end now."""
        return not self.alive()

    def wait(self, ready: Callable[[], bool]) -> bool:
        """Wait until ready; False if it is time to end instead."""
        if ready():
            fence()
            return True
        with self.idle() as looked:

            def done() -> bool:
                looked()
                return ready() or self.over()

            # Where staleness is allowed the other side has work in store and does not wait for this one's next look.
            wait(done, PATIENCE, lambda: True, leisurely=self.shared.pace.staleness > 0)
        return not self.over()

    def sleep(self, until: float) -> bool:
        """Sleep until a moment of `time.monotonic`; False if it is time to end instead."""
        with self.idle() as looked:
            while (left := until - time.monotonic()) > 0 and not self.over():
                time.sleep(min(0.05, left))
                looked()
        return not self.over()

    @contextmanager
    def idle(self) -> Iterator[Callable[[], None]]:
        """Count what passes as waiting, at every look: who watches does not see its end."""
        began = time.monotonic_ns()

        def looked() -> None:
            nonlocal began
            now = time.monotonic_ns()
            self.shared.waited[self.who] += now - began
            began = now

        try:
            yield looked
        finally:
            looked()

    @property
    def asked_to_pause(self) -> bool:
        return self.shared.pauses % 2 == 1

    def stand(self) -> None:
        """Stand still while a pause lasts."""
        if self.asked_to_pause:
            fence()
            this = self.shared.paused[self.who] = self.shared.pauses
            self.wait(lambda: self.shared.pauses != this)  # another may have begun by then, and wants its own answer


def _placed(task: Task) -> tuple[tuple[Fragment, ...], tuple[Cut, ...]]:
    fragments = tuple(Fragment(**f | {"nodes": tuple(f["nodes"]), "cores": tuple(f["cores"])}) for f in task.fragments)
    return fragments, tuple(Cut(**cut) for cut in task.cuts)
