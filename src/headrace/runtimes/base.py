"""What every runtime offers to whoever drives a run."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.compile.cells import optimiser_steps
from headrace.core.cells import Cell
from headrace.runtimes.progress import Progress
from headrace.services.evaluate import Score


@dataclass(frozen=True)
class Options:
    """What a person may ask for besides the plan."""

    steps: int | None = None
    """Environment steps after which nothing more is collected."""
    debug: bool = False
    """Compile nothing, so that print and breakpoints work in stages."""
    on_divergence: str = "stop"
    """What follows a loss, gradient or cell that is not finite: stop ends the run, warn says so and goes on."""
    evaluate: bool = True
    eval_episodes: int = 10
    eval_every: int | None = None
    """Environment steps between two evaluations; None means a share of the time."""
    log_info: Sequence[str] = ()
    """Numbers in the info at the end of an episode that are logged, by name."""
    view: str = "off"
    """off, ring (pictures that a page can read) or window."""
    record_every: float | None = None
    """Seconds between two videos."""
    record_format: str = "mp4"
    videos: str = ""
    """The folder for them."""
    track: str | None = None
    """Where metrics are logged besides the run directory: `wandb` or `wandb:PROJECT`."""
    restarts: int = 2
    """How often in a minute a process that failed by an exception of its own, or hung, is started anew."""
    deaths: int = 20
    """How often in a minute processes killed by a signal are started anew."""
    hang_seconds: float = 10.0
    """Silence after which a process is taken for hung."""

    @property
    def has_viewer(self) -> bool:
        """Whether a viewer is asked for."""
        return self.view != "off" or self.record_every is not None


PLAIN = Options()
"""Nothing asked for."""


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

    @property
    def refines(self) -> bool:
        """Whether the number of learning passes in one program may change while it runs, by `fuse`."""
        return False

    @property
    def repeat(self) -> int:
        """Learning passes in one program, where there may be several."""
        return 1

    def fuse(self, repeat: int) -> None:
        """Have so many learning passes run as one program from now on, where it `refines`."""
        raise NotImplementedError

    def pids(self) -> dict[str, int]:
        """The processes that do the work, by name."""
        return {"all": os.getpid()}

    def members(self) -> list[dict[str, Any]]:
        """What each process runs, as plain values: its name, pid, fragment and replica, device, cores, and the nodes
        that it says it has run."""
        return []

    def take_score(self) -> Score | None:
        """An evaluation that the runtime itself made since it was last asked."""
        return None

    def version(self) -> int:
        """The number of the newest weights."""
        return self.progress.learned

    def figures(self) -> dict[str, float]:
        """How the system itself does: numbers for the metrics, by name."""
        return {}

    def stop(self, at_once: bool = False) -> None:  # noqa: B027 - what runs in this process stops by itself
        """Let nothing run any more; what was learned can still be read."""

    @abstractmethod
    def close(self) -> None:
        """Let go of environments and memory."""
