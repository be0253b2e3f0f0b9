"""The stores of a run in a checkpoint."""

from __future__ import annotations

from typing import Any

from headrace.fabric.memory import MemoryFabric
from headrace.runtimes.progress import Progress


def stored_contents(fabric: MemoryFabric) -> dict[str, Any]:
    """The contents of the stores for a checkpoint, by name; in a data-parallel loop, of each replica."""
    found: dict[str, Any] = {}
    for name in fabric.part.stores:
        held = [fabric.store(name, replica).contents() for replica in range(fabric.sections.plan.shares)]
        if held[0] is not None:
            found[name] = held[0] if len(held) == 1 else {str(i): one for i, one in enumerate(held)}
    return found


def resume(fabric: MemoryFabric, arrays: dict[str, Any], values: dict[str, Any]) -> Progress:
    """Restore the stores and all counters from a checkpoint; returns the progress to resume from."""
    graph, shares, progress = fabric.sections.graph, fabric.sections.plan.shares, Progress(**values)
    learned = progress.domains(len(graph.domains))
    for domain in graph.domains:  # trajectories not yet learned from are not in a checkpoint
        if not domain.fused and progress.passes > domain.needed(learned[domain.index]):
            progress.passes = domain.needed(learned[domain.index])
            progress.env_steps = progress.passes * graph.collected
    fabric.restart(progress.passes, learned)
    for name in fabric.part.stores:
        held = arrays.get(name)
        for replica in range(shares):
            own = held if shares == 1 or held is None else held[str(replica)]
            fabric.store(name, replica).fill(own, progress.passes)
    return progress
