"""Measuring a sampler: act, step, hand over, with more and more environments."""

from __future__ import annotations

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
from headrace.tune.probe import ROUNDS, Task, device, prepare
from headrace.tune.timing import LONG, Enough, Stopwatch, Tell

BETTER = 1.03
"""Twice the environments are worth trying while the last doubling gained this much."""


def collect(task: Task, tell: Tell) -> None:
    """Tell `envs`, the `seconds` of a pass and the `memory` of an environment, for each size worth it; then again."""
    with jax.default_device(device(task, task.fragments[0])):
        graph, programs, flat = prepare(task)

        def measure(envs: int) -> tuple[float, int]:
            """Environment steps in a second, and the bytes of all environments."""
            before = psutil.Process().memory_info().rss
            env = hosted(make(Recipe.from_json(task.env), envs))
            memory = max(0, psutil.Process().memory_info().rss - before)
            watch = Stopwatch(partial(tell, envs=envs, memory=memory / envs), task.threads, graph.steps)
            fits = graph.spec.num_envs % envs == 0
            collect_until(watch, *((graph, programs, flat) if fits else prepare(task, num_envs=envs)), env)
            return envs * graph.steps / float(np.median(watch.seconds)), memory

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
