"""Callbacks: functions of the user's own called with the events of a run, which they may stop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from headrace.errors import CallbackError, UsageError, sentence
from headrace.services.evaluate import Score

EventKind = Literal["metrics", "evaluation", "checkpoint"]


@dataclass(frozen=True)
class Event:
    """The argument of a callback."""

    kind: EventKind
    """metrics (a row was written), evaluation (its row was written before it) or checkpoint."""
    row: Mapping[str, Any]
    """The newest row of metrics.jsonl; empty before the first."""
    score: Score | None
    """The newest evaluation: `mean_reward`, `std_reward`, `returns`, `lengths`."""
    run: Path
    """The run directory."""
    config: Mapping[str, Any]
    """What config.json says: algorithm, settings, env, policy, seed, ..."""
    checkpoint: Path | None = None
    """The folder that was written, of a checkpoint."""
    stop: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """End the run after this cycle, as Ctrl-C does: with a last row and a checkpoint."""


Callback = Callable[[Event], Any]
"""Its return value is ignored: `event.stop()` stops a run."""


class Callbacks:
    """The callbacks of one run, called one after the other in the process that drives it."""

    def __init__(self, functions: Iterable[Callback], run: Path, config: Mapping[str, Any]):
        self.functions = list(functions)
        self.run = run
        self.config = MappingProxyType(dict(config))
        self.stopped: str | None = None
        """Name of the callback that stopped the run."""
        self.failed: CallbackError | None = None
        """The first exception in one of them."""

    @property
    def over(self) -> bool:
        """Whether one of them stopped the run, or failed."""
        return self.stopped is not None or self.failed is not None

    def call(
        self, kind: EventKind, row: Mapping[str, Any], score: Score | None, checkpoint: Path | None = None
    ) -> None:
        """Call every one of them; one that raises is not called again."""
        for function in list(self.functions):

            def stop(function: Callback = function) -> None:
                self.stopped = self.stopped or name_of(function)

            event = Event(kind, MappingProxyType(dict(row)), score, self.run, self.config, checkpoint, stop)
            try:
                function(event)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - it is raised when the run is saved
                self.functions.remove(function)
                if self.failed is None:
                    self.failed = CallbackError(
                        f"callback '{name_of(function)}' raised {sentence(error)} at {kind} of {self.run}; "
                        f"the run was saved: mend it and go on with --resume {self.run}."
                    )
                    self.failed.__cause__ = error


def check_callbacks(given: Any) -> list[Callback]:
    """The callbacks asked for; refuses what is not a function of one argument."""
    functions = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    for function in functions:
        if not callable(function) or inspect.isclass(function):
            raise UsageError(f"a callback is a function of one event, got {function!r}; name a function that takes it.")
        try:
            inspect.signature(function).bind(None)
        except TypeError as error:
            raise UsageError(f"callback '{name_of(function)}' must take one argument, the event ({error}).") from None
        except ValueError:
            continue  # written in C: it has no signature
    return functions


def name_of(function: Callback) -> str:
    """The name of a callback in messages."""
    return getattr(function, "__qualname__", None) or type(function).__qualname__
