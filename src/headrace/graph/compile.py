"""Turning groups of pure nodes into functions, and those into XLA programs.

Every function here takes and returns arrays only: what a cell holds besides (activation names,
optimisers) is static and closed over. Random keys follow from (seed, node, pass, replica), never from
the order of arrival.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from headrace.core.cells import Cell
from headrace.graph import Fragment, Graph, Node
from headrace.graph.ir import Ref
from headrace.graph.reports import SAT_OUT, Report, cells_state, state_of
from headrace.graph.trace import cells_of
from headrace.types import Array, Tree

T = TypeVar("T")
Values = dict[str, list[Any]]
"""What each node yielded, as a list of arrays."""


class Ticket(NamedTuple):
    """What the random keys of a pass follow from."""

    bases: Array
    """uint32[nodes, 2]: a key for each node of the graph, from (seed, node, replica)."""
    number: Array
    """Which pass it is."""


def bases(graph: Graph, seed: int, replica: int) -> NDArray[np.uint32]:
    """The keys that a replica's tickets begin with."""
    names = [f"{seed}/{node.id}/{replica}".encode() for node in (*graph.nodes, *graph.play.nodes)]
    sums = b"".join(hashlib.blake2b(name, digest_size=8).digest() for name in names)
    return np.frombuffer(sums, np.uint32).reshape(-1, 2).copy()


def consecutive(first: Ticket, count: int) -> Array:
    """The numbers of `count` passes in a row."""
    return first.number + jnp.arange(count, dtype=jnp.uint32)


def node_key(node: Node, ticket: Ticket) -> Array:
    """The random key of a node in a pass of a replica."""
    return jax.random.fold_in(jax.random.wrap_key_data(ticket.bases[node.index]), ticket.number)


def draws(node: Node, ticket: Ticket) -> np.random.Generator:
    """The random numbers of a node on the host, where a store is sampled there."""
    base = ticket.bases[node.index].view(np.uint64)[0]
    return np.random.Generator(np.random.Philox(key=[base, int(ticket.number)]))


def stages(graph: Graph, fragment: Fragment) -> list[Node]:
    """The learning stages of a fragment, in the loop's order."""
    return [node for node in graph.where(domain="learn", kind="stage") if node.id in fragment.nodes]


def share_of(graph: Graph, replicas: int) -> Tree:
    """What one of so many replicas hands to the store."""
    axis = graph.env_axis

    def share(leaf: Any) -> jax.ShapeDtypeStruct:
        shape = list(leaf.shape)
        shape[axis] //= replicas
        return jax.ShapeDtypeStruct(tuple(shape), leaf.dtype)

    return jax.tree.map(share, graph.stored)


def resolve(tree: Tree, values: Values) -> Tree:
    """A tree of references with their values."""
    return jax.tree.map(lambda ref: values[ref.node][ref.leaf] if isinstance(ref, Ref) else ref, tree)


def shared(graph: Graph, what: Any, make: Callable[[], T]) -> T:
    """A program of a graph: the one that another run has made already, where there is one."""
    if what not in graph.compiled:
        graph.compiled[what] = make()
    found: T = graph.compiled[what]
    return found


def make_cells(algorithm: Any, graph: Graph, seed: int) -> dict[str, Cell]:
    """The cells at the start of a run."""

    def flat(key: Array) -> list[Array]:
        return jax.tree.leaves(eqx.filter(dict(algorithm.cells(graph.spec, key)), eqx.is_array))

    # Not by eqx.filter_jit, which keeps every function that it was ever given, and its program.
    made = shared(graph, "cells", lambda: jax.jit(flat))(jax.random.key(seed))
    cells = Shelf(cell_shapes(algorithm, graph)).cells(made)
    # Two cells that start from one module (critic and target) must not share buffers: each is donated. And a cell
    # must not change its type when it is first written, as weakly typed scalars do: all would be compiled twice.
    apart: dict[str, Cell] = jax.tree.map(
        lambda leaf: jnp.array(leaf, leaf.dtype, copy=True) if eqx.is_array(leaf) else leaf, cells
    )
    return apart


def cell_shapes(algorithm: Any, graph: Graph) -> dict[str, Cell]:
    """The same without their numbers: cheap, where those come from elsewhere."""
    return shared(graph, "shapes", lambda: cells_of(algorithm, graph.spec))


