"""Looking at what learning reports, in the process that learns: its metrics, and whether it has diverged."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.compile.reports import Report, find_divergence, metric_names, metrics_by_name
from headrace.errors import DivergenceError
from headrace.graph import Graph, Node
from headrace.runtimes.progress import Progress

GOES_ON = "{}; training goes on (--on-divergence warn)."
"""What is told of a divergence that does not end the run."""


class Watch:
    """Takes what each program reports, and looks at it once the cells are waited for in any case."""

    def __init__(self, graph: Graph, on_divergence: str):
        self.names = metric_names(graph)
        self.on_divergence = on_divergence
        self.pending: list[tuple[Sequence[Node], Report, int]] = []
        self.told: set[str] = set()

    def take(self, nodes: Sequence[Node], report: Report, first: int) -> None:
        """Note what a program that began with learning pass `first` reports."""
        self.pending.append((nodes, report, first))

    def look(self, progress: Progress) -> None:
        """Take over the metrics; a run that has diverged ends here, or goes on with a notice."""
        for nodes, report, first in self.pending:
            progress.metrics |= metrics_by_name(nodes, report, self.names)
            found = find_divergence(nodes, report, first)
            if found is None or found.node.id in self.told:
                continue
            if self.on_divergence == "stop":
                raise DivergenceError(str(found))
            self.told.add(found.node.id)
            progress.notices.append(GOES_ON.format(found))
        self.pending.clear()
