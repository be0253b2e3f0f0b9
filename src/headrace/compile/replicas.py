"""Replicas of a whole loop that learn as one: the graph of one of them, and programs over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from headrace.compile.programs import as_metrics
from headrace.core.replicas import Replicas, averaged, reducing
from headrace.graph import Graph, Plan, trace
from headrace.graph.plan import replica_algorithm
from headrace.types import Array, Tree

AXIS = "replicas"


def replica_graph(plan: Plan, algorithm: Any) -> Graph:
    """The graph of one replica of the whole loop: with its share of environments, store and batches."""
    if plan.shares == 1:
        return plan.graph
    small = replica_algorithm(plan, algorithm)
    return trace(small, plan.graph.spec.with_envs(small.config.num_envs))


def _mean(tree: Tree) -> Tree:
    """The mean over replicas, of all arrays of a kind in one message: each costs as much as a thousand numbers."""
    leaves, structure = jax.tree.flatten(tree)
    means: list[Array] = list(leaves)
    for kind in {leaf.dtype for leaf in leaves}:
        places = [i for i, leaf in enumerate(leaves) if leaf.dtype == kind]
        whole = jax.lax.pmean(jnp.concatenate([leaves[i].reshape(-1) for i in places]), AXIS)
        parts = jnp.split(whole, np.cumsum([leaves[i].size for i in places])[:-1])
        for i, part in zip(places, parts, strict=True):
            means[i] = part.reshape(leaves[i].shape)
    return jax.tree.unflatten(structure, means)


def over_replicas(function: Callable[..., Any], number: int, inputs: Any, outputs: Any, mesh: Any = None) -> Any:
    """`function` for replicas that learn as one.

    `inputs` and `outputs` say, as `vmap` has it, what has an axis of replicas in front (0) and what they have in common
    (None). Over a mesh each replica is a device's own; without one they are a batch on one device, and that what they
    have in common is the same for all of them is proved when it is compiled.
    """
    replicas = Replicas(number, _mean)

    def one(*arguments: Any) -> Any:
        with reducing(replicas):
            return function(*arguments)

    if mesh is None:
        return jax.vmap(one, inputs, outputs, axis_name=AXIS)

    def spec(axes: Any) -> Any:
        return jax.tree.map(lambda axis: P() if axis is None else P(AXIS), axes, is_leaf=lambda axis: axis is None)

    def apart(axes: Any, values: Any, change: Callable[[Any], Any]) -> Any:
        def each(axis: Any, part: Any) -> Any:
            return part if axis is None else jax.tree.map(change, part)

        return jax.tree.map(each, axes, values, is_leaf=lambda axis: axis is None)

    def local(*arguments: Any) -> Any:
        result = one(*apart(inputs, arguments, lambda leaf: leaf[0]))
        return apart(outputs, result, lambda leaf: leaf[None])

    return jax.shard_map(local, mesh=mesh, in_specs=spec(inputs), out_specs=spec(outputs), check_vma=False)


def averaging(function: Callable[..., Any]) -> Callable[..., Any]:
    """A program of one replica whose metrics, the last of what it returns, are those of all replicas."""

    def with_means(*arguments: Any) -> Any:
        *rest, metrics = function(*arguments)
        return *rest, averaged(as_metrics(metrics))

    return with_means
