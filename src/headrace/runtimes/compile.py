"""Turning groups of pure nodes into functions, and those into XLA programs.

Every function here takes and returns arrays only: what a cell holds besides (activation names,
optimisers) is static and closed over. Random keys follow from a ticket (seed, pass, replica) and the
node, never from the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from headrace.core.cells import Cell
from headrace.graph import Graph, Node
from headrace.graph.ir import Ref
from headrace.types import Array, Tree

Values = dict[str, list[Any]]
"""What each node yielded, as a list of arrays."""

Ticket = Any
"""uint32[3]: seed, pass, replica."""


def ticket(seed: int, number: int, replica: int) -> NDArray[np.uint32]:
    """The ticket of a pass."""
    return np.array([seed & 0xFFFFFFFF, number & 0xFFFFFFFF, replica], np.uint32)


def consecutive(first: Ticket, count: int) -> Ticket:
    """The tickets of `count` passes in a row."""
    return jnp.broadcast_to(first, (count, 3)).at[:, 1].add(jnp.arange(count, dtype=jnp.uint32))


def node_key(node: Node, ticket: Ticket) -> Array:
    """The random key of a node in a pass of a replica."""
    key = jax.random.fold_in(jax.random.key(ticket[0]), node.number)
    return jax.random.fold_in(jax.random.fold_in(key, ticket[1]), ticket[2])


def resolve(tree: Tree, values: Values) -> Tree:
    """A tree of references with their values."""
    return jax.tree.map(lambda ref: values[ref.node][ref.leaf] if isinstance(ref, Ref) else ref, tree)


def make_cells(algorithm: Any, graph: Graph, seed: int) -> dict[str, Cell]:
    """The cells at the start of a run."""
    cells = eqx.filter_jit(lambda key: dict(algorithm.cells(graph.spec, key)))(jax.random.key(seed))
    # Two cells that start from one module (critic and target) must not share buffers: each is donated.
    apart: dict[str, Cell] = jax.tree.map(
        lambda leaf: jnp.array(leaf, copy=True) if eqx.is_array(leaf) else leaf, cells
    )
    return apart


class Programs:
    """The compiled functions of one graph."""

    def __init__(self, graph: Graph, static: Mapping[str, Cell]):
        self.graph = graph
        self.static = static

    def modules(self, nodes: Sequence[Node], cells: Mapping[str, Cell]) -> tuple[Array, ...]:
        """The arrays of the cells that these nodes read, in the order that `reader` expects."""
        return tuple(jax.tree.leaves([eqx.filter(cells[name].module, eqx.is_array) for name in _reads(nodes)]))

    def reader(self, nodes: Sequence[Node], wanted: Tree) -> Callable[..., Tree]:
        """`f(modules, values, ticket)`: run nodes that write nothing and return what `wanted` refers to.

        Modules come as bare arrays: it is called at every step, and flattening modules there would cost
        as much as the network itself.
        """
        names = _reads(nodes)
        static = [self.static[name].module for name in names]
        _, tree = jax.tree.flatten([self.graph.cells[name] for name in names])

        def read(modules: tuple[Array, ...], values: Values, ticket: Ticket) -> Tree:
            whole = dict(zip(names, eqx.combine(jax.tree.unflatten(tree, modules), static), strict=True))
            values = dict(values)
            for node in nodes:
                arguments = _arguments(node, values, ticket)
                arguments |= {bound.argument: whole[bound.cell] for bound in node.reads}
                values[node.id] = jax.tree.leaves(node.function(**arguments))
            return resolve(wanted, values)

        return read

    def learner(self, nodes: Sequence[Node]) -> Callable[..., tuple[dict[str, Any], dict[str, Array]]]:
        """`f(cells, values, ticket)`: run one learning pass; returns the changed cells and the metrics."""

        def learn(cells: dict[str, Any], values: Values, ticket: Ticket) -> tuple[dict[str, Any], dict[str, Array]]:
            whole = eqx.combine(cells, dict(self.static))
            values = dict(values)
            metrics: dict[str, Array] = {}
            for node in nodes:
                whole, output = _maybe(node, whole, values, ticket)
                values[node.id] = jax.tree.leaves(output)
                if node.writes:
                    metrics |= output
            return eqx.filter(whole, eqx.is_array), metrics

        return learn

    def repeated(self, learn: Callable[..., Any], source: Node) -> Callable[..., Any]:
        """`f(cells, batches, ticket)`: one learning pass for each batch along the first axis, as one scan."""

        def learn_all(cells: dict[str, Any], batches: Tree, ticket: Ticket) -> Any:
            count = jax.tree.leaves(batches)[0].shape[0]

            def one(cells: dict[str, Any], now: tuple[Tree, Ticket]) -> Any:
                return learn(cells, {source.id: jax.tree.leaves(now[0])}, now[1])

            return jax.lax.scan(one, cells, (batches, consecutive(ticket, count)))

        return learn_all


def _reads(nodes: Sequence[Node]) -> list[str]:
    return sorted({bound.cell for node in nodes for bound in node.reads})


def _arguments(node: Node, values: Values, ticket: Ticket) -> dict[str, Any]:
    data = dict(zip(node.function.signature.data, resolve(node.inputs, values), strict=True))
    return data | ({"key": node_key(node, ticket)} if node.function.signature.wants_key else {})


def _maybe(node: Node, cells: dict[str, Any], values: Values, ticket: Ticket) -> tuple[dict[str, Any], Tree]:
    """Run a node in the passes it is meant for; in the others its metrics are not a number."""
    if node.every == 1:
        return _apply(node, cells, values, ticket)
    arrays, static = eqx.partition({bound.cell: cells[bound.cell] for bound in node.writes}, eqx.is_array)

    def run(arrays: dict[str, Any]) -> tuple[dict[str, Any], Tree]:
        changed, output = _apply(node, cells | eqx.combine(arrays, static), values, ticket)
        return eqx.filter({bound.cell: changed[bound.cell] for bound in node.writes}, eqx.is_array), output

    def skip(arrays: dict[str, Any]) -> tuple[dict[str, Any], Tree]:
        return arrays, jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan, leaf.dtype), node.output)

    arrays, output = jax.lax.cond(ticket[1] % node.every == node.every - 1, run, skip, arrays)
    return cells | eqx.combine(arrays, static), output


def _apply(node: Node, cells: dict[str, Any], values: Values, ticket: Ticket) -> tuple[dict[str, Any], Tree]:
    arguments = _arguments(node, values, ticket)
    arguments |= {bound.argument: cells[bound.cell].module for bound in node.reads}
    arguments |= {bound.argument: cells[bound.cell] for bound in node.writes}
    result = node.function(**arguments)
    if not node.writes:
        return cells, result
    written = result[0] if len(node.writes) > 1 else (result[0],)
    return cells | {bound.cell: cell for bound, cell in zip(node.writes, written, strict=True)}, result[1]
