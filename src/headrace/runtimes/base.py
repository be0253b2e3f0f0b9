"""What every runtime offers to whoever drives a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from headrace.core.cells import Cell, Learned
from headrace.services.evaluate import Score
from headrace.services.progress import Progress


class Runtime(ABC):
    """Runs a plan."""

    progress: Progress
    evaluates: bool = False
    """Whether it has an evaluator of its own, whose scores are to be taken."""

    @abstractmethod
    def advance(self) -> None:
        """Train for a moment: a cycle of collecting and learning."""

    @abstractmethod
    def cells(self) -> dict[str, Cell]:
        """The cells as they are; valid until the next `advance`."""

    def updates(self) -> int:
        """Optimiser steps so far: those of the cell that had most."""
        return optimiser_steps(self.cells())

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Everything needed to go on: arrays by name, and plain values."""

    @abstractmethod
    def restore(self, arrays: dict[str, Any], values: dict[str, Any]) -> None:
        """Go on from what `state` gave."""

    def take_score(self) -> Score | None:
        """An evaluation that the runtime itself made since it was last asked."""
        return None

    @abstractmethod
    def close(self) -> None:
        """Let go of environments."""


def optimiser_steps(cells: dict[str, Cell]) -> int:
    """The steps of the cell that had most."""
    return max((int(cell.updates) for cell in cells.values() if isinstance(cell, Learned)), default=0)
