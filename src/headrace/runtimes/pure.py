"""A fragment that is pure throughout, its environment included, as one XLA program.

The environment's state, the store and the cells are one value that the program carries from cycle to
cycle, donated, on the device.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from headrace.channels import device_table
from headrace.channels.device_table import DeviceTable
from headrace.channels.limiter import Rate
from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell
from headrace.envs import Episode, Finished, JaxEnv
from headrace.graph import Plan
from headrace.runtimes.base import Progress, Runtime
from headrace.runtimes.compile import Programs, Ticket, Values, consecutive, make_cells, node_key, ticket
from headrace.types import Transition, Tree


class Carry(NamedTuple):
    """Everything that changes."""

    cells: Tree
    env: Tree
    obs: Tree
    table: DeviceTable | None


class Pure(Runtime):
    """A whole loop as one program."""

    def __init__(self, plan: Plan, algorithm: Algorithm[Any], env: JaxEnv, seed: int):
        self.graph = graph = plan.graph
        self.env = env
        self.seed = seed
        self.progress = Progress()
        self.repeat = plan.learner.repeat
        arrays, self.static = eqx.partition(make_cells(algorithm, graph, seed), eqx.is_array)
        programs = Programs(graph, self.static)
        self.step_node, self.sink, self.source = graph.only("env.step"), graph.sink, graph.source
        stages = graph.where(domain="collect", kind="stage")
        cut = graph.nodes.index(self.step_node)
        self.before = [node for node in stages if graph.nodes.index(node) < cut]
        self.after = [node for node in stages if graph.nodes.index(node) > cut]
        self.act = programs.reader(self.before, self.step_node.inputs)
        self.finish = programs.reader(self.after, self.sink.inputs[0])
        self.modules = programs.modules
        self.learn = programs.learner(graph.where(domain="learn", kind="stage"))
        self.rate = None if graph.on_policy else Rate.of(self.source)
        table = None
        if not graph.on_policy:
            inserted = next(edge.struct for edge in graph.edges if edge.target == self.sink.id)
            table = device_table.make_table(inserted, self.sink.option("capacity"))
        state, obs = jax.jit(env.reset)(node_key(self.step_node, ticket(seed, 0, 0)))
        self.carry = Carry(arrays, state, obs, table)
        self.cycle = jax.jit(self._cycle, static_argnums=(3, 4), donate_argnums=0)

    def advance(self) -> None:
        progress = self.progress
        passes, learned = self._due()
        began = ticket(self.seed, progress.passes, 0)
        learning = ticket(self.seed, progress.learned, 0)
        self.carry, finished, metrics = self.cycle(self.carry, began, learning, passes, learned)
        progress.passes += passes
        progress.env_steps += passes * self.graph.spec.num_envs * self.step_node.times
        progress.learned += learned
        if learned:
            progress.metrics = metrics
        progress.update_frames += learned * self._frames()
        done = np.asarray(finished.done)
        rewards, lengths = np.asarray(finished.reward)[done], np.asarray(finished.length)[done]
        progress.episodes += [Episode(float(r), int(n)) for r, n in zip(rewards, lengths, strict=True)]

    def _due(self) -> tuple[int, int]:
        """Collecting and learning passes of the next cycle."""
        if self.rate is None:
            return 1, 1
        envs, progress = self.graph.spec.num_envs, self.progress
        if progress.env_steps < self.rate.after:
            return -(-(self.rate.after - progress.env_steps) // envs), 0
        goal = self.rate.after + -((-(progress.learned + self.repeat) * self.rate.size) // self.rate.per_insert)
        return max(0, -(-(goal - progress.env_steps) // envs)), self.repeat

    def _frames(self) -> int:
        if self.rate is not None:
            return self.rate.size
        return int(self.source.option("epochs")) * self.graph.spec.num_envs * self.step_node.times

    def _cycle(
        self, carry: Carry, began: Ticket, learning: Ticket, passes: int, learned: int
    ) -> tuple[Carry, Finished, dict[str, Any]]:
        if self.rate is None:
            carry, trajectory, finished = self._unroll(carry, began)
            values: Values = {self.source.id: jax.tree.leaves(trajectory)}
            cells, metrics = self.learn(carry.cells, values, learning)
            return carry._replace(cells=cells), finished, metrics
        carry, finished = jax.lax.scan(self._insert, carry, consecutive(began, passes))
        assert carry.table is not None
        sample = partial(self._sample_and_learn, carry.table)
        cells, metrics = jax.lax.scan(sample, carry.cells, consecutive(learning, learned))
        return carry._replace(cells=cells), finished, metrics

    def _step(self, carry: Carry, ticket: Ticket) -> tuple[Carry, tuple[Transition, Finished]]:
        values: Values = {"env.observe": jax.tree.leaves(carry.obs)}
        cells = eqx.combine(carry.cells, self.static)
        action, *extra = self.act(self.modules(self.before, cells), values, ticket)
        state, step, finished = self.env.step(carry.env, action, node_key(self.step_node, ticket))
        transition = Transition(
            carry.obs, action, step.reward, step.terminated, step.truncated, step.next_obs, extra[0] if extra else {}
        )
        return carry._replace(env=state, obs=step.obs), (transition, finished)

    def _finished(self, carry: Carry, produced: Transition, ticket: Ticket) -> Transition:
        cells = eqx.combine(carry.cells, self.static)
        values: Values = {self.step_node.id: jax.tree.leaves(produced)}
        handed: Transition = self.finish(self.modules(self.after, cells), values, ticket)
        return handed

    def _insert(self, carry: Carry, ticket: Ticket) -> tuple[Carry, Finished]:
        carry, (transition, finished) = self._step(carry, ticket)
        assert carry.table is not None
        table = device_table.insert(carry.table, self._finished(carry, transition, ticket))
        return carry._replace(table=table), finished

    def _unroll(self, carry: Carry, ticket: Ticket) -> tuple[Carry, Transition, Finished]:
        steps = self.step_node.times
        first = jnp.asarray(ticket).at[1].multiply(jnp.uint32(steps))
        carry, (trajectory, finished) = jax.lax.scan(self._step, carry, consecutive(first, steps))
        return carry, self._finished(carry, trajectory, ticket), finished

    def _sample_and_learn(self, table: DeviceTable, cells: Tree, ticket: Ticket) -> tuple[Tree, dict[str, Any]]:
        gamma, steps = self.source.option("gamma"), self.source.option("steps")
        key = node_key(self.source, ticket)
        batch = device_table.sample(table, key, self.source.option("size"), gamma, steps)
        changed: tuple[Tree, dict[str, Any]] = self.learn(cells, {self.source.id: jax.tree.leaves(batch)}, ticket)
        return changed

    def cells(self) -> dict[str, Cell]:
        whole: dict[str, Cell] = eqx.combine(self.carry.cells, self.static)
        return whole

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.carry._asdict(), self.progress.counters()

    def restore(self, arrays: dict[str, Any], values: dict[str, Any]) -> None:
        self.carry = Carry(**jax.tree.map(jnp.asarray, arrays))
        self.progress = Progress(**values)

    def close(self) -> None:
        """Nothing is held outside the program."""
