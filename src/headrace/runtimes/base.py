"""What every runtime offers to whoever drives a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from headrace.core.cells import Cell
from headrace.envs import Episode


@dataclass
class Progress:
    """What happened so far, and what has finished since it was last read."""

    env_steps: int = 0
    passes: int = 0
    """Collecting passes."""
    learned: int = 0
    """Learning passes."""
    update_frames: int = 0
    """Transitions that went through an update: the sum of the batch sizes."""
    episodes: list[Episode] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    """What learning last reported; arrays, read when somebody asks."""

    def counters(self) -> dict[str, int]:
        """What a run must remember to go on."""
        return {
            "env_steps": self.env_steps,
            "passes": self.passes,
            "learned": self.learned,
            "update_frames": self.update_frames,
        }


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
