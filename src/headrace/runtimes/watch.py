"""Checks the reports of learning programs: takes the metrics, and detects divergence."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.compile.reports import Divergence, Report, find_divergence, metric_names, metrics_by_name
from headrace.errors import DivergenceError
from headrace.graph import Graph, Node
from headrace.runtimes.progress import Progress


class Watch:
    """Collects reports, and checks them when the cells are waited for anyway."""

    def __init__(self, graph: Graph, on_divergence: str):
        self.names = metric_names(graph)
        self.on_divergence = on_divergence
        self.pending: list[tuple[Sequence[Node], Report, int]] = []
        self.told: set[str] = set()

    def take(self, nodes: Sequence[Node], report: Report, first: int) -> None:
        """Add the report of a program that began with learning pass `first`."""
        self.pending.append((nodes, report, first))

    def look(self, progress: Progress) -> None:
        """Update the metrics; a run that has diverged raises, or goes on with a notice."""
        for nodes, report, first in self.pending:
            progress.metrics |= metrics_by_name(nodes, report, self.names)
            self.tell(find_divergence(nodes, report, first), progress)
        self.pending.clear()

    def tell(self, found: Divergence | None, progress: Progress) -> None:
        """End a run that has diverged, or add a notice once for each stage."""
        if found is None or found.node.id in self.told:
            return
        if self.on_divergence == "stop":
            raise DivergenceError(str(found))
        self.told.add(found.node.id)
        progress.notices.append(f"{found}; training goes on (--on-divergence warn).")
