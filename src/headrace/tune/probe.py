"""A process that measures, on the cores and with the threads of the run to come.

Each measurement is one line of JSON, so whoever started the process may end it at any moment and use what is there. It
goes on measuring until then: what runs beside it is to be measured beside a busy neighbour.
"""

from __future__ import annotations

import json
import os
import signal
import traceback
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import psutil

from headrace.compile.cells import CellLayout, make_cells
from headrace.compile.programs import Programs
from headrace.core.algorithm import Algorithm
from headrace.envs import HostEnv, Recipe, make_host
from headrace.errors import HeadraceError, sentence
from headrace.exec.cells import Cells, Workspace
from headrace.exec.collect import Collect
from headrace.exec.learn import Learn
from headrace.fabric.base import Fabric
from headrace.fabric.memory import local
from headrace.graph import Fragment, Graph, cut, trace
from headrace.graph.sections import Sections
from headrace.machine import compute_at_once, free_memory, keep_compiled
from headrace.runtimes.boot import end
from headrace.runtimes.places import jax_device
from headrace.settings.objects import load_object
from headrace.settings.values import from_json, override
from headrace.stores import Store
from headrace.stores.replay import Table
from headrace.tune.timing import LONG, Enough, Stopwatch, Tell
from headrace.types import EnvSpec, Tree

TASK = "HEADRACE_PROBE"

ROUNDS = 2
"""How often everything is measured before it will do: a neighbour's burst spoils one measurement, not two."""

BETTER = 1.03
"""Twice the environments are worth trying while the last doubling gained this much."""

HELD = 1 << 25
"""Bytes of the table that batches are drawn from: more than a core's cache holds."""


@dataclass(frozen=True)
class ProbeTask:
    """What a process is to measure."""

    role: Literal["collect", "learn"]
    threads: int
    algorithm: str
    settings: dict[str, Any]
    env: dict[str, Any]
    """A `Recipe` as JSON."""
    spec: dict[str, Any]
    """What the environment is, as JSON."""
    fragments: list[dict[str, Any]]
    """Whose programs: the collector's, or every learner's."""
    parent: int
    cores: tuple[int, ...] = ()
    """Where, by their order."""
    sizes: tuple[int, ...] = ()
    """Environments of a sampler, to be tried in this order."""
    usual: int = 1
    """Numbers of environments above this are tried only while they gain."""
    programs: tuple[tuple[int, int], ...] = ()
    """Passes fused and batch size of each learning program: the usual one first."""


