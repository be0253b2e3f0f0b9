"""Collecting with a host environment: observe, act, step, again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.envs import HostEnv
from headrace.graph import Graph, Node
from headrace.graph.compile import Programs, Ticket, Values, bases, shared
from headrace.graph.ir import Ref
from headrace.types import Array

Rows = list[Any]
"""The arrays of a transition or trajectory, in the order of its tree: what is handed to the store."""


class Collector:
    """One replica of the collecting domain."""

    def __init__(
        self,
        graph: Graph,
        programs: Programs,
        env: HostEnv,
        seed: int,
        replica: int,
        jit: Callable[..., Any],
        stepping: Callable[[], None] | None = None,
    ):
        """`stepping` is called before every step of the environments."""
        self.env = env
        self.stepping = stepping
        self.seeds = bases(graph, seed, replica)
        self.bases = jnp.asarray(self.seeds)  # on the device, not sent there at every step
        self.step_node = graph.only("env.step")
        nodes = graph.where(domain="collect", kind="stage")
        self.before = [node for node in nodes if node.index < self.step_node.index]
        self.after = [node for node in nodes if node.index > self.step_node.index]
        self.modules = programs.modules
        chosen = jax.tree.leaves(self.step_node.inputs)
        act = programs.reader(self.before, chosen)
        self.act = shared(graph, ("acting", jit), lambda: jit(act))
        wanted = jax.tree.leaves(graph.sink.inputs[0])
        yielded = [Ref(self.step_node.id, i) for i in range(len(jax.tree.leaves(self.step_node.output)))]
        finish = programs.reader(self.after, wanted)
        self.finish = shared(graph, ("finishing", jit), lambda: jit(finish)) if wanted != yielded else None
        self.buffers = [_room(self.step_node, env) for _ in range(2)] if graph.unrolled else []
        self.one_step = graph.on_policy and not graph.unrolled  # to be handed over as a trajectory
        self.restart(0)

    def restart(self, number: int) -> None:
        """Start new episodes before pass `number`, others than before any other pass."""
        seed = np.random.SeedSequence([*self.seeds[self.step_node.index].tolist(), number]).generate_state(1)[0]
        self.observed: Rows = jax.tree.leaves(self.env.reset(int(seed)))

    def collect(self, flat: Sequence[Array], number: int) -> Rows:
        """One pass with these cells: what it hands to the store."""
        return collect_in_turn([self], flat, number)[0]

    def begin(self, flat: Sequence[Array], number: int) -> None:
        """Begin a pass."""
        self.flat, self.number = flat, number
        self.acting = self.modules(self.before, flat)

    def send(self, i: int) -> None:
        """Act, and begin step `i` of the pass."""
        ticket = Ticket(self.bases, np.uint32(self.number * self.step_node.times + i))
        chosen = self.act(self.acting, {"env.observe": self.observed}, ticket)
        self.action, *self.extra = [np.asarray(leaf) for leaf in chosen]
        if self.stepping is not None:
            self.stepping()
        self.env.send(self.action)

    def receive(self, i: int) -> None:
        """Keep what step `i` led to."""
        observed, step = self.observed, self.env.receive()
        led_to = _leaves(step.next_obs)
        self.observed = led_to if step.obs is step.next_obs else _leaves(step.obs)
        rows = [*observed, self.action, step.reward, step.terminated, step.truncated, *led_to, *self.extra]
        if not self.buffers:
            self.rows = rows
            return
        self.rows = self.buffers[self.number % 2]
        for held, row in zip(self.rows, rows, strict=True):
            held[i] = row

    def end(self) -> Rows:
        """What the pass hands to the store."""
        rows = self.rows
        if self.finish is not None:
            values: Values = {self.step_node.id: self.rows}
            ticket = Ticket(self.bases, np.uint32(self.number))
            rows = [np.asarray(leaf) for leaf in self.finish(self.modules(self.after, self.flat), values, ticket)]
        return [np.asarray(row)[None] for row in rows] if self.one_step else rows


def collect_in_turn(collectors: Sequence[Collector], flat: Sequence[Array], number: int) -> list[Rows]:
    """One pass of each. While the environments of one step elsewhere, another acts."""
    for collector in collectors:
        collector.begin(flat, number)
    steps = collectors[0].step_node.times
    for i in range(steps):
        for collector in collectors:
            if i:
                collector.receive(i - 1)
            collector.send(i)
    for collector in collectors:
        collector.receive(steps - 1)
    return [collector.end() for collector in collectors]


def _leaves(obs: Any) -> Rows:
    """The arrays of an observation; most are one array, and this is called at every step."""
    return [obs] if isinstance(obs, np.ndarray) else jax.tree.leaves(obs)


def _room(step: Node, env: HostEnv) -> Rows:
    """Buffers for the trajectory of one replica."""
    lead = (step.times, env.spec.num_envs)
    return [np.zeros((*lead, *leaf.shape[1:]), leaf.dtype) for leaf in jax.tree.leaves(step.output)]
