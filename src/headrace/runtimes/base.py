"""The interface of runtimes, for the session that drives a run."""

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
    """Options of a run besides the plan."""

    steps: int | None = None
    """Environment steps after which nothing more is collected."""
    debug: bool = False
    """Compile nothing, so that print and breakpoints work in stages."""
    on_divergence: str = "stop"
    """What to do if a loss, gradient or cell is not finite: stop ends the run, warn prints a notice and goes on."""
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
    """How often in a minute a process that raised an exception or hung is restarted."""
    deaths: int = 20
    """How often in a minute processes killed by a signal are restarted, in total."""
    hang_seconds: float = 10.0
    """Seconds without a heartbeat after which a process counts as hung."""

    @property
    def has_viewer(self) -> bool:
        """Whether a viewer is asked for."""
        return self.view != "off" or self.record_every is not None


PLAIN = Options()
"""The defaults."""


class Runtime(ABC):
    """Runs a plan."""

    progress: Progress
    evaluates: bool = False
    """Whether it has its own evaluator, whose scores `take_score` returns."""

    @abstractmethod
    def advance(self) -> None:
        """Train for one cycle of collecting and learning."""

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
        """Restore what `state` returned."""

    @property
    def refines(self) -> bool:
        """Whether the number of learning passes in one program may change while it runs, by `fuse`."""
        return False

    @property
    def repeat(self) -> int:
        """Learning passes in one program, where there may be several."""
        return 1

    def fuse(self, repeat: int) -> None:
        """Fuse `repeat` learning passes into one program from now on, where it `refines`."""
        raise NotImplementedError

    def pids(self) -> dict[str, int]:
        """Process ids by process name."""
        return {"all": os.getpid()}

    def members(self) -> list[dict[str, Any]]:
        """What each process runs, as plain values: its name, pid, fragment and replica, device, cores, and the nodes
        that it has run."""
        return []

    def take_score(self) -> Score | None:
        """The newest evaluation by the runtime's own evaluator, once."""
        return None

    def version(self) -> int:
        """The number of the newest weights."""
        return self.progress.learned

    def figures(self) -> dict[str, float]:
        """Metrics of the system itself, by name."""
        return {}

    def stop(self, at_once: bool = False) -> None:  # noqa: B027 - what runs in this process stops by itself
        """Stop training; cells can still be read."""

    @abstractmethod
    def close(self) -> None:
        """Free environments and memory."""
