"""Gradients computed in one place and applied in another: the changes of a learning pass as arrays to send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from headrace.compile.cells import CellLayout, cell_shapes
from headrace.compile.programs import Values, as_metrics, no_metrics, run_if_due, run_node
from headrace.compile.reports import SKIPPED, Report, cells_state, reporting, state_of
from headrace.compile.rng import PassRng, bases
from headrace.core.cells import Learned
from headrace.core.replicas import capturing_gradients
from headrace.graph import Graph, Node
from headrace.types import Array, Tree


def gradient(graph: Graph, layout: CellLayout) -> Callable[..., tuple[list[Array], Report]]:
    """`f(flat, values, rng)`: compute the changes of one learning pass; returns them, and its `Report`.

    The change of a learned cell is its gradient and whether there is one; of any other cell, the difference.
    """
    nodes = graph.where(domain="learn", kind="stage")

    def compute(flat: list[Array], values: Values, rng: PassRng) -> tuple[list[Array], Report]:
        return changes(nodes, layout, flat, dict(values), rng)

    return compute


def message(graph: Graph, layout: CellLayout) -> list[Any]:
    """The shapes of the message a loop sends: two flags (has changes, is the last of its pass), then the changes."""
    values = {node.id: jax.tree.leaves(node.output) for domain in graph.domains for node in domain.sources}
    rng = PassRng(bases(graph, 0, 0), np.uint32(0))
    sent, _ = jax.eval_shape(gradient(graph, layout), layout.structs, values, rng)
    return [jax.ShapeDtypeStruct((2,), np.int64), *sent]


def changes(
    nodes: Sequence[Node], layout: CellLayout, flat: Sequence[Array], values: Values, rng: PassRng
) -> tuple[list[Array], Report]:
    """The changes of some stages, given the outputs of others, and their `Report`."""
    before = whole = layout.cells(flat)
    sent: dict[str, Tree] = {}
    metrics: dict[str, Tree] = {}
    states: list[Array] = []
    for node in nodes:
        whole, (output, state, gradients) = _run_with_gradients(node, whole, values, rng)
        values = values | {node.id: jax.tree.leaves(output)}
        sent |= gradients
        if node.writes:
            metrics[node.id] = jax.tree.map(lambda leaf: leaf[None], output)
            states.append(state)
    for name in (bound.cell for node in nodes for bound in node.writes):
        if name not in sent:
            sent[name] = jax.tree.map(lambda new, old: new - old, *_arrays(whole[name], before[name]))
    return jax.tree.leaves(sent), Report(metrics, jnp.stack(states)[None], cells_state(nodes, sent))


def apply(graph: Graph, layout: CellLayout) -> Callable[[list[Array], list[Array]], tuple[list[Array], Report]]:
    """`f(flat, sent)`: apply the changes that `gradient` returned, to cells that may be newer by now.

    Returns the cells, and a `Report` without passes: whether the cells are finite.
    """
    nodes = graph.where(domain="learn", kind="stage")
    written = sorted(bound.cell for node in nodes for bound in node.writes)

    def change(flat: list[Array], sent: list[Array]) -> tuple[list[Array], Report]:
        whole = layout.cells(flat)
        rest = iter(sent)
        for name in written:
            cell = whole[name]
            if isinstance(cell, Learned):
                like = eqx.filter(cell.module, eqx.is_inexact_array)
                step = jax.tree.map(lambda leaf: next(rest), like)
                whole[name] = _either(next(rest), cell.descend(step), cell)
            else:
                arrays, static = eqx.partition(cell, eqx.is_array)
                whole[name] = eqx.combine(jax.tree.map(lambda leaf: leaf + next(rest), arrays), static)
        modules = {name: whole[name].module for name in written}
        return layout.flat(whole), Report({}, jnp.zeros((0, len(reporting(nodes)))), cells_state(nodes, modules))

    return change


def sends_gradients(graph: Graph, node: Node) -> bool:
    """Whether a stage takes at most one gradient step on each cell in a pass, none of them inside a scan."""
    shapes = cell_shapes(node.function.algorithm, graph)
    layout = CellLayout(shapes)
    values = {other.id: jax.tree.leaves(other.output) for other in graph.where(domain="learn") if other is not node}
    rng = PassRng(bases(graph, 0, 0), np.uint32(0))
    try:
        jax.eval_shape(lambda *given: changes([node], layout, *given), layout.flat(shapes), values, rng)
    except (_SeveralStepsError, jax.errors.UnexpectedTracerError):
        return False
    return True


class _SeveralStepsError(Exception):
    """A stage took a second gradient step on a cell."""


def _run_with_gradients(
    node: Node, cells: dict[str, Any], values: Values, rng: PassRng
) -> tuple[dict[str, Any], tuple[Tree, Array, dict[str, Tree]]]:
    """Run a node; also returns its state (see `Report.state`), and of every learned cell the gradient and whether there
    was one."""
    learned = sorted(bound.cell for bound in node.writes if isinstance(cells[bound.cell], Learned))

    def run(cells: dict[str, Any]) -> Any:
        found: dict[str, Tree] = {}

        def watch(cell: Any, gradient: Tree) -> None:
            name = next((name for name in learned if cells[name] is cell), None)
            if name is None or name in found:
                raise _SeveralStepsError
            found[name] = (gradient, jnp.asarray(True))

        with capturing_gradients(watch):
            changed, output = run_node(node, cells, values, rng)
        gradients = {name: found.get(name, _nothing(cells[name])) for name in learned}
        return changed, (as_metrics(output) if node.writes else output, state_of(node, output), gradients)

    def skip(cells: dict[str, Any]) -> Any:
        return cells, (no_metrics(node), jnp.float32(SKIPPED), {name: _nothing(cells[name]) for name in learned})

    return run_if_due(node, cells, rng, run, skip)


def _nothing(cell: Learned) -> Tree:
    """A zero gradient of a cell, marked as absent."""
    return jax.tree.map(jnp.zeros_like, eqx.filter(cell.module, eqx.is_inexact_array)), jnp.asarray(False)


def _arrays(*cells: Any) -> list[Any]:
    return [eqx.filter(cell, eqx.is_array) for cell in cells]


def _either(which: Array, one: Any, other: Any) -> Any:
    """`one` where `which`, else `other`: two versions of a cell."""
    static = eqx.partition(one, eqx.is_array)[1]
    chosen = jax.tree.map(lambda a, b: jnp.where(which, a, b), *_arrays(one, other))
    return eqx.combine(chosen, static)