def held(leaf: Any) -> bool:
    """Whether a part of a cell is an array, or stands for one."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


class Shelf:
    """Cells as a flat list of arrays: the form in which programs take and give them.

    Modules are trees of Python objects; taking them apart at every call would cost as much as a small network.
    """

    def __init__(self, cells: Mapping[str, Cell]):
        arrays, self.static = eqx.partition(dict(cells), held)
        leaves, self.tree = jax.tree.flatten(arrays)
        places = jax.tree.unflatten(self.tree, range(len(leaves)))
        self.modules = {name: tuple(jax.tree.leaves(cell.module)) for name, cell in places.items()}
        """Where the arrays that readers of a cell see stand in the list."""
        self.places = {name: tuple(jax.tree.leaves(cell)) for name, cell in places.items()}
        """Where all arrays of a cell stand, those of its optimiser among them."""

    def flat(self, cells: Mapping[str, Cell]) -> list[Array]:
        """The arrays of cells such as these."""
        return jax.tree.leaves(eqx.filter(dict(cells), held))

    def cells(self, flat: Sequence[Array]) -> dict[str, Cell]:
        """The cells that a list of arrays stands for."""
        whole: dict[str, Cell] = eqx.combine(jax.tree.unflatten(self.tree, flat), self.static)
        return whole

    def arrays(self, flat: Sequence[Array]) -> dict[str, Any]:
        """The same without what is static: what a checkpoint keeps, by name."""
        tree: dict[str, Any] = jax.tree.unflatten(self.tree, flat)
        return tree


class Programs:
    """The compiled functions of one graph."""

    def __init__(self, graph: Graph, shelf: Shelf):
        self.graph = graph
        self.shelf = shelf

    def modules(self, nodes: Sequence[Node], flat: Sequence[Array]) -> tuple[Array, ...]:
        """The arrays that these nodes read, in the order that `reader` expects."""
        return tuple(flat[i] for name in _reads(nodes) for i in self.shelf.modules[name])

    def reader(self, nodes: Sequence[Node], wanted: Tree) -> Callable[..., Tree]:
        """`f(modules, values, ticket)`: run nodes that write nothing and return what `wanted` refers to."""
        names = _reads(nodes)
        static = [self.shelf.static[name].module for name in names]
        tree = jax.tree.structure([self.graph.cells[name] for name in names])

        def read(modules: tuple[Array, ...], values: Values, ticket: Ticket) -> Tree:
            whole = dict(zip(names, eqx.combine(jax.tree.unflatten(tree, modules), static), strict=True))
            values = dict(values)
            for node in nodes:
                arguments = _arguments(node, values, ticket)
                arguments |= {bound.argument: whole[bound.cell] for bound in node.reads}
                values[node.id] = jax.tree.leaves(node.function(**arguments))
            return resolve(wanted, values)

        return read

    def one_pass(self, nodes: Sequence[Node]) -> Callable[..., tuple[list[Array], tuple[Tree, Array]]]:
        """`f(flat, values, ticket)`: run one learning pass; returns the changed cells, the metrics of each stage and
        what became of it."""

        def learn(flat: list[Array], values: Values, ticket: Ticket) -> tuple[list[Array], tuple[Tree, Array]]:
            whole: dict[str, Any] = self.shelf.cells(flat)
            values = dict(values)
            metrics: dict[str, Tree] = {}
            states: list[Array] = []
            for node in nodes:
                whole, (output, state) = _maybe(node, whole, values, ticket)
                values[node.id] = jax.tree.leaves(output)
                if node.writes:
                    metrics[node.id] = output
                    states.append(state)
            return self.shelf.flat(whole), (metrics, jnp.stack(states))

        return learn

    def learner(self, nodes: Sequence[Node]) -> Callable[..., tuple[list[Array], Report]]:
        """`f(flat, data, ticket)`: a program that learns; returns the changed cells and what its stages report.

        The data is what the store gave: the values of one pass, or batches along a first axis with a pass for each.
        """
        one = self.one_pass(nodes)
        source = self.graph.source

        def learn(flat: list[Array], values: Values, ticket: Ticket) -> tuple[list[Array], Report]:
            flat, reported = one(flat, values, ticket)
            return flat, self.report(nodes, flat, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], reported))

        def learn_all(flat: list[Array], batches: Tree, ticket: Ticket) -> tuple[list[Array], Report]:
            count = jax.tree.leaves(batches)[0].shape[0]

            def each(flat: list[Array], now: tuple[Tree, Array]) -> Any:
                return one(flat, {source.id: jax.tree.leaves(now[0])}, ticket._replace(number=now[1]))

            flat, reported = jax.lax.scan(each, flat, (batches, consecutive(ticket, count)))
            return flat, self.report(nodes, flat, reported)

        return learn if self.graph.on_policy else learn_all

    def report(self, nodes: Sequence[Node], flat: Sequence[Array], passes: tuple[Tree, Array]) -> Report:
        """What some passes reported, and the soundness of the cells that they led to: looked at once for all passes,
        because to read every weight at each would cost a fiftieth of the learning."""
        modules = {name: [flat[i] for i in places] for name, places in self.shelf.modules.items()}
        return Report(*passes, cells_state(nodes, modules))


def _reads(nodes: Sequence[Node]) -> list[str]:
    return sorted({bound.cell for node in nodes for bound in node.reads})


def _arguments(node: Node, values: Values, ticket: Ticket) -> dict[str, Any]:
    data = dict(zip(node.function.signature.data, resolve(node.inputs, values), strict=True))
    return data | ({"key": node_key(node, ticket)} if node.function.signature.wants_key else {})


def _maybe(node: Node, cells: dict[str, Any], values: Values, ticket: Ticket) -> tuple[dict[str, Any], Tree]:
    """Run a node in the passes it is meant for; beside what it yields, what became of it."""

    def run(cells: dict[str, Any]) -> tuple[dict[str, Any], Tree]:
        changed, output = run_node(node, cells, values, ticket)
        return changed, (output if node.every == 1 else as_metrics(output), state_of(node, output))

    return sometimes(node, cells, ticket, run, lambda cells: (cells, (no_metrics(node), jnp.float32(SAT_OUT))))


def sometimes(
    node: Node,
    cells: dict[str, Any],
    ticket: Ticket,
    run: Callable[[dict[str, Any]], tuple[dict[str, Any], Tree]],
    skip: Callable[[dict[str, Any]], tuple[dict[str, Any], Tree]],
) -> tuple[dict[str, Any], Tree]:
    """What `run(cells)` gives in the passes that a node is meant for, and `skip(cells)` in the others."""
    if node.every == 1:
        return run(cells)
    arrays, static = eqx.partition({bound.cell: cells[bound.cell] for bound in node.writes}, eqx.is_array)

    def branch(function: Callable[[dict[str, Any]], tuple[dict[str, Any], Tree]]) -> Callable[..., Any]:
        def with_arrays(arrays: dict[str, Any]) -> tuple[dict[str, Any], Tree]:
            changed, output = function(cells | eqx.combine(arrays, static))
            return eqx.filter({name: changed[name] for name in arrays}, eqx.is_array), output

        return with_arrays

    due = ticket.number % node.every == node.every - 1
    arrays, output = jax.lax.cond(due, branch(run), branch(skip), arrays)
    return cells | eqx.combine(arrays, static), output


def as_metrics(output: Tree) -> Tree:
    """What a stage measured, as numbers of one kind."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), output)


def no_metrics(node: Node) -> Tree:
    """What stands for a stage's output in a pass that it sits out: nobody may learn from it."""
    return jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan, jnp.float32), node.output)


def run_node(node: Node, cells: dict[str, Any], values: Values, ticket: Ticket) -> tuple[dict[str, Any], Tree]:
    """The cells after a node, and what it yields."""
    arguments = _arguments(node, values, ticket)
    arguments |= {bound.argument: cells[bound.cell].module for bound in node.reads}
    arguments |= {bound.argument: cells[bound.cell] for bound in node.writes}
    result = node.function(**arguments)
    if not node.writes:
        return cells, result
    written = result[0] if len(node.writes) > 1 else (result[0],)
    return cells | {bound.cell: cell for bound, cell in zip(node.writes, written, strict=True)}, result[1]
