"""A session drives a runtime until its stop rule holds, and logs, evaluates and saves on the way."""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import equinox as eqx

from headrace.files import write_whole
from headrace.run import checkpoint
from headrace.run.callbacks import Callbacks
from headrace.run.directory import MEMBERS
from headrace.run.display import Display
from headrace.run.record import Recorder
from headrace.run.stop_rule import StopRule
from headrace.runtimes import Runtime
from headrace.services.evaluate import Evaluator, Score
from headrace.types import Tree

LOG_SECONDS = 1.0
"""Seconds between two lines of metrics."""

EVAL_SHARE = 0.05
"""Share of the time that evaluation may take where no interval is given."""


class Session:
    """Drives a runtime until its stop rule holds; logs, evaluates, saves and calls the callbacks."""

    def __init__(
        self,
        runtime: Runtime,
        directory: Path,
        goal: StopRule,
        elapsed: float,
        checkpoint_every: float,
        callbacks: Callbacks,
    ):
        self.runtime = runtime
        self.directory = directory
        self.goal = goal
        self.before = elapsed
        self.began = time.monotonic()
        self.checkpoint_every = checkpoint_every
        self.callbacks = callbacks
        self.recorder = Recorder(directory, elapsed, runtime.progress.env_steps)
        self.eval_share = EVAL_SHARE
        self.interrupted = False
        self.reached = False
        self.members: list[dict[str, Any]] = []

    @property
    def elapsed(self) -> float:
        return self.before + time.monotonic() - self.began

    @property
    def over(self) -> bool:
        """Whether there is a reason to end."""
        steps = self.runtime.progress.env_steps
        return self.interrupted or self.reached or self.callbacks.over or self.goal.spent(steps, self.elapsed)

    def train(
        self,
        evaluators: Callable[[], Evaluator] | None,
        eval_every: int | None,
        display: Display,
        refine: Iterator[str | None],
    ) -> Iterator[Session]:
        """Run until the stop rule holds: yields itself wherever the caller is to advance its runtime.

        `evaluators` makes an evaluator, None if nothing is to be evaluated. `refine` goes on after
        each advance and may yield a notice.
        """
        with ExitStack() as held:
            self.eval_every, self.display, self.refine = eval_every, display, refine
            self.evaluators = evaluators and (lambda: held.enter_context(closing(evaluators())))
            self.evaluator = None if self.evaluators is None or self.runtime.evaluates else self.evaluators()
            self.evaluating, self.first = 0.0, True
            self.evaluated_at = self.runtime.progress.env_steps
            self.logged = self.saved = self.elapsed
            while not self.over:
                yield self
                self.look()
            self.end()

    def look(self) -> None:
        """After each advance: evaluate, log and save where it is time."""
        progress = self.runtime.progress
        self.recorder.episodes(progress.episodes)
        progress.episodes = []
        refined = next(self.refine, None)
        for notice in (*progress.notices, *([refined] if refined else [])):
            self.display.say(notice)
        progress.notices = []
        score = self.runtime.take_score()
        if self.evaluator is not None and self._due():
            began, self.evaluated_at = time.monotonic(), progress.env_steps
            score = self._evaluate(self.evaluator)
            # The first one compiles, so its time does not count.
            self.evaluating += 0.0 if self.first else time.monotonic() - began
            self.first = False
        if score is not None:
            self._scored(score)
        if score is not None or self.elapsed - self.logged >= LOG_SECONDS:
            self.display.show(self._log(score), self.recorder.best)
            self.logged = self.elapsed
        if self.elapsed - self.saved >= self.checkpoint_every:
            self.save()
            self.saved = self.elapsed

    def end(self) -> None:
        """Evaluate, log and save a last time; an exception in a callback is raised when that is done."""
        progress, score = self.runtime.progress, None
        figures = self.runtime.figures()
        cut_short = self.reached or self.interrupted or self.callbacks.over
        self.runtime.stop()
        try:
            if self.evaluators is not None and not cut_short and self.evaluated_at != progress.env_steps:
                score = self._evaluate(self.evaluator or self.evaluators())
                self._scored(score)
        finally:  # also after a second Ctrl-C
            self.display.show(self._log(score, figures), self.recorder.best, last=True)
            self.save()
        if self.callbacks.failed is not None:
            raise self.callbacks.failed

    def _due(self) -> bool:
        progress = self.runtime.progress
        if self.eval_every is not None:
            return progress.env_steps - self.evaluated_at >= self.eval_every
        return progress.learned > 0 and self.evaluating <= self.eval_share * (self.elapsed - self.before)

    def _evaluate(self, evaluator: Evaluator) -> Score:
        score = evaluator.score(self.runtime.cells())
        return replace(score, version=self.runtime.version(), env_steps=self.runtime.progress.env_steps)

    def _scored(self, score: Score) -> None:
        if self.recorder.evaluated(score):
            actor = score.actor
            if actor is None:
                actor = {name: eqx.filter(cell.module, eqx.is_array) for name, cell in self.runtime.cells().items()}
            values = {"mean_reward": score.mean_reward, "version": score.version, "env_steps": score.env_steps}
            self._store(self.directory / "best", {"actor": actor}, values)
        self.reached = self.goal.reached(score.mean_reward)

    def log(self) -> None:
        """Write a row of metrics, without an evaluation."""
        self.display.show(self._log(None), self.recorder.best, last=True)

    def _log(self, score: Score | None, figures: dict[str, float] | None = None) -> dict[str, Any]:
        """Write a row, and call the callbacks for it and the evaluation in it."""
        figures = self.runtime.figures() if figures is None else figures
        row = self.recorder.write(self.runtime.progress, self.elapsed, self.runtime.updates(), figures)
        self._note_members()
        self.callbacks.call("metrics", row, self.recorder.score)
        if score is not None:
            self.callbacks.call("evaluation", row, score)
        return row

    def _note_members(self) -> None:
        members = self.runtime.members()
        if members and members != self.members:
            self.members = members
            try:
                write_whole(self.directory / MEMBERS, json.dumps(members, indent=2) + "\n")
            except OSError as error:
                self.display.say(f"could not write {self.directory / MEMBERS} ({error.strerror}); training goes on.")

    def save(self) -> None:
        """Write a checkpoint; a disk that is full costs the checkpoint, not the run."""
        arrays, values = self.runtime.state()
        folder = self.directory / "checkpoints" / f"{self.runtime.progress.env_steps:012d}"
        best = self.recorder.best if math.isfinite(self.recorder.best) else None  # JSON has no infinity
        if self._store(folder, arrays, values | {"elapsed": self.elapsed, "best": best}):
            checkpoint.prune(self.directory)
            self.callbacks.call("checkpoint", self.recorder.last, self.recorder.score, folder)

    def _store(self, folder: Path, arrays: Tree, values: dict[str, Any]) -> bool:
        try:
            checkpoint.save(folder, arrays, values)
        except OSError as error:
            print(f"headrace: could not write {folder} ({error}); training goes on.", file=sys.stderr)
            return False
        return True


INTERRUPTIBLE: list[Session] = []
"""The sessions of this process under way, which Ctrl-C ends."""

HANDLERS: dict[int, Any] = {}
"""The signal handlers before them."""


@contextmanager
def interruptible(session: Session) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end every run after the current cycle; a second Ctrl-C ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        if any(running.interrupted for running in INTERRUPTIBLE):
            raise KeyboardInterrupt
        for running in INTERRUPTIBLE:
            running.interrupted = True

    if not INTERRUPTIBLE:
        HANDLERS.update({number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)})
    INTERRUPTIBLE.append(session)
    try:
        yield
    finally:
        INTERRUPTIBLE.remove(session)
        if not INTERRUPTIBLE:
            for number in list(HANDLERS):
                signal.signal(number, HANDLERS.pop(number))
