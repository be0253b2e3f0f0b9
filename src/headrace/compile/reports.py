"""What learning stages report: their metrics, whether they ran, and whether all numbers are finite.

A stage that skips a pass (`every=`) is marked in `Report.state`, not by a special value of its metrics: a metric that
is not finite means that the run has diverged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from headrace.graph.ir import Graph, Node
from headrace.types import Array, Tree

SKIPPED, RAN, BROKEN = 0.0, 1.0, 2.0
"""The state of a stage in a pass. Either all replicas run a stage or none does, so their mean is above RAN where a
metric of one of them is not finite."""


class Report(NamedTuple):
    """Metrics and states of the learning stages of one program."""

    metrics: dict[str, dict[str, Array]]
    """By stage and name, with an axis of passes in front; meaningless in a pass that the stage skipped."""
    state: Array
    """float[passes, stages]: SKIPPED, RAN or BROKEN."""
    cells: Array
    """float[stages]: RAN, or BROKEN where a cell that the stage writes is not finite after the last pass."""


class Divergence(NamedTuple):
    """The first number that is not finite."""

    node: Node
    update: int
    """The learning pass, counted from 1."""
    place: int
    """Index of the metric, or the number of metrics if it is a cell."""

    def __str__(self) -> str:
        cells = ", ".join(bound.cell for bound in self.node.writes)
        what = [*(f"its {name}" for name in self.node.output), f"what it writes ({cells})"][self.place]
        return f"stage '{self.node.id}' diverged at update {self.update}: {what} is not finite"


def reporting(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that report, which are those that write cells: the columns of `Report.state`."""
    return [node for node in nodes if node.writes]


def state_of(node: Node, output: Tree) -> Array:
    """RAN, or BROKEN where a metric of the stage is not finite."""
    metrics = map(jnp.asarray, jax.tree.leaves(output) if node.writes else ())
    return _state([jnp.all(jnp.isfinite(leaf)) for leaf in metrics if _real(leaf)])


def cells_state(nodes: Iterable[Node], changed: Mapping[str, Tree]) -> Array:
    """For each learning stage: RAN, or BROKEN where a cell that it writes, or its change of one, is not finite."""
    written = [[changed[bound.cell] for bound in node.writes] for node in reporting(nodes)]
    sums = [[_sum(leaf) for leaf in jax.tree.leaves(each) if _real(leaf)] for each in written]
    states = [_state([jnp.isfinite(total) for total in each]) for each in sums]
    return jnp.stack(states) if states else jnp.zeros(0, jnp.float32)


def _sum(array: Array) -> Array:
    """A sum that is finite if all numbers are, short of overflow near 1e38. As a product with ones it takes a quarter
    of the time of a reduction on CPUs, where XLA adds serially (300,000 weights: 15 us, not 60)."""
    rows = array.reshape(-1, array.shape[-1] if array.ndim else 1)
    return jnp.sum(jnp.ones(rows.shape[0], rows.dtype) @ rows)


def _state(sound: list[Array]) -> Array:
    state = jnp.where(jnp.all(jnp.stack(sound)), RAN, BROKEN) if sound else RAN
    return jnp.asarray(state, jnp.float32)


def _real(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)


def metric_names(graph: Graph) -> dict[tuple[str, str], str]:
    """The name of each metric of each stage: its own, prefixed by the stage where two stages report the same."""
    nodes = graph.where(role="learning")
    times = Counter(name for node in nodes for name in node.output)
    return {(n.id, name): name if times[name] == 1 else f"{n.id}/{name}" for n in nodes for name in n.output}


def find_divergence(nodes: Sequence[Node], report: Report, first: int) -> Divergence | None:
    """The first number that is not finite in a program that began with pass `first`; None if all are finite."""
    state, cells = np.asarray(report.state), np.asarray(report.cells)
    stages = reporting(nodes)
    for number, column in np.argwhere(state > RAN)[:1]:
        node = stages[column]
        values = [np.asarray(report.metrics[node.id][name])[number] for name in node.output]
        broken = [place for place, value in enumerate(values) if not np.isfinite(value).all()]
        return Divergence(node, first + int(number) + 1, broken[0])
    for column in np.flatnonzero(cells > RAN)[:1]:
        node = stages[column]
        return Divergence(node, first + max(1, len(state)), len(node.output))
    return None


class Measured(NamedTuple):
    """A metric over the passes of a program; as a number, its mean over those in which the stage ran."""

    values: Any
    ran: NDArray[np.bool_]

    def __float__(self) -> float:
        return float(np.asarray(self.values, np.float64)[self.ran].mean())


def metrics_by_name(nodes: Sequence[Node], report: Report, names: dict[tuple[str, str], str]) -> dict[str, Measured]:
    """The metrics, by name, of the stages that ran in a program."""
    ran = np.asarray(report.state) >= RAN
    return {
        names[node.id, name]: Measured(value, ran[:, column])
        for column, node in enumerate(reporting(nodes))
        if ran[:, column].any()
        for name, value in report.metrics[node.id].items()
    }
