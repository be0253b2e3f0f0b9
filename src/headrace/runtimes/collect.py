"""Collecting with a host environment: observe, act, step, again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from headrace.envs import HostEnv
from headrace.graph import Graph, Node
from headrace.runtimes.compile import Programs, Values, ticket
from headrace.types import Array, Transition, Tree, empty_like


class Collector:
    """One replica of the collecting domain."""

    def __init__(
        self, graph: Graph, programs: Programs, env: HostEnv, seed: int, replica: int, jit: Callable[..., Any]
    ):
        self.env = env
        self.seed = seed
        self.replica = replica
        self.step_node = graph.only("env.step")
        self.sink = graph.sink
        nodes = graph.where(domain="collect", kind="stage")
        cut = graph.nodes.index(self.step_node)
        self.before = [node for node in nodes if graph.nodes.index(node) < cut]
        self.after = [node for node in nodes if graph.nodes.index(node) > cut]
        self.read = programs.modules
        self.act = jit(programs.reader(self.before, self.step_node.inputs))
        self.finish = jit(programs.reader(self.after, self.sink.inputs[0])) if self.after else None
        steps = self.step_node.times
        self.buffers = [_trajectory(self.step_node, env, steps) for _ in range(2)] if steps > 1 else []
        derived = np.random.SeedSequence((seed, self.step_node.number, replica)).generate_state(1)[0]
        self.obs = env.reset(int(derived))

    def collect(self, cells: dict[str, Any], number: int) -> Transition:
        """One pass: what it hands to the store."""
        acting = self.read(self.before, cells)
        if not self.buffers:
            produced = self._step(acting, number)
        else:
            produced = self.buffers[number % 2]
            for i in range(self.step_node.times):
                step = self._step(acting, number * self.step_node.times + i)
                for held, leaf in zip(jax.tree.leaves(produced), jax.tree.leaves(step), strict=True):
                    held[i] = leaf
        if self.finish is None:
            return produced
        values: Values = {self.step_node.id: jax.tree.leaves(produced)}
        finished = self.finish(self.read(self.after, cells), values, ticket(self.seed, number, self.replica))
        return jax.tree.map(np.asarray, finished)  # type: ignore[no-any-return]

    def _step(self, acting: tuple[Array, ...], number: int) -> Transition:
        obs = self.obs
        values: Values = {"env.observe": jax.tree.leaves(obs)}
        chosen = self.act(acting, values, ticket(self.seed, number, self.replica))
        action, *extra = jax.tree.map(np.asarray, chosen)
        step = self.env.step(action)
        self.obs = step.obs
        return Transition(
            obs, action, step.reward, step.terminated, step.truncated, step.next_obs, extra[0] if extra else {}
        )


def _trajectory(step: Node, env: HostEnv, steps: int) -> Tree:
    """Room for the trajectory of one replica."""
    envs = env.spec.num_envs
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((envs, *leaf.shape[1:]), leaf.dtype), step.output)
    return empty_like(row, steps)