def main() -> int:
    """Measure until killed. What others print, environments among them, goes to the standard error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to decide
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    task = ProbeTask(**json.loads(os.environ.pop(TASK)))

    def tell(**values: Any) -> None:
        if os.getppid() != task.parent:
            os._exit(1)  # it is gone, and the kernel did not see to it
        print(json.dumps(values), file=lines, flush=True)

    try:
        compute_at_once()
        keep_compiled()
        {"collect": collect, "learn": learn}[task.role](task, tell)
    except HeadraceError as error:
        end(1, str(error))
    except Exception as error:  # noqa: BLE001 - its last line is what a person is shown
        traceback.print_exc()
        end(1, sentence(error))
    return 1


def collect(task: ProbeTask, tell: Tell) -> None:
    """Tell `envs`, the `seconds` of a pass and the `memory` of an environment, for each size worth it; then again."""
    with jax.default_device(device(task, task.fragments[0])):
        graph, programs, flat = prepare(task)

        def measure(envs: int) -> tuple[float, int]:
            """Environment steps in a second, and the bytes of all environments."""
            before = psutil.Process().memory_info().rss
            env = make_host(Recipe.from_json(task.env), envs)
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
    nodes = tuple(node.id for node in graph.where(domain="collect"))
    samplers = graph.spec.num_envs // env.spec.num_envs
    memory = memory_for(graph, programs, Fragment("collect", nodes, replicas=samplers))
    with closing(env), suppress(Enough):
        workspace = Workspace(memory, programs, Cells(flat), seed=0)
        collect = Collect(workspace, memory.sections.collecting[0], 0, [env], watch)
        collect.start(0)
        for number in count():
            for _ in collect.run(number):
                pass  # nothing is waited for
            for name in graph.stores:
                memory.store(name, 0).release(0, number + 1)
            env.drain()


def learn(task: ProbeTask, tell: Tell) -> None:
    """Tell the `seconds` of a program of each `fragment`, for each `repeat` and `size`; then again."""
    known: dict[int, list[Learn]] = {}
    """The learners, by batch size."""
    cells = Cells([])
    for number in count(1):
        for repeat, size in task.programs:
            if size not in known:
                graph, programs, flat = prepare(task, **({"batch_size": size} if known else {}))
                cells.flat = cells.flat or flat
                known[size] = learners(task, graph, programs, cells)
            for fragment, learner in zip(task.fragments, known[size], strict=True):
                found = partial(tell, fragment=fragment["id"], threads=task.threads, repeat=repeat, size=size)
                with jax.default_device(device(task, fragment)):
                    learn_until(Stopwatch(found, task.threads), learner, repeat)
        tell(done=number >= ROUNDS)


def learners(task: ProbeTask, graph: Graph, programs: Programs, cells: Cells) -> list[Learn]:
    """What runs the learning section of each fragment, with enough to draw from."""
    fragments = [Fragment(one["id"], tuple(one["nodes"])) for one in task.fragments]
    memory = memory_for(graph, programs, *fragments)
    for name, stored in graph.stores.items():
        fill(memory.store(name, 0), stored.struct)
    sections = [memory.sections.of(fragment)[1][0] for fragment in fragments]
    workspace = Workspace(memory, programs, cells, seed=0)
    return [Learn(workspace, section, 0, lambda *report: None) for section in sections]


def learn_until(watch: Stopwatch, learner: Learn, repeat: int) -> None:
    """Learn as a run does, until the watch has seen enough."""
    with suppress(Enough):
        while True:
            for _ in learner.run(repeat):
                pass  # nothing is waited for
            jax.block_until_ready(learner.cells.flat)
            learner.fabric.ledger.learned[learner.place] += repeat  # other rows are drawn next
            watch()


def fill(store: Store, handed: Tree) -> None:
    """Have a store hold random transitions, or a random trajectory."""
    if not isinstance(store, Table):
        store.insert([random_like(leaf) for leaf in jax.tree.leaves(handed)], 0, 0)
        return
    each = sum(stripe.nbytes for stripe in store.stripes) // store.ring
    steps = min(store.steps, max(1, HELD // each))
    for stripe in store.stripes:
        stripe[:, :steps] = random_like(stripe[:, :steps])
    store.written[:] = steps


def random_like(leaf: Any) -> Any:
    """Numbers at random; whole numbers and truth values are 0, which every space has."""
    if np.issubdtype(leaf.dtype, np.floating):
        return np.random.default_rng(0).standard_normal(leaf.shape, np.float32)
    return np.zeros(leaf.shape, leaf.dtype)


def prepare(task: ProbeTask, **settings: Any) -> tuple[Graph, Programs, list[Any]]:
    """The graph, its programs and the cells at the start, as a worker of the run has them."""
    kind: type[Algorithm[Any]] = load_object(task.algorithm)
    algorithm = kind(override(from_json(kind.config_type, task.settings), settings))
    graph = trace(algorithm, EnvSpec.from_json(task.spec).with_envs(algorithm.config.num_envs))
    cells = make_cells(algorithm, graph, 0)
    cell_layout = CellLayout(cells)
    return graph, Programs(graph, cell_layout), [jnp.array(leaf) for leaf in cell_layout.flat(cells)]


def memory_for(graph: Graph, programs: Programs, *fragments: Fragment) -> Fabric:
    """What fragments work in, when one more does the rest of the loop."""
    own = {node for fragment in fragments for node in fragment.nodes}
    rest = tuple(node.id for node in graph.nodes if node.id not in own)
    plan = cut(graph, "probe", (*fragments, Fragment("rest", rest)) if rest else fragments, 0)
    return local(Sections(plan), graph, programs.cell_layout)


def device(task: ProbeTask, fragment: dict[str, Any]) -> Any:
    """The JAX device of a fragment."""
    return jax_device(fragment["device"], [other["device"] for other in task.fragments])
