"""The inline runtime: any plan, all replicas, in one process, in a fixed order.

A cycle collects until the loop's rate has earned the learning passes that are fused into one program,
then runs them. A plan of one fragment over a JAX environment is one XLA program altogether (pure.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell
from headrace.envs import make
from headrace.graph import Node, Plan
from headrace.graph.compile import Programs, Shelf, Ticket, make_cells, shared, stages
from headrace.graph.gradients import apply, gradient
from headrace.graph.replicated import averaging, part_of, together
from headrace.runtimes.base import PLAIN, Options, Runtime
from headrace.runtimes.group import Group, mesh_of
from headrace.runtimes.part import Part, sets_of, table_of
from headrace.runtimes.pure import Pure
from headrace.runtimes.remote import local_envs
from headrace.runtimes.watch import Watch
from headrace.services.progress import Progress


def inline(plan: Plan, algorithm: Algorithm[Any], env: Any, seed: int, options: Options = PLAIN) -> Runtime:
    """A runtime in this process. To debug, nothing is compiled: print and breakpoints work in stages."""
    spec = plan.graph.spec
    if plan.one_program and not options.debug:
        return Pure(plan, algorithm, make(env, spec.num_envs // plan.parts), seed, options)  # type: ignore[arg-type]
    kind = Central if plan.gradients == "central" else Inline
    return kind(plan, algorithm, env, seed, options)


class Inline(Runtime):
    """Host environments, stores in host memory, stages compiled (or not, to debug)."""

    def __init__(self, plan: Plan, algorithm: Algorithm[Any], env: Any, seed: int, options: Options):
        self.plan = plan
        self.debug = debug = options.debug
        self.progress = Progress()
        self.repeat = plan.learner.repeat
        self.collected = plan.graph.collected
        self.domain = plan.graph.domain
        self.jit: Callable[..., Any] = _as_it_is if debug else jax.jit
        self.graph = part_of(plan, algorithm)
        # First: a store that does not fit is refused before anything is made.
        tables = [table_of(plan, self.graph) for _ in range(plan.parts)]
        cells = make_cells(algorithm, plan.graph, seed)
        self.shelf = Shelf(cells)
        self.flat = self.shelf.flat(cells)
        self.programs = Programs(self.graph, self.shelf)
        self.parts = [
            Part(self.graph, self.programs, local_envs(plan, env), table, seed, i * sets_of(plan), self.jit)
            for i, table in enumerate(tables)
        ]
        self.group: Group | None = None
        self.watch = Watch(self.graph, options.on_divergence)
        self.stages = [stages(self.graph, fragment) for fragment in plan.learners]
        self.learns = self._learners()

    def _learners(self) -> list[Callable[..., Any]]:
        """A program for each learning fragment."""
        number = self.plan.parts
        mesh = mesh_of(number)
        self.group = Group(mesh) if mesh is not None else None

        def made(nodes: list[Node]) -> Callable[..., Any]:
            learn: Callable[..., Any] = self.programs.learner(nodes)
            if number > 1:
                learn = together(averaging(learn), number, (None, 0, Ticket(0, None)), None, mesh)
            return self._jit(("learning", *(node.id for node in nodes)), learn, donate_argnums=0)

        return [made(nodes) for nodes in self.stages]

    def _jit(self, what: Any, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """A program, shared with other runs that replicate the same graph as often."""
        make: Callable[[], Callable[..., Any]] = partial(self.jit, function, **options)
        return shared(self.graph, (what, self.plan.parts, self.jit), make)

    def advance(self) -> None:
        with jax.disable_jit(self.debug):
            self._cycle()
            self.watch.look(self.progress)  # the next one begins by acting, and so by waiting for the cells

    def _cycle(self) -> None:
        """Collect until a program's worth of learning is due, then run all that is."""
        progress, due = self.progress, self.domain.due
        while due(progress.passes) < progress.learned + self.repeat:
            self._collect()
            if progress.passes < self.domain.begins:
                return  # warming up: let others look in
        while due(progress.passes) >= progress.learned + self.repeat:
            self._learn(self.repeat)
            progress.update_frames += self.repeat * self.domain.frames

    def _collect(self) -> None:
        """One pass of every part, in order."""
        for part in self.parts:
            part.collect(self.flat, self.progress.passes)
            self.progress.episodes.extend(part.drain())
        self.progress.passes += 1
        self.progress.env_steps += self.collected

    def _learn(self, repeat: int) -> None:
        """One program of every learning fragment, in the loop's order."""
        parts, learned = self.parts, self.progress.learned
        data = [part.data(learned, repeat) for part in parts]
        if len(parts) > 1:
            ticket = Ticket(np.stack([part.bases for part in parts]), np.uint32(learned))
            whole = jax.tree.map(lambda *leaves: np.stack(leaves), *data)
        else:
            ticket, whole = Ticket(parts[0].bases, np.uint32(learned)), data[0]
        for nodes, learn in zip(self.stages, self.learns, strict=True):
            run = learn if self.group is None else partial(self.group.run, learn)
            self.flat, report = run(self.flat, whole, ticket)
            self.watch.take(nodes, report, learned)
        self.progress.learned += repeat

    def cells(self) -> dict[str, Cell]:
        return self.shelf.cells(self.flat)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays: dict[str, Any] = {"cells": self.shelf.arrays(self.flat)}
        if self.domain.replays:
            arrays["replay"] = contents([part.table for part in self.parts])
        return arrays, self.progress.counters()

    def restore(self, arrays: dict[str, Any], values: dict[str, Any]) -> None:
        self.flat = [jnp.asarray(leaf) for leaf in jax.tree.leaves(arrays["cells"])]
        self.progress = Progress(**values)
        if self.domain.replays:
            fill([part.table for part in self.parts], arrays["replay"])
        for part in self.parts:
            part.restart(self.progress.passes)

    def close(self) -> None:
        for part in self.parts:
            part.close()


class Central(Inline):
    """Workers one after the other, each gradient applied before the next worker begins: staleness 0."""

    def _learners(self) -> list[Callable[..., Any]]:
        self.domain = self.graph.domain
        self.apply = self._jit("applying", apply(self.graph, self.shelf), donate_argnums=0)
        return [self._jit("gradients", gradient(self.graph, self.shelf))]

    def advance(self) -> None:
        with jax.disable_jit(self.debug):
            progress, number = self.progress, len(self.parts)
            due = self.domain.due(progress.passes + 1) - progress.learned
            for part in self.parts:
                part.collect(self.flat, progress.passes)
                progress.episodes.extend(part.drain())
                for i in range(due):
                    self._send(part, progress.learned + i)
                self.watch.look(progress)
            progress.passes += 1
            progress.env_steps += self.collected
            progress.learned += due
            progress.update_frames += due * number * self.domain.frames

    def _send(self, part: Part, learned: int) -> None:
        ticket = Ticket(part.bases, np.uint32(learned))
        sent, report = self.learns[0](self.flat, part.data(learned, 1), ticket)
        self.watch.take(self.stages[0], report, learned)
        self.flat, report = self.apply(self.flat, sent)
        self.watch.take(self.stages[0], report, learned)


def _as_it_is(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """In place of `jax.jit`, to debug."""
    return function


def contents(tables: list[Any]) -> Any:
    """What a checkpoint keeps of the stores of a run's parts."""
    held = [table.contents() for table in tables]
    return held[0] if len(held) == 1 else {str(i): one for i, one in enumerate(held)}


def fill(tables: list[Any], held: Any) -> None:
    """Take over what a checkpoint kept."""
    for i, table in enumerate(tables):
        table.fill(held if len(tables) == 1 else held[str(i)])
