"""The inline runtime: any plan, all replicas of all fragments, in one process, in the loop's order.

The sections are the same as in the processes runtime, over memory of this process. All share one list of
cells, so nothing is published. A plan of one fragment over a JAX environment is one XLA program (pure.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.compile.cells import CellLayout, cached_program, make_cells
from headrace.compile.programs import Programs
from headrace.compile.replicas import learning_together, replica_graph
from headrace.compile.rng import PassRng
from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell
from headrace.envs import HostEnv, make
from headrace.exec.apply import Applier, GradientWorker
from headrace.exec.cells import Cells, Workspace
from headrace.exec.collect import Collect, replica_envs
from headrace.exec.group import Group, mesh_of
from headrace.exec.lane import Pass
from headrace.exec.learn import Learn
from headrace.fabric.memory import local
from headrace.graph import Plan
from headrace.graph.sections import Section, Sections
from headrace.runtimes.base import PLAIN, Options, Runtime
from headrace.runtimes.progress import Progress
from headrace.runtimes.pure import Pure
from headrace.runtimes.stored import resume, stored_contents
from headrace.runtimes.watch import Watch


def inline(plan: Plan, algorithm: Algorithm[Any], env: Any, seed: int, options: Options = PLAIN) -> Runtime:
    """A runtime in this process. To debug, nothing is compiled: print and breakpoints work in stages."""
    if plan.one_program and not options.debug:
        return Pure(plan, algorithm, make(env, plan.graph.spec.num_envs // plan.shares), seed, options)  # type: ignore[arg-type]
    return Inline(plan, algorithm, env, seed, options)


class Inline(Runtime):
    """Host environments, stores in host memory, stages compiled (or not, to debug)."""

    def __init__(self, plan: Plan, algorithm: Algorithm[Any], env: Any, seed: int, options: Options):
        self.plan, self.debug = plan, options.debug
        self.jit: Callable[..., Any] = _as_it_is if options.debug else jax.jit
        self.progress = Progress()
        for store in plan.graph.stores.values():
            store.require_memory()  # checked first
        self.graph = replica_graph(plan, algorithm)
        made = make_cells(algorithm, plan.graph, seed)
        self.layout = CellLayout(made)
        self.cells_held = Cells(self.layout.flat(made))
        self.watch = Watch(plan.graph, options.on_divergence)
        self.sections = sections = Sections(plan)
        self.fabric = local(sections, self.graph, self.layout)
        workspace = Workspace(self.fabric, Programs(self.graph, self.layout), self.cells_held, seed, self.jit)

        def envs(section: Section) -> list[HostEnv]:
            return replica_envs(env, sections) if any(node.kind == "env" for node in section.nodes) else []

        self.collects = [
            Collect(workspace, section, replica, envs(section))
            for section in sections.collecting
            for replica in range(section.fragment.replicas)
        ]
        for collect in self.collects:
            collect.start(0)
        self.learns = [
            Learn(workspace, section, replica, self.watch.take)
            for section in sections.learning
            for replica in range(section.fragment.replicas)
        ]
        self.workers = [GradientWorker(learn) for learn in (self.learns if plan.gradients == "apply" else ())]
        if self.workers:
            self.applier = Applier(workspace, self.watch.take)
        if plan.gradients == "reduce" and plan.shares > 1:
            self._join()

    def _join(self) -> None:
        """Combine the programs of data-parallel replicas into one."""
        number, mesh = self.plan.shares, mesh_of(self.plan.shares)
        self.group = Group(mesh) if mesh is not None else None

        def many(program: Callable[..., Any]) -> Any:
            return self.jit(learning_together(program, number, mesh), donate_argnums=0)

        self.joined = [
            cached_program(self.graph, ("joined", i, number, self.jit), partial(many, learn.segments[0].program))
            for i, learn in enumerate(self.learns[::number])
        ]

    def advance(self) -> None:
        with jax.disable_jit(self.debug):
            if self.workers:
                self._send_in_turn()
            else:
                self._cycle()
            self.watch.look(self.progress)  # the next cycle begins by acting, which waits for the cells

    def _cycle(self) -> None:
        """Collect until something is due, then learn all that is; while warming up, one pass."""
        progress, begins = self.progress, max(domain.begins for domain in self.plan.graph.domains)
        while not self.one_pass():
            if progress.passes < begins:
                return  # so that the session can log

    def one_pass(self) -> bool:
        """One collecting pass, and the learning that is due after it; returns whether there was any."""
        self.collect()
        return self._learn_due()

    def collect(self) -> None:
        """One collecting pass of all sections."""
        self._turn([collect.run(self.progress.passes) for collect in self.collects])
        self._count()

    def _turn(self, passes: Sequence[Pass]) -> None:
        """Run passes of all sections to their end, each as far as the others let it."""
        if len(passes) == 1:
            for ready in passes[0]:
                assert ready()
            return
        going: list[tuple[Pass, Callable[[], bool]]] = [(one, lambda: True) for one in passes]
        while going:
            able = [ready() for _, ready in going]
            assert any(able), "every fragment waits for another one"
            left = []
            for (one, ready), can in zip(going, able, strict=True):
                following = next(one, None) if can else ready
                if following is not None:
                    left.append((one, following))
            going = left

    def _count(self) -> None:
        ledger, progress = self.fabric.ledger, self.progress
        for collect in self.collects:
            progress.episodes.extend(collect.drain())
        progress.passes += 1
        progress.env_steps += self.plan.graph.collected
        ledger.begun[:] = ledger.passes[:] = progress.passes

    def _learn_due(self) -> bool:
        """All programs that are due, domain by domain, in the loop's order; returns whether there were any."""
        progress, did = self.progress, False
        for domain in self.plan.graph.domains:
            own = [learn for learn in self.learns if learn.domain is domain]
            repeat = own[0].repeat
            while domain.due(progress.passes) >= own[0].learned + repeat:
                if self.plan.shares > 1:
                    self._learn_as_one(own, self.joined[domain.index])
                else:
                    self._turn([learn.run(repeat) for learn in own])
                if any(learn.inward for learn in own):
                    jax.block_until_ready(self.cells_held.flat)  # before its input buffers are overwritten
                for learn in own:
                    learn.done(repeat)
                progress.count(domain.index, repeat, repeat * domain.frames)
                did = True
        return did

    def _learn_as_one(self, own: Sequence[Learn], program: Callable[..., Any]) -> None:
        """One program of all replicas."""
        learned, repeat, first = own[0].learned, own[0].repeat, own[0]
        drawn = [learn.segments[0].values(learn.draw(learned, repeat)) for learn in own]
        rng = PassRng(np.stack([learn.bases for learn in own]), np.uint32(learned))
        values = jax.tree.map(lambda *leaves: np.stack(leaves), *drawn)
        run = program if self.group is None else partial(self.group.run, program)
        self.cells_held.flat, (report, _) = run(self.cells_held.flat, values, rng)
        first.took(first.segments[0].nodes, report, learned)

    def _send_in_turn(self) -> None:
        """Loops one after the other, each gradient applied before the next one begins: staleness 0."""
        progress, number = self.progress, self.progress.passes
        before = self.learns[0].learned
        for collect, worker in zip(self.collects, self.workers, strict=True):
            self._turn([collect.run(number)])
            for _ in worker.run(number, lambda: None):
                self._apply()
            self._apply()
            self.watch.look(progress)
        self._count()
        due = self.learns[0].learned - before
        progress.count(0, due, due * len(self.workers) * self.graph.domains[0].frames)

    def _apply(self) -> None:
        while self.applier.waiting:
            self.applier.run(lambda: None)

    @property
    def repeat(self) -> int:
        return max(learn.repeat for learn in self.learns)

    def cells(self) -> dict[str, Cell]:
        return self.layout.cells(self.cells_held.flat)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays: dict[str, Any] = {"cells": self.layout.arrays(self.cells_held.flat)}
        return arrays | stored_contents(self.fabric), self.progress.counters()

    def restore(self, arrays: dict[str, Any], values: dict[str, Any]) -> None:
        self.cells_held.flat = [jnp.asarray(leaf) for leaf in jax.tree.leaves(arrays["cells"])]
        self.progress = resume(self.fabric, arrays, values)
        for collect in self.collects:
            collect.start(self.progress.passes)

    def close(self) -> None:
        for collect in self.collects:
            collect.close()


def _as_it_is(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """In place of `jax.jit`, to debug."""
    return function
