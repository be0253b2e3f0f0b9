"""Measuring a sampler: act, step, hand over, with more and more environments."""

from __future__ import annotations

import time
from functools import partial
from itertools import count
from typing import Any

import jax
import numpy as np
import psutil

from headrace.channels.table import Table
from headrace.envs import HostEnv, Recipe, make
from headrace.graph import Graph
from headrace.graph.compile import Programs
from headrace.machine import free_memory
from headrace.runtimes.collect import Collector
from headrace.runtimes.hosted import hosted
from headrace.tune.probe import LONG, ROUNDS, WINDOW, WINDOWS, Task, Tell, device, prepare
from headrace.tune.timing import Moment

BETTER = 1.03
"""Twice the environments are worth trying while the last doubling gained this much."""


def collect(task: Task, tell: Tell) -> None:
    """Tell `envs`, the `seconds` of a pass and the `memory` of an environment, for each size worth it; then again."""
    with jax.default_device(device(task, task.fragments[0])):
        graph, programs, flat = prepare(task)
        times = graph.only("env.step").times

        def measure(envs: int) -> tuple[float, int]:
            """Environment steps in a second, and the bytes of all environments."""
            before = psutil.Process().memory_info().rss
            env = hosted(make(Recipe.from_json(task.env), envs))
            memory = max(0, psutil.Process().memory_info().rss - before)
            watch = Stopwatch(partial(tell, envs=envs, memory=memory / envs), times, task.threads)
            sample(graph, programs, flat, env, watch)
            return envs / float(np.median(watch.seconds)), memory

        measured, best = list[int](), 0.0
        # The usual number first, for the time may be short; then more while they gain; then fewer.
        larger = [envs for envs in task.sizes if envs >= task.usual]
        for envs in larger:
            speed, memory = measure(envs)
            measured.append(envs)
            gains, best = speed > BETTER * best, max(best, speed)
            if envs / speed > LONG or not gains or 4 * memory > free_memory():
                break
        for envs in reversed(task.sizes[: len(task.sizes) - len(larger)]):
            measure(envs)
            measured.append(envs)
        for number in count(1):
            tell(done=number >= ROUNDS)
            for envs in measured:
                measure(envs)


class Enough(Exception):  # noqa: N818 - nothing went wrong
    """So many measurements are enough."""


class Stopwatch:
    """Called before every step of the environments: tells the seconds of a pass, from one step to the next."""

    def __init__(self, tell: Tell, times: int, threads: int):
        """`times` is how many steps a pass has."""
        self.tell = tell
        self.times, self.threads = times, threads
        self.seconds: list[float] = []
        self.began: Moment | None = None
        self.steps = 0

    def __call__(self) -> None:
        if self.began is None:  # compiling came before the first step
            self.began = self.since = Moment.now()
            return
        self.steps += 1
        if time.perf_counter() - self.since.wall >= WINDOW:
            now = Moment.now()
            told = now.told(self.since, self.threads, self.steps / self.times)
            self.seconds.append(told["seconds"] / self.times)
            self.tell(**told)
            self.since, self.steps = now, 0
            if len(self.seconds) == WINDOWS or now.wall - self.began.wall > LONG:
                raise Enough


def sample(graph: Graph, programs: Programs, flat: list[Any], env: HostEnv, watch: Stopwatch) -> None:
    """Collect as a sampler does, until the watch has seen enough; a long trajectory need not end."""
    axis, envs = graph.env_axis, env.spec.num_envs

    def share(leaf: Any) -> Any:
        return jax.ShapeDtypeStruct((*leaf.shape[:axis], envs, *leaf.shape[axis + 1 :]), leaf.dtype)

    handed = jax.tree.map(share, graph.stored)
    table = None if graph.on_policy else Table(handed, 1, 1024 * envs)
    slot = [np.zeros(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(handed)]
    try:
        collector = Collector(graph, programs, env, 0, 0, jax.jit, watch)
        number = 0
        while True:
            rows = collector.collect(flat, number)
            if table is not None:
                table.insert(rows)
            else:
                for held, row in zip(slot, rows, strict=True):
                    held[...] = row
            env.drain()
            number += 1
    except Enough:
        return
    finally:
        env.close()
