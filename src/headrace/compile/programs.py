"""Turning groups of pure nodes into functions, and those into XLA programs.

Every function here takes and returns arrays only: the static parts of a cell (activation names, optimisers) are
closed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from headrace.compile.cells import CellLayout
from headrace.compile.reports import SKIPPED, Report, cells_state, state_of
from headrace.compile.rng import PassRng, consecutive, node_key
from headrace.core.symbols import Ref
from headrace.graph import Graph, Node
from headrace.types import Array, Tree

Values = dict[str, list[Any]]
"""The output of each node, as a list of arrays."""


def resolve(tree: Tree, values: Values) -> Tree:
    """Replace the references in a tree by their values."""
    return jax.tree.map(lambda ref: values[ref.node][ref.leaf] if isinstance(ref, Ref) else ref, tree)


class Programs:
    """The compiled functions of one graph."""

    def __init__(self, graph: Graph, cell_layout: CellLayout):
        self.graph = graph
        self.cell_layout = cell_layout

    def places(self, nodes: Sequence[Node]) -> list[int]:
        """Indices in the flat list of all cells of the arrays that these nodes read, in the order `reader` expects."""
        return [i for name in _reads(nodes) for i in self.cell_layout.modules[name]]

    def modules(self, nodes: Sequence[Node], flat: Sequence[Array]) -> tuple[Array, ...]:
        """The arrays that these nodes read."""
        return tuple(flat[i] for i in self.places(nodes))

    def reader(self, nodes: Sequence[Node], wanted: Tree) -> Callable[..., Tree]:
        """`f(modules, values, rng)`: run nodes that write nothing and return what `wanted` refers to."""
        names = _reads(nodes)
        static = [self.cell_layout.static[name].module for name in names]
        tree = jax.tree.structure([self.graph.cells[name] for name in names])

        def read(modules: tuple[Array, ...], values: Values, rng: PassRng) -> Tree:
            whole = dict(zip(names, eqx.combine(jax.tree.unflatten(tree, modules), static), strict=True))
            values = dict(values)
            for node in nodes:
                arguments = _arguments(node, values, rng)
                arguments |= {bound.argument: whole[bound.cell] for bound in node.reads}
                values[node.id] = jax.tree.leaves(node.function(**arguments))
            return resolve(wanted, values)

        return read

    def one_pass(self, nodes: Sequence[Node], wanted: Sequence[Ref] = ()) -> Callable[..., tuple[list[Array], Any]]:
        """`f(flat, values, rng)`: run one learning pass; returns the changed cells, the metrics and state (see
        `Report.state`) of each stage, and what `wanted` refers to."""

        def learn(flat: list[Array], values: Values, rng: PassRng) -> tuple[list[Array], Any]:
            whole: dict[str, Any] = self.cell_layout.cells(flat)
            values = dict(values)
            metrics: dict[str, Tree] = {}
            states: list[Array] = []
            for node in nodes:
                whole, (output, state) = _run_node_if_due(node, whole, values, rng)
                values[node.id] = jax.tree.leaves(output)
                if node.writes:
                    metrics[node.id] = output
                    states.append(state)
            reported = metrics, jnp.stack(states) if states else jnp.zeros(0, jnp.float32)
            return self.cell_layout.flat(whole), (reported, [values[ref.node][ref.leaf] for ref in wanted])

        return learn

    def learner(
        self, nodes: Sequence[Node], fused: bool, wanted: Sequence[Ref] = ()
    ) -> Callable[..., tuple[list[Array], tuple[Report, list[Array]]]]:
        """`f(flat, values, rng)`: a learning program; returns changed cells, its `Report` and what `wanted` refers to.

        The values are the outputs of other nodes, including draws from stores: of one pass, or if `fused` of several,
        along a first axis.
        """
        one = self.one_pass(nodes, wanted)

        def learn(flat: list[Array], values: Values, rng: PassRng) -> Any:
            flat, (reported, yielded) = one(flat, values, rng)
            once = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], reported)
            return flat, (self.report(nodes, flat, once), yielded)

        def learn_all(flat: list[Array], values: Values, rng: PassRng) -> Any:
            count = jax.tree.leaves(values)[0].shape[0]

            def each(flat: list[Array], now: tuple[Values, Array]) -> Any:
                return one(flat, now[0], rng._replace(number=now[1]))

            flat, (reported, yielded) = jax.lax.scan(each, flat, (values, consecutive(rng, count)))
            return flat, (self.report(nodes, flat, reported), yielded)

        return learn_all if fused else learn

    def report(self, nodes: Sequence[Node], flat: Sequence[Array], passes: tuple[Tree, Array]) -> Report:
        """The report of some passes, with whether the resulting cells are finite: checked once for all passes, because
        reading every weight in each would cost a fiftieth of the learning."""
        modules = {name: [flat[i] for i in places] for name, places in self.cell_layout.modules.items()}
        return Report(*passes, cells_state(nodes, modules))


def _reads(nodes: Sequence[Node]) -> list[str]:
    return sorted({bound.cell for node in nodes for bound in node.reads})


def _arguments(node: Node, values: Values, rng: PassRng) -> dict[str, Any]:
    data = dict(zip(node.function.signature.data, resolve(node.inputs, values), strict=True))
    return data | ({"key": node_key(node, rng)} if node.function.signature.wants_key else {})


def _run_node_if_due(node: Node, cells: dict[str, Any], values: Values, rng: PassRng) -> tuple[dict[str, Any], Tree]:
    """Run a node in the passes in which it is due; returns its output and its state (see `Report.state`)."""

    def run(cells: dict[str, Any]) -> tuple[dict[str, Any], Tree]:
        changed, output = run_node(node, cells, values, rng)
        return changed, (output if node.every == 1 else as_metrics(output), state_of(node, output))

    return run_if_due(node, cells, rng, run, lambda cells: (cells, (no_metrics(node), jnp.float32(SKIPPED))))


def run_if_due(
    node: Node,
    cells: dict[str, Any],
    rng: PassRng,
    run: Callable[[dict[str, Any]], tuple[dict[str, Any], Tree]],
    skip: Callable[[dict[str, Any]], tuple[dict[str, Any], Tree]],
) -> tuple[dict[str, Any], Tree]:
    """`run(cells)` in the passes in which a node is due (`every`), and `skip(cells)` in the others."""
    if node.every == 1:
        return run(cells)
    arrays, static = eqx.partition({bound.cell: cells[bound.cell] for bound in node.writes}, eqx.is_array)

    def branch(function: Callable[[dict[str, Any]], tuple[dict[str, Any], Tree]]) -> Callable[..., Any]:
        def with_arrays(arrays: dict[str, Any]) -> tuple[dict[str, Any], Tree]:
            changed, output = function(cells | eqx.combine(arrays, static))
            return eqx.filter({name: changed[name] for name in arrays}, eqx.is_array), output

        return with_arrays

    due = rng.number % node.every == node.every - 1
    arrays, output = jax.lax.cond(due, branch(run), branch(skip), arrays)
    return cells | eqx.combine(arrays, static), output


def as_metrics(output: Tree) -> Tree:
    """The metrics of a stage as float32."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), output)


def no_metrics(node: Node) -> Tree:
    """NaN in place of a stage's output in a pass that it skips."""
    return jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan, jnp.float32), node.output)


def run_node(node: Node, cells: dict[str, Any], values: Values, rng: PassRng) -> tuple[dict[str, Any], Tree]:
    """Run a node; returns the cells after it, and its output."""
    arguments = _arguments(node, values, rng)
    arguments |= {bound.argument: cells[bound.cell].module for bound in node.reads}
    arguments |= {bound.argument: cells[bound.cell] for bound in node.writes}
    result = node.function(**arguments)
    if not node.writes:
        return cells, result
    written = result[0] if len(node.writes) > 1 else (result[0],)
    return cells | {bound.cell: cell for bound, cell in zip(node.writes, written, strict=True)}, result[1]
