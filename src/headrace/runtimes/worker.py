"""The main program of a process of a run: its task is a JSON object in the environment, all else in shared memory."""

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

from headrace.compile.cells import CellLayout, cell_shapes
from headrace.compile.replicas import replica_graph
from headrace.compile.reports import Report, find_divergence
from headrace.core.algorithm import Algorithm
from headrace.envs import Recipe
from headrace.errors import EnvError, HeadraceError, sentence
from headrace.exec.collect import replica_envs
from headrace.exec.runner import Runner
from headrace.fabric.memory import MemoryFabric
from headrace.fabric.results import Results
from headrace.graph import Node, Plan, trace
from headrace.graph.sections import Sections
from headrace.machine import compute_at_once, keep_compiled
from headrace.runtimes.base import Options
from headrace.runtimes.boot import end
from headrace.runtimes.places import jax_device
from headrace.settings.objects import load_object
from headrace.settings.values import from_json
from headrace.shm.memory import Memory, fence
from headrace.shm.wait import wait
from headrace.types import EnvSpec

TASK = "HEADRACE_TASK"
PATIENCE = math.inf
"""Seconds to wait for the other side: it may be slow, or the machine asleep. The supervisor notices hangs."""


@dataclass(frozen=True)
class WorkerTask:
    """The task of a process."""

    fragment: str
    """The id of its fragment, or the name of its service."""
    replica: int
    name: str
    device: str
    algorithm: str
    settings: dict[str, Any]
    env: dict[str, Any]
    """A `Recipe` as JSON."""
    spec: dict[str, Any]
    """What the environment is, as JSON: only those who step it need to make one."""
    seed: int
    plan: dict[str, Any]
    """Policy, fragments, cuts and services, as JSON."""
    memory: dict[str, Any]
    options: dict[str, Any]
    parent: int
    group: tuple[str, int] | None = None
    """For data-parallel replicas: the coordinator's address, and the number of replicas."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=lambda number: number.item())


def main() -> int:
    """Do the task; exit code 0 when told to stop, 2 for a mistake of the user's, 1 for anything else."""
    compute_at_once()
    task = WorkerTask(**json.loads(os.environ.pop(TASK)))
    try:
        Worker(task).run()
    except EnvError as error:  # it may succeed next time: the supervisor decides
        end(1, str(error))
    except HeadraceError as error:
        end(2, str(error))
    except Exception as error:  # noqa: BLE001 - its last line is shown to the user
        traceback.print_exc()
        end(1, sentence(error))
    return 0


class Worker:
    """One process of a run: the host of a runner or a service."""

    def __init__(self, task: WorkerTask):
        keep_compiled()
        self.task, self.seed = task, task.seed
        if task.group is not None:
            jax.distributed.initialize(task.group[0], task.group[1], task.replica)
        self.options = Options(**task.options)
        kind: type[Algorithm[Any]] = load_object(task.algorithm)
        algorithm = kind(from_json(kind.config_type, task.settings))
        self.env = Recipe.from_json(task.env)
        self.graph = graph = trace(algorithm, EnvSpec.from_json(task.spec))
        self.plan = Plan.from_json(graph, task.plan)
        self.part = replica_graph(self.plan, algorithm)
        layout = CellLayout(cell_shapes(algorithm, graph))
        arena = Memory.attach(task.memory).arena()
        self.fabric = MemoryFabric(arena, Sections(self.plan), self.part, layout, self.options.log_info)
        self.results = Results(arena, graph, layout, self.options.eval_episodes)
        self.ledger = self.fabric.ledger
        self.who = self.ledger.members[task.fragment, task.replica]

    def run(self) -> None:
        device = self.task.device
        with jax.default_device(jax_device(device, [device])):
            fragment = next((one for one in self.plan.fragments if one.id == self.task.fragment), None)
            if fragment is not None:
                Runner(self, fragment, self.task.replica, partial(replica_envs, self.env, self.fabric.sections)).run()
            else:
                # Imported here: a sampler does not need rendering.
                from headrace.runtimes.spectators import SERVE

                SERVE[self.task.fragment](self)

    def ran_play(self) -> None:
        """Say that the nodes of `play` were run here."""
        self.ledger.runs(self.who, [node.id for node in self.graph.play.nodes])

    def beat(self) -> None:
        """Send a heartbeat."""
        self.ledger.beat(self.who)

    def suspend_watchdog(self) -> None:
        """Disable the hang check until the next heartbeat: compilation may take any time."""
        self.ledger.suspend_watchdog(self.who)

    def begin(self) -> None:
        """Before environments are reset: host environments may hang, JAX environments are compiled."""
        self.ledger.steps[self.who] = 0
        self.suspend_watchdog() if self.graph.spec.pure else self.beat()

    def stepped(self) -> None:
        """Count an environment step; called before it."""
        self.ledger.steps[self.who] += 1
        self.ledger.beat(self.who)

    def check_divergence(self, nodes: Sequence[Node], report: Report, first: int) -> None:
        """Check whether a program that began with pass `first` has diverged. If that ends the run, block here: diverged
        cells are not published, and the last saved state stays."""
        found = find_divergence(nodes, report, first)
        if found is None:
            return
        self.ledger.report_divergence(found)
        if self.options.on_divergence == "stop":
            self.wait(lambda: False)
            sys.exit(0)

    def over(self) -> bool:
        """Whether to end now; asking is a heartbeat."""
        self.beat()
        return os.getppid() != self.task.parent or self.ledger.stopping

    def wait(self, ready: Callable[[], bool]) -> bool:
        """Wait until ready; False if it is time to end instead."""
        if ready():
            fence()
            return True
        with self.idle() as looked:

            def done() -> bool:
                looked()
                return ready() or self.over()

            # Where staleness is allowed, the other side has work to do and does not wait for this side's next check.
            wait(done, PATIENCE, lambda: True, leisurely=not self.plan.turns and not self.fabric.sections.streams)
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
        """Count time as waiting at every check, so that it is visible before the wait ends."""
        began = time.monotonic_ns()

        def looked() -> None:
            nonlocal began
            now = time.monotonic_ns()
            self.ledger.waited[self.who] += now - began
            began = now

        try:
            yield looked
        finally:
            looked()
