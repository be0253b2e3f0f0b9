"""What every runtime offers to whoever drives a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from headrace.core.cells import Cell
from headrace.services.progress import Progress


class Runtime(ABC):
    """Runs a plan."""

    progress: Progress

    @abstractmethod
    def advance(self) -> None:
        """Train for a moment: a cycle of collecting and learning."""

    @abstractmethod
    def cells(self) -> dict[str, Cell]:
        """The cells as they are; valid until the next `advance`."""

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Everything needed to go on: arrays by name, and plain values."""

    @abstractmethod
    def restore(self, arrays: dict[str, Any], values: dict[str, Any]) -> None:
        """Go on from what `state` gave."""

    @abstractmethod
    def close(self) -> None:
        """Let go of environments."""
