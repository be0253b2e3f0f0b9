"""The inline runtime: any plan, all replicas, in one process, in a fixed order.

A cycle collects until the loop's rate has earned the learning passes that are fused into one program,
then runs them. A plan of one fragment over a JAX environment is one XLA program altogether (pure.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.channels.rate import Rate
from headrace.channels.table import Table
from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell
from headrace.envs import HostedJaxEnv, HostEnv, JaxEnv, make
from headrace.graph import Plan
from headrace.graph.compile import Programs, Shelf, Ticket, bases, draws, make_cells, share_of, stages
from headrace.runtimes.base import PLAIN, Options, Runtime
from headrace.runtimes.collect import Collector, Rows
from headrace.runtimes.pure import Pure
from headrace.services.progress import Progress


def inline(plan: Plan, algorithm: Algorithm[Any], env: Any, seed: int, options: Options = PLAIN) -> Runtime:
    """A runtime in this process. To debug, nothing is compiled: print and breakpoints work in stages."""
    spec = plan.graph.spec
    if spec.pure and len(plan.fragments) == 1 and not options.debug:
        return Pure(plan, algorithm, make(env, spec.num_envs), seed)  # type: ignore[arg-type]
    return Inline(plan, algorithm, env, seed, options.debug)


class Inline(Runtime):
    """Host environments, the store in host memory, stages compiled (or not, to debug)."""

    def __init__(self, plan: Plan, algorithm: Algorithm[Any], env: Any, seed: int, debug: bool):
        self.graph = graph = plan.graph
        self.bases = bases(graph, seed, replica=0)
        self.debug = debug
        self.progress = Progress()
        self.repeat = plan.learner.repeat
        self.collected = graph.spec.num_envs * graph.only("env.step").times
        jit: Callable[..., Any] = (lambda function, **_: function) if debug else jax.jit
        replicas = plan.collector.replicas
        self.stores = self._store(plan, replicas)  # first: a store that does not fit is refused before anything is made
        cells = make_cells(algorithm, graph, seed)
        self.shelf = Shelf(cells)
        self.flat = self.shelf.flat(cells)
        programs = Programs(graph, self.shelf)
        envs = [hosted(make(env, graph.spec.num_envs // replicas)) for _ in range(replicas)]
        self.collectors = [Collector(graph, programs, env, seed, i, jit) for i, env in enumerate(envs)]
        learns = [programs.learner(stages(graph, fragment)) for fragment in plan.learners]
        self.learn_many = [jit(programs.repeated(learn, graph.source), donate_argnums=0) for learn in learns]
        self.learn_once = [jit(learn, donate_argnums=0) for learn in learns]

    def _store(self, plan: Plan, replicas: int) -> Table | None:
        if plan.graph.on_policy:
            return None
        sink, source = plan.graph.sink, plan.graph.source
        step = share_of(plan.graph, replicas)
        self.rate = Rate.of(source)
        self.draw = {"gamma": source.option("gamma"), "steps": source.option("steps")}
        return Table(step, replicas, sink.option("capacity"))

    def advance(self) -> None:
        with jax.disable_jit(self.debug):
            if self.stores is None:
                self._rollout()
            else:
                self._replay(self.stores)

    def _replay(self, table: Table) -> None:
        """Collect until a program's worth of learning is due, then run all that is."""
        progress = self.progress
        while self.rate.due(progress.env_steps, progress.learned) < self.repeat:
            self._collect(lambda replica, rows: table.insert(rows, replica))
            if progress.env_steps < self.rate.after:
                return  # warming up: let others look in
        while self.rate.due(progress.env_steps, progress.learned) >= self.repeat:
            self._replayed(table)

    def _replayed(self, table: Table) -> None:
        progress = self.progress
        rng = draws(self.graph.source, Ticket(self.bases, np.uint32(progress.learned)))
        batches = table.sample(rng, (self.repeat, self.rate.size), **self.draw)
        self._learn(self.learn_many, batches, self.repeat)
        progress.update_frames += self.repeat * self.rate.size

    def _rollout(self) -> None:
        parts: list[Rows] = []
        self._collect(lambda replica, rows: parts.append(rows))
        whole = parts[0] if len(parts) == 1 else [np.concatenate(x, axis=1) for x in zip(*parts, strict=True)]
        self._learn(self.learn_once, {self.graph.source.id: whole}, 1)
        self.progress.update_frames += self.graph.source.option("epochs") * self.collected

    def _collect(self, hand_over: Callable[[int, Rows], None]) -> None:
        """One pass of every replica, in order."""
        for replica, collector in enumerate(self.collectors):
            hand_over(replica, collector.collect(self.flat, self.progress.passes))
            self.progress.episodes.extend(collector.env.drain())
        self.progress.passes += 1
        self.progress.env_steps += self.collected

    def _learn(self, learns: list[Callable[..., Any]], data: Any, passes: int) -> None:
        """One program of every learning fragment, in the loop's order."""
        ticket = Ticket(self.bases, np.uint32(self.progress.learned))
        for learn in learns:
            self.flat, metrics = learn(self.flat, data, ticket)
            self.progress.metrics = self.progress.metrics | metrics
        self.progress.learned += passes

    def cells(self) -> dict[str, Cell]:
        return self.shelf.cells(self.flat)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays: dict[str, Any] = {"cells": self.shelf.arrays(self.flat)}
        if self.stores is not None:
            arrays["replay"] = self.stores.contents()
        return arrays, self.progress.counters()

    def restore(self, arrays: dict[str, Any], values: dict[str, Any]) -> None:
        self.flat = [jnp.asarray(leaf) for leaf in jax.tree.leaves(arrays["cells"])]
        self.progress = Progress(**values)
        if self.stores is not None:
            self.stores.fill(arrays["replay"])
        for collector in self.collectors:
            collector.restart(self.progress.passes)

    def close(self) -> None:
        for collector in self.collectors:
            collector.env.close()


def hosted(env: HostEnv | JaxEnv) -> HostEnv:
    """An environment as the host steps it."""
    return HostedJaxEnv(env) if isinstance(env, JaxEnv) else env
