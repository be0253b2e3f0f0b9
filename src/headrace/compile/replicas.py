"""Data-parallel replicas of a whole loop: the graph of one replica, and programs over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from headrace.compile.cells import CellLayout
from headrace.compile.programs import Programs, as_metrics
from headrace.compile.rng import PassRng, bases
from headrace.core.cells import Cell
from headrace.core.replicas import Replicas, averaged, reducing
from headrace.errors import PlanError
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
    """The mean over replicas, with one message per dtype: a message costs as much as a thousand numbers."""
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
    """`function` mapped over replicas, which average gradients and statistics.

    `inputs` and `outputs` say, as for `vmap`, what has a leading axis of replicas (0) and what all have in common
    (None). Over a mesh each replica has a device; without one they are a batch on one device, and compiling it proves
    that common outputs are the same for all.
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
    """The program of one replica, with its metrics, the last value it returns, averaged over all replicas."""

    def with_means(*arguments: Any) -> Any:
        *rest, metrics = function(*arguments)
        return *rest, averaged(as_metrics(metrics))

    return with_means


def learning_together(program: Callable[..., Any], number: int, mesh: Any = None) -> Any:
    """A learning program `f(flat, values, rng)` over replicas, which have the cells and the pass number in common."""
    return over_replicas(averaging(program), number, (None, 0, PassRng(0, None)), None, mesh)


def prove(plan: Plan, part: Graph, cells: dict[str, Cell]) -> None:
    """Refuse a loop whose replicas would not write the same cells."""
    layout = CellLayout(cells)
    rng = PassRng(np.stack([bases(part, 0, 0)] * plan.shares), np.uint32(0))
    for domain in part.domains:
        learn = Programs(part, layout).one_pass([node for node in domain.nodes if node.kind == "stage"])
        values = {node.id: jax.tree.leaves(node.output) for node in domain.sources}
        data = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((plan.shares, *leaf.shape), leaf.dtype), values)
        try:
            jax.eval_shape(learning_together(learn, plan.shares), layout.flat(cells), data, rng)
        except ValueError as error:
            if "out_axes" not in str(error):
                raise
            raise PlanError(
                f"policy '{plan.policy}' has replicas learn as one, but a stage of {plan.graph.algorithm} writes a "
                "cell from what one replica alone has seen; average that with headrace.core.averaged, or use another "
                "policy."
            ) from None
