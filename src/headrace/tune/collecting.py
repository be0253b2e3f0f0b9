"""Measuring a sampler: act, step, hand over, with more and more environments."""

from __future__ import annotations

import time
from functools import partial
from itertools import count
from typing import Any

import jax
import numpy as np
import psutil

from headrace.compile.programs import Programs
from headrace.envs import HostEnv, Recipe, make
from headrace.exec.cells import Cells
from headrace.exec.collect import Collect
from headrace.fabric.memory import local
from headrace.graph import Fragment, Graph, cut
from headrace.graph.sections import Sections
from headrace.machine import free_memory
from headrace.runtimes.hosted import hosted
from headrace.tune.probe import LONG, ROUNDS, WINDOW, WINDOWS, Task, Tell, device, prepare
from headrace.tune.timing import Moment

BETTER = 1.03
"""Twice the environments are worth trying while the last doubling gained this much."""


def collect(task: Task, tell: Tell) -> None:
    """Tell `envs`, the `seconds` of a pass and the `memory` of an environment, for each size worth it; then again."""
    with jax.default_device(device(task, task.fragments[0])):
        graph, programs, flat = prepare(task)
        times = graph.steps

        def measure(envs: int) -> tuple[float, int]:
            """Environment steps in a second, and the bytes of all environments."""
            before = psutil.Process().memory_info().rss
            env = hosted(make(Recipe.from_json(task.env), envs))
            memory = max(0, psutil.Process().memory_info().rss - before)
            watch = Stopwatch(partial(tell, envs=envs, memory=memory / envs), times, task.threads)
            fits = graph.spec.num_envs % envs == 0
            collect_until(watch, *((graph, programs, flat) if fits else prepare(task, num_envs=envs)), env)
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


def collect_until(watch: Stopwatch, graph: Graph, programs: Programs, flat: list[Any], env: HostEnv) -> None:
    """Collect as a sampler does, until the watch has seen enough; a long trajectory need not end."""
    names = [tuple(node.id for node in graph.where(domain=side)) for side in ("collect", "learn")]
    samplers = graph.spec.num_envs // env.spec.num_envs
    plan = cut(graph, "probe", (Fragment("collect", names[0], replicas=samplers), Fragment("learn", names[1])), 0)
    sections = Sections(plan)
    fabric = local(sections, graph, programs.cell_layout)
    try:
        collect = Collect(sections.collecting[0], 0, fabric, programs, Cells(flat), [env], 0, stepping=watch)
        collect.start(0)
        for number in count():
            for _ in collect.run(number):
                pass  # nothing is waited for
            for name in graph.stores:
                fabric.store(name, 0).release(0, number + 1)
            env.drain()
    except Enough:
        return
    finally:
        env.close()
