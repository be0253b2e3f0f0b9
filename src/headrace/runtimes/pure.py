"""A fragment that is pure throughout, its environment included, as one XLA program.

The environment's state, the store and the cells are one value that the program carries from cycle to
cycle, donated, on the device.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from headrace.channels import device_table
from headrace.channels.device_table import DeviceTable
from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell
from headrace.envs import Episode, Finished, JaxEnv
from headrace.graph import Plan
from headrace.graph.compile import (
    Programs,
    Shelf,
    Ticket,
    Values,
    bases,
    consecutive,
    make_cells,
    node_key,
)
from headrace.graph.operations import Sample
from headrace.graph.replicated import averaging, part_of, together
from headrace.graph.reports import Report
from headrace.runtimes.base import PLAIN, Options, Runtime
from headrace.runtimes.group import mesh_of, same
from headrace.runtimes.watch import Watch
from headrace.services.progress import Progress
from headrace.types import Array, Transition, Tree


class Carry(NamedTuple):
    """Everything that changes."""

    cells: list[Array]
    env: Tree
    obs: Tree
    table: DeviceTable | None


class Pure(Runtime):
    """A whole loop as one program."""

    def __init__(self, plan: Plan, algorithm: Algorithm[Any], env: JaxEnv, seed: int, options: Options = PLAIN):
        self.whole = plan.graph
        self.parts = plan.parts
        self.graph = part_of(plan, algorithm)
        graph = self.graph
        self.env = env
        held = [bases(graph, seed, replica=i) for i in range(self.parts)]
        self.bases = held[0] if self.parts == 1 else np.stack(held)
        self.progress = Progress()
        self.repeat = plan.learner.repeat
        self.step_node, self.sink, self.source = graph.only("env.step"), graph.sink, graph.source
        table = None
        if not graph.on_policy:
            table = device_table.make_table(graph.stored, graph.capacity)
        cells = make_cells(algorithm, graph, seed)
        self.shelf = Shelf(cells)
        programs = Programs(graph, self.shelf)
        stages = graph.where(domain="collect", kind="stage")
        self.before = [node for node in stages if node.index < self.step_node.index]
        self.after = [node for node in stages if node.index > self.step_node.index]
        self.act = programs.reader(self.before, self.step_node.inputs)
        self.finish = programs.reader(self.after, self.sink.inputs[0])
        self.modules = programs.modules
        self.learning = graph.where(domain="learn", kind="stage")
        self.learn = programs.one_pass(self.learning)
        self.report = partial(programs.report, self.learning)
        self.watch = Watch(graph, options.on_divergence)
        self.domain = self.whole.domain
        keys = [jax.random.wrap_key_data(jnp.asarray(base[self.step_node.index])) for base in held]
        if self.parts == 1:
            state, obs = jax.jit(env.reset)(keys[0])
        else:
            state, obs = jax.jit(jax.vmap(env.reset))(jnp.stack(keys))
            table = jax.tree.map(lambda leaf: jnp.stack([leaf] * self.parts), table)
        self.carry = Carry(self.shelf.flat(cells), state, obs, table)
        self.mesh = mesh_of(self.parts)
        self.cycle = jax.jit(self._all, static_argnums=(3, 4), donate_argnums=0)

    def advance(self) -> None:
        progress = self.progress
        passes, learned = self.due()
        began = Ticket(self.bases, np.uint32(progress.passes))
        learning = Ticket(self.bases, np.uint32(progress.learned))
        self.carry, finished, report = self.cycle(self.carry, began, learning, passes, learned)
        self.take(passes, learned, finished, report)

    def take(self, passes: int, learned: int, finished: Finished, report: Report) -> None:
        """Note what a cycle has done."""
        progress = self.progress
        if learned:
            self.watch.take(self.learning, report, progress.learned)
        progress.passes += passes
        progress.env_steps += passes * self.whole.collected
        progress.learned += learned
        progress.update_frames += learned * self.domain.frames
        done = np.asarray(finished.done)
        rewards, lengths = np.asarray(finished.reward)[done], np.asarray(finished.length)[done]
        progress.episodes += [Episode(float(r), int(n)) for r, n in zip(rewards, lengths, strict=True)]
        self.watch.look(progress)

    def due(self) -> tuple[int, int]:
        """Collecting and learning passes of the next cycle."""
        progress = self.progress
        begins = self.domain.begins
        if progress.passes < begins:
            return begins - progress.passes, 0
        return max(0, self.domain.needed(progress.learned + self.repeat) - progress.passes), self.repeat

    def _all(
        self, carry: Carry, began: Ticket, learning: Ticket, passes: int, learned: int
    ) -> tuple[Carry, Finished, Report]:
        """A cycle of every replica."""
        cycle = partial(self.one_cycle, passes=passes, learned=learned)
        if self.parts == 1:
            return cycle(carry, began, learning)
        shared, own = Carry(cells=None, env=0, obs=0, table=0), Ticket(0, None)  # type: ignore[arg-type]
        many = together(averaging(cycle), self.parts, (shared, own, own), (shared, 0, None), self.mesh)
        result: tuple[Carry, Finished, Report] = many(carry, began, learning)
        return result

    def one_cycle(
        self, carry: Carry, began: Ticket, learning: Ticket, passes: int, learned: int
    ) -> tuple[Carry, Finished, Report]:
        if not self.domain.replays:
            carry, trajectory, finished = self._collect(carry, began)
            values: Values = {self.source.id: jax.tree.leaves(trajectory)}
            cells, reported = self.learn(carry.cells, values, learning)
            once = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], reported)
            return carry._replace(cells=cells), finished, self.report(cells, once)
        carry, finished = jax.lax.scan(partial(self._insert, began), carry, consecutive(began, passes))
        assert carry.table is not None
        sample = partial(self._sample_and_learn, carry.table, learning)
        cells, reported = jax.lax.scan(sample, carry.cells, consecutive(learning, learned))
        return carry._replace(cells=cells), finished, self.report(cells, reported)

    def _step(self, first: Ticket, carry: Carry, number: Array) -> tuple[Carry, tuple[Transition, Finished]]:
        ticket = first._replace(number=number)
        values: Values = {"env.observe": jax.tree.leaves(carry.obs)}
        action, *extra = self.act(self.modules(self.before, carry.cells), values, ticket)
        state, step, finished = self.env.step(carry.env, action, node_key(self.step_node, ticket))
        transition = Transition(
            carry.obs, action, step.reward, step.terminated, step.truncated, step.next_obs, extra[0] if extra else {}
        )
        return carry._replace(env=state, obs=step.obs), (transition, finished)

    def _finished(self, carry: Carry, produced: Transition, ticket: Ticket) -> Transition:
        values: Values = {self.step_node.id: jax.tree.leaves(produced)}
        handed: Transition = self.finish(self.modules(self.after, carry.cells), values, ticket)
        return handed

    def _insert(self, first: Ticket, carry: Carry, number: Array) -> tuple[Carry, Finished]:
        carry, handed, finished = self._collect(carry, first._replace(number=number))
        assert carry.table is not None
        return carry._replace(table=device_table.insert(carry.table, handed)), finished

    def _collect(self, carry: Carry, ticket: Ticket) -> tuple[Carry, Transition, Finished]:
        """One pass: what it hands to the store."""
        if not self.graph.unrolled:
            carry, (step, finished) = self._step(ticket, carry, ticket.number)
            handed = self._finished(carry, step, ticket)
            alone = self.graph.on_policy  # a trajectory of one step
            return carry, jax.tree.map(lambda leaf: leaf[None], handed) if alone else handed, finished
        steps = self.step_node.times
        first = ticket._replace(number=ticket.number * np.uint32(steps))
        carry, (trajectory, finished) = jax.lax.scan(partial(self._step, first), carry, consecutive(first, steps))
        return carry, self._finished(carry, trajectory, ticket), finished

    def _sample_and_learn(
        self, table: DeviceTable, first: Ticket, cells: list[Array], number: Array
    ) -> tuple[list[Array], Any]:
        ticket = first._replace(number=number)
        how = self.source.operation
        assert isinstance(how, Sample)
        batch = device_table.sample(table, node_key(self.source, ticket), how.size, how.gamma, how.steps)
        return self.learn(cells, {self.source.id: jax.tree.leaves(batch)}, ticket)

    def cells(self) -> dict[str, Cell]:
        return self.shelf.cells(self.carry.cells)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        same(self.carry.cells)
        named = self.carry._asdict() | {"cells": self.shelf.arrays(self.carry.cells)}
        return named, self.progress.counters()

    def restore(self, arrays: dict[str, Any], values: dict[str, Any]) -> None:
        held = jax.tree.map(jnp.asarray, arrays)
        self.carry = Carry(**held)._replace(cells=jax.tree.leaves(held["cells"]))
        self.progress = Progress(**values)

    def close(self) -> None:
        """Nothing is held outside the program."""
