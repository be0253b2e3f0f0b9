"""How far a run has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, SupportsFloat

from headrace.envs import Episode


@dataclass
class Progress:
    """Counters of a run so far, and episodes finished since they were last read."""

    env_steps: int = 0
    passes: int = 0
    """Collecting passes."""
    learned: int = 0
    """Learning passes, of all domains together."""
    learned_in: list[int] = field(default_factory=list)
    """Learning passes of each domain; none where there is one."""
    update_frames: int = 0
    """Transitions that went through an update: the sum of the batch sizes."""
    episodes: list[Episode] = field(default_factory=list)
    metrics: dict[str, SupportsFloat] = field(default_factory=dict)
    """The last value of each metric, by name; possibly arrays, read when needed."""
    notices: list[str] = field(default_factory=list)
    """Notices for the user."""

    def counters(self) -> dict[str, Any]:
        """The counters that a checkpoint keeps."""
        names = ["env_steps", "passes", "learned", "update_frames", *["learned_in"] * (len(self.learned_in) > 1)]
        return {name: getattr(self, name) for name in names}

    def count(self, domain: int, passes: int, frames: int) -> None:
        """Count learning passes of a domain, and their update frames."""
        self.learned_in = self.domains(max(domain + 1, len(self.learned_in)))
        self.learned_in[domain] += passes
        self.learned = sum(self.learned_in)
        self.update_frames += frames

    def domains(self, number: int) -> list[int]:
        """Learning passes of each of `number` domains."""
        return [self.learned] if number == 1 else [*self.learned_in, *[0] * (number - len(self.learned_in))]
