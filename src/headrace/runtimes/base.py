"""The interface of runtimes, for the session that drives a run."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from headrace.compile.cells import optimiser_steps
from headrace.core.cells import Cell
from headrace.errors import UsageError
from headrace.graph import Plan
from headrace.runtimes.progress import Progress
from headrace.services.evaluate import Score
from headrace.settings.values import Typed, describe, fits


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person may ask of a run besides the plan; the string under a field is its help on the command line."""

    eval_every: Annotated[int | None, Typed(like="1e6")] = None
    """Environment steps between two evaluations (default: a share of a core)."""
    eval_episodes: int = 10
    """Episodes of each evaluation."""
    evaluate: Annotated[bool, Typed(flag="--eval")] = True
    """Whether an evaluator plays without exploring, beside training."""
    log_info: Annotated[Sequence[str], Typed("NAME")] = ()
    """Numbers in the info at the end of an episode to log as rollout/NAME, such as x_position or episode/r."""
    view: Literal["off", "ring", "window"] = "off"
    """Draw the current actor, in a process of its own: for a page (ring), or in a window."""
    record_every: float | None = None
    """A video into RUN/videos every S seconds."""
    record_format: Literal["mp4", "gif"] = "mp4"
    """Format of these videos."""
    restarts: int = 2
    """Times a minute that a process whose environment failed, or that hung, is started again."""
    deaths: int = 20
    """Times a minute that processes killed by a signal are started again."""
    hang_seconds: float = 10.0
    """Seconds of silence after which a process counts as hanging."""
    checkpoint_every: float = 300.0
    """Seconds between two checkpoints."""
    track: Annotated[str | None, Typed("wandb[:PROJECT]")] = None
    """Log config, metrics and videos to Weights & Biases too."""
    on_divergence: Literal["stop", "warn"] = "stop"
    """End the run, or only say so, when a loss, gradient or cell is not finite."""
    debug: bool = False
    """Compile nothing: print and breakpoint() work in stages."""
    steps: Annotated[int | None, Typed(flag="")] = None
    """Environment steps after which nothing more is collected: of the run's goal."""
    videos: Annotated[str, Typed(flag="")] = ""
    """The run's folder for them."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(Options).items():
            value, option, choices = getattr(self, name), f"--{name.replace('_', '-')}", get_args(hint)
            if get_origin(hint) is Literal and value not in choices:
                raise UsageError(f"{option} is {', '.join(choices[:-1])} or {choices[-1]}, got '{value}'.")
            if not fits(value, hint) and not (fits(0, hint) and fits(value, float)):  # 1e4 is 10000
                raise UsageError(f"{option} takes {describe(hint)}, got {value!r}.")
            if name in ABOVE_ZERO and value is not None and not value > 0:
                raise UsageError(f"{option} must be above 0, got {value}.")
            if name in ("restarts", "deaths") and value < 0:
                raise UsageError(f"{option} must be at least 0, got {value}.")
        if isinstance(self.log_info, str):
            raise UsageError(f"log_info takes a list of names, got {self.log_info!r}.")
        for name in {"ep_rew_mean", "ep_len_mean", "success_rate"}.intersection(self.log_info):
            raise UsageError(f"--log-info {name} would take the place of rollout/{name}; leave it out.")

    @property
    def has_viewer(self) -> bool:
        """Whether a viewer is asked for."""
        return self.view != "off" or self.record_every is not None


ABOVE_ZERO = ("eval_every", "eval_episodes", "record_every", "hang_seconds", "checkpoint_every")

PLAIN = Options()
"""The defaults."""


class Runtime(ABC):
    """Runs a plan."""

    plan: Plan
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
