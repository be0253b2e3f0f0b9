"""Learning at a distance: the changes that a pass would make, computed in one place and made in another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from headrace.core.cells import Learned
from headrace.core.replicas import watching
from headrace.graph import Graph, Node
from headrace.graph.compile import (
    Shelf,
    Ticket,
    Values,
    as_metrics,
    bases,
    cell_shapes,
    no_metrics,
    run_node,
    sometimes,
)
from headrace.graph.reports import SAT_OUT, Report, cells_state, learning, state_of
from headrace.types import Array, Tree


def gradient(graph: Graph, shelf: Shelf) -> Callable[..., tuple[list[Array], Report]]:
    """`f(flat, data, ticket)`: run one learning pass aside; returns what it would change, and what it reports.

    Of a learned cell that is the gradient and whether there is one; of any other the difference. `data` is a
    trajectory, or batches of which the first is taken.
    """
    nodes, source = graph.where(domain="learn", kind="stage"), graph.source

    def compute(flat: list[Array], data: Any, ticket: Ticket) -> tuple[list[Array], Report]:
        values = dict(data) if graph.on_policy else {source.id: [leaf[0] for leaf in jax.tree.leaves(data)]}
        return changes(nodes, shelf, flat, values, ticket)

    return compute


def changes(
    nodes: Sequence[Node], shelf: Shelf, flat: Sequence[Array], values: Values, ticket: Ticket
) -> tuple[list[Array], Report]:
    """What some stages would change, given what others yielded, and what they report."""
    before = whole = shelf.cells(flat)
    sent: dict[str, Tree] = {}
    metrics: dict[str, Tree] = {}
    states: list[Array] = []
    for node in nodes:
        whole, (output, state, gradients) = _watched(node, whole, values, ticket)
        values = values | {node.id: jax.tree.leaves(output)}
        sent |= gradients
        if node.writes:
            metrics[node.id] = jax.tree.map(lambda leaf: leaf[None], output)
            states.append(state)
    for name in (bound.cell for node in nodes for bound in node.writes):
        if name not in sent:
            sent[name] = jax.tree.map(lambda new, old: new - old, *_arrays(whole[name], before[name]))
    return jax.tree.leaves(sent), Report(metrics, jnp.stack(states)[None], cells_state(nodes, sent))


def apply(graph: Graph, shelf: Shelf) -> Callable[[list[Array], list[Array]], tuple[list[Array], Report]]:
    """`f(flat, sent)`: make the changes that `gradient` returned, to cells that may be newer by now.

    Returns the cells, and a report of no pass: whether they are finite.
    """
    nodes = graph.where(domain="learn", kind="stage")
    written = sorted(bound.cell for node in nodes for bound in node.writes)

    def change(flat: list[Array], sent: list[Array]) -> tuple[list[Array], Report]:
        whole = shelf.cells(flat)
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
        return shelf.flat(whole), Report({}, jnp.zeros((0, len(learning(nodes)))), cells_state(nodes, modules))

    return change


def sends_gradients(graph: Graph, node: Node) -> bool:
    """Whether a stage steps down one gradient of each cell it learns in a pass, where it can be seen."""
    shapes = cell_shapes(node.function.algorithm, graph)
    shelf = Shelf(shapes)
    values = {other.id: jax.tree.leaves(other.output) for other in graph.where(domain="learn") if other is not node}
    ticket = Ticket(bases(graph, 0, 0), np.uint32(0))
    try:
        jax.eval_shape(lambda *given: changes([node], shelf, *given), shelf.flat(shapes), values, ticket)
    except (_SeveralStepsError, jax.errors.UnexpectedTracerError):
        return False
    return True


class _SeveralStepsError(Exception):
    """A stage stepped down a second gradient of a cell."""


def _watched(
    node: Node, cells: dict[str, Any], values: Values, ticket: Ticket
) -> tuple[dict[str, Any], tuple[Tree, Array, dict[str, Tree]]]:
    """Run a node; beside its results, what became of it, and the gradient of every cell it learned and whether there
    was one."""
    learned = sorted(bound.cell for bound in node.writes if isinstance(cells[bound.cell], Learned))

    def run(cells: dict[str, Any]) -> Any:
        found: dict[str, Tree] = {}

        def watch(cell: Any, gradient: Tree) -> None:
            name = next((name for name in learned if cells[name] is cell), None)
            if name is None or name in found:
                raise _SeveralStepsError
            found[name] = (gradient, jnp.asarray(True))

        with watching(watch):
            changed, output = run_node(node, cells, values, ticket)
        gradients = {name: found.get(name, _nothing(cells[name])) for name in learned}
        return changed, (as_metrics(output) if node.writes else output, state_of(node, output), gradients)

    def skip(cells: dict[str, Any]) -> Any:
        return cells, (no_metrics(node), jnp.float32(SAT_OUT), {name: _nothing(cells[name]) for name in learned})

    return sometimes(node, cells, ticket, run, skip)


def _nothing(cell: Learned) -> Tree:
    """No gradient of a cell."""
    return jax.tree.map(jnp.zeros_like, eqx.filter(cell.module, eqx.is_inexact_array)), jnp.asarray(False)


def _arrays(*cells: Any) -> list[Any]:
    return [eqx.filter(cell, eqx.is_array) for cell in cells]


def _either(which: Array, one: Any, other: Any) -> Any:
    """One of two cells."""
    static = eqx.partition(one, eqx.is_array)[1]
    chosen = jax.tree.map(lambda a, b: jnp.where(which, a, b), *_arrays(one, other))
    return eqx.combine(chosen, static)
