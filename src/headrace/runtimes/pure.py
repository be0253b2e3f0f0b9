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

from headrace.compile.cells import CellLayout, make_cells
from headrace.compile.programs import Programs, Values
from headrace.compile.replicas import averaging, over_replicas, replica_graph
from headrace.compile.reports import Report
from headrace.compile.rng import PassRng, bases, consecutive, node_key
from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell
from headrace.envs import Episode, Finished, JaxEnv
from headrace.exec.group import mesh_of, same
from headrace.graph import Plan
from headrace.graph.ir import Domain
from headrace.runtimes.base import PLAIN, Options, Runtime
from headrace.runtimes.progress import Progress
from headrace.runtimes.watch import Watch
from headrace.stores import device
from headrace.stores.device import DeviceTable
from headrace.stores.replay import Insert, Sample
from headrace.types import Array, Transition, Tree

Counts = tuple[int, ...]
"""Learning passes of each domain."""

Handed = dict[str, Tree]
"""What a pass puts into each rollout store, which is learned from at once."""


class Carry(NamedTuple):
    """The whole state of the loop."""

    cells: list[Array]
    env: Tree
    obs: Tree
    tables: dict[str, DeviceTable]


class Pure(Runtime):
    """A whole loop as one program."""

    def __init__(self, plan: Plan, algorithm: Algorithm[Any], env: JaxEnv, seed: int, options: Options = PLAIN):
        self.plan, self.shares = plan, plan.shares
        self.graph = graph = replica_graph(plan, algorithm)
        self.env = env
        held = [bases(graph, seed, replica=i) for i in range(self.shares)]
        self.bases = held[0] if self.shares == 1 else np.stack(held)
        self.progress = Progress()
        self.repeats = tuple(plan.fragments[0].repeat if domain.fused else 1 for domain in graph.domains)
        self.step_node = graph.only("env.step")
        tables = {}
        for name, store in graph.stores.items():
            if isinstance(store.operation, Insert):
                tables[name] = device.make_table(store.struct, store.operation.capacity)
        cells = make_cells(algorithm, graph, seed)
        self.cell_layout = CellLayout(cells)
        programs = Programs(graph, self.cell_layout)
        stages = graph.where(domain="collect", kind="stage")
        self.before = [node for node in stages if node.index < self.step_node.index]
        self.after = [node for node in stages if node.index > self.step_node.index]
        handed = {name: store.fill.inputs[0] for name, store in graph.stores.items()}
        taken = [ref for ref in jax.tree.leaves(handed) if ref.node in {node.id for node in self.before}]
        self.taken = list(dict.fromkeys([*jax.tree.leaves(self.step_node.inputs), *taken, *self._seen()]))
        """The outputs of the acting stages that are needed: the action, and what later nodes take."""
        self.act = programs.reader(self.before, self.taken)
        self.finish = programs.reader(self.after, handed)
        self.modules = programs.modules
        self.learning = [[node for node in domain.nodes if node.kind == "stage"] for domain in graph.domains]
        self.learn = [programs.one_pass(nodes) for nodes in self.learning]
        self.report = programs.report
        self.watch = Watch(graph, options.on_divergence)
        keys = [jax.random.wrap_key_data(jnp.asarray(base[self.step_node.index])) for base in held]
        if self.shares == 1:
            state, obs = jax.jit(env.reset)(keys[0])
        else:
            state, obs = jax.jit(jax.vmap(env.reset))(jnp.stack(keys))
            tables = jax.tree.map(lambda leaf: jnp.stack([leaf] * self.shares), tables)
        self.carry = Carry(self.cell_layout.flat(cells), state, obs, tables)
        self.mesh = mesh_of(self.shares)
        self.cycle = jax.jit(self._all, static_argnums=(3, 4), donate_argnums=0)

    def _seen(self) -> list[Any]:
        """Outputs of nodes before the step that nodes after it take."""
        acting = {node.id for node in self.before}
        return [ref for node in self.after for ref in node.sources if ref.node in acting]

    @property
    def numbers(self) -> list[int]:
        """Learning passes so far, of each domain."""
        return self.progress.domains(len(self.plan.graph.domains))

    def advance(self) -> None:
        passes, learned = self.due()
        began = PassRng(self.bases, np.uint32(self.progress.passes))
        learning = tuple(PassRng(self.bases, np.uint32(number)) for number in self.numbers)
        self.carry, finished, reports = self.cycle(self.carry, began, learning, passes, learned)
        self.take(passes, learned, finished, reports)

    def take(self, passes: int, learned: Counts, finished: Finished, reports: tuple[Report, ...]) -> None:
        """Record what a cycle has done."""
        progress, numbers = self.progress, self.numbers
        ran = [domain for domain in self.plan.graph.domains if learned[domain.index]]
        for domain, report in zip(ran, reports, strict=True):
            self.watch.take(self.learning[domain.index], report, numbers[domain.index])
            count = learned[domain.index]
            progress.count(domain.index, count, count * domain.frames)
        progress.passes += passes
        progress.env_steps += passes * self.plan.graph.collected
        if finished is not None:
            done = np.asarray(finished.done)
            rewards, lengths = np.asarray(finished.reward)[done], np.asarray(finished.length)[done]
            progress.episodes += [Episode(float(r), int(n)) for r, n in zip(rewards, lengths, strict=True)]
        self.watch.look(progress)

    def due(self) -> tuple[int, Counts]:
        """Collecting passes of the next cycle, and learning passes of each domain."""
        progress, domains, numbers = self.progress, self.plan.graph.domains, self.numbers
        begins = min(domain.begins for domain in domains)
        if progress.passes < begins:
            return begins - progress.passes, (0,) * len(domains)
        wanted = [number + repeat for number, repeat in zip(numbers, self.repeats, strict=True)]
        most = min(domain.needed(number) for domain, number in zip(domains, wanted, strict=True))
        passes = max(0, most - progress.passes)
        allowed = [domain.due(progress.passes + passes) for domain in domains]
        ready = zip(allowed, wanted, self.repeats, strict=True)
        return passes, tuple(repeat if due >= number else 0 for due, number, repeat in ready)

    def _all(self, carry: Carry, began: PassRng, learning: tuple[PassRng, ...], passes: int, learned: Counts) -> Any:
        """A cycle of every replica."""
        cycle = partial(self.one_cycle, passes=passes, learned=learned)
        if self.shares == 1:
            return cycle(carry, began, learning)
        common: Any = Carry(cells=None, env=0, obs=0, tables=0)  # type: ignore[arg-type]
        own: Any = PassRng(0, None)
        axes = (common, own, tuple(own for _ in learning))
        return over_replicas(averaging(cycle), self.shares, axes, (common, 0, None), self.mesh)(carry, began, learning)

    def one_cycle(
        self, carry: Carry, began: PassRng, learning: tuple[PassRng, ...], passes: int, learned: Counts
    ) -> tuple[Carry, Any, tuple[Report, ...]]:
        handed: Handed = {}
        if len(carry.tables) == len(self.graph.stores):
            carry, finished = jax.lax.scan(
                lambda carry, number: self._pass(carry, began._replace(number=number))[::2],
                carry,
                consecutive(began, passes),
            )
        elif passes:
            carry, handed, finished = self._pass(carry, began)  # one pass: its trajectory is learned from at once
        else:
            finished = None
        reports = []
        for domain, rng, count in zip(self.graph.domains, learning, learned, strict=True):
            if count:
                carry, report = self._learn(carry, domain, rng, count, handed)
                reports.append(report)
        return carry, finished, tuple(reports)

    def _learn(self, carry: Carry, domain: Domain, rng: PassRng, count: int, handed: Handed) -> tuple[Carry, Report]:
        """`count` learning passes of a domain."""
        nodes, learn = self.learning[domain.index], self.learn[domain.index]

        def one(cells: list[Array], rng: PassRng) -> tuple[list[Array], Any]:
            values: Values = {}
            for node in domain.sources:
                how = node.operation
                if isinstance(how, Sample):
                    table = carry.tables[node.store]
                    given = device.sample(table, node_key(node, rng), how.size, how.gamma, how.steps)
                else:
                    given = handed[node.store]
                values[node.id] = jax.tree.leaves(given)
            cells, (reported, _) = learn(cells, values, rng)
            return cells, reported

        if domain.fused:
            cells, reported = jax.lax.scan(
                lambda cells, number: one(cells, rng._replace(number=number)), carry.cells, consecutive(rng, count)
            )
        else:
            cells, reported = one(carry.cells, rng)
            reported = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], reported)
        return carry._replace(cells=cells), self.report(nodes, cells, reported)

    def _step(self, first: PassRng, carry: Carry, number: Array) -> tuple[Carry, tuple[Values, Finished]]:
        rng = first._replace(number=number)
        values: Values = {"env.observe": jax.tree.leaves(carry.obs)}
        found = self.act(self.modules(self.before, carry.cells), values, rng)
        for ref, leaf in zip(self.taken, found, strict=True):
            if ref.node != "env.observe":
                width = len(jax.tree.leaves(self.graph.by_id[ref.node].output))
                values.setdefault(ref.node, [None] * width)[ref.leaf] = leaf
        state, step, finished = self.env.step(carry.env, found[0], node_key(self.step_node, rng))
        led_to = [step.reward, step.terminated, step.truncated, *jax.tree.leaves(step.next_obs)]
        return carry._replace(env=state, obs=step.obs), ({**values, self.step_node.id: led_to}, finished)

    def _pass(self, carry: Carry, rng: PassRng) -> tuple[Carry, Handed, Finished]:
        """One collecting pass; returns what it puts into rollout stores."""
        if self.graph.unrolled:
            steps = self.step_node.times
            first = rng._replace(number=rng.number * np.uint32(steps))
            carry, (values, finished) = jax.lax.scan(partial(self._step, first), carry, consecutive(first, steps))
        else:
            carry, (values, finished) = self._step(rng, carry, rng.number)
        handed: Handed = dict(self.finish(self.modules(self.after, carry.cells), values, rng))
        tables = dict(carry.tables)
        for name, store in self.graph.stores.items():
            if store.lead == 2 and not self.graph.unrolled:
                handed[name] = jax.tree.map(lambda leaf: leaf[None], handed[name])
            if name in tables:
                rows: Transition = handed.pop(name)
                tables[name] = device.insert(tables[name], rows)
        return carry._replace(tables=tables), handed, finished

    @property
    def repeat(self) -> int:
        return max(self.repeats)

    def cells(self) -> dict[str, Cell]:
        return self.cell_layout.cells(self.carry.cells)

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        same(self.carry.cells)
        named = self.carry._asdict() | {"cells": self.cell_layout.arrays(self.carry.cells)}
        return named, self.progress.counters()

    def restore(self, arrays: dict[str, Any], values: dict[str, Any]) -> None:
        held = jax.tree.map(jnp.asarray, arrays)
        self.carry = Carry(**held)._replace(cells=jax.tree.leaves(held["cells"]))
        self.progress = Progress(**values)

    def close(self) -> None:
        """Nothing to free."""
