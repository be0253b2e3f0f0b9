"""How far a run has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import SupportsFloat

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
    metrics: dict[str, SupportsFloat] = field(default_factory=dict)
    """What learning last measured, by name, of what it has measured; arrays may be behind it, read when asked."""
    notices: list[str] = field(default_factory=list)
    """What a person should be told."""

    def counters(self) -> dict[str, int]:
        """What a run must remember to go on."""
        return {
            "env_steps": self.env_steps,
            "passes": self.passes,
            "learned": self.learned,
            "update_frames": self.update_frames,
        }
