"""Tracking: a callback that logs a run to Weights & Biases. Whatever happens to it, training goes on."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import UsageError, nearest, sentence
from headrace.extras import needed
from headrace.files import write_whole
from headrace.run.callbacks import Event

PROJECT = "headrace"
INIT_SECONDS = 30.0
"""Seconds a run waits at its start for a server that does not answer; W&B's default is 90."""


def check_track(asked: str) -> str:
    """The project of `wandb[:project]`; refuses another tracker, and one that is not installed."""
    tracker, _, project = asked.partition(":")
    if tracker != "wandb":
        raise UsageError(f"--track takes wandb or wandb:PROJECT, got '{asked}'{nearest(tracker, ['wandb'])}.")
    needed("wandb", "track", f"--track {asked}")
    return project or PROJECT


class WandbTracker:
    """Logs config, rows of metrics and finished videos to a run of W&B, kept in RUN/wandb until it is sent."""

    def __init__(self, project: str):
        self.project = project
        self.run: Any = None
        self.broken = False
        self.videos: set[Path] = set()

    def __call__(self, event: Event) -> None:
        if event.kind == "metrics":
            self._try(lambda: self._log(event))

    def close(self, failed: bool) -> None:
        """Have everything written, and the run marked as finished or failed."""
        if self.run is not None:
            self._try(lambda: self.run.finish(exit_code=int(failed)))

    def _log(self, event: Event) -> None:
        if self.run is None:
            self.run = self._start(event)
        row = {name: value for name, value in event.row.items() if value is not None}
        videos = set((event.run / "videos").glob("[!.]*")) - self.videos
        self.videos |= videos
        wandb: Any = importlib.import_module("wandb")
        for path in sorted(videos):
            row["video"] = wandb.Video(str(path), format=path.suffix[1:])
        self.run.log(row)

    def _start(self, event: Event) -> Any:
        wandb: Any = importlib.import_module("wandb")
        kept = event.run / "wandb" / "id"
        before = kept.read_text().strip() if kept.exists() else None
        # Other W&B runs of this process, of another seed or the user's own, are left alone.
        settings = wandb.Settings(console="off", silent=True, reinit="create_new", init_timeout=INIT_SECONDS)
        run = wandb.init(
            project=self.project,
            dir=str(event.run),
            name=event.run.name,
            config=dict(event.config),
            id=before,
            resume=None if before is None else "allow",
            settings=settings,
        )
        write_whole(kept, run.id + "\n")
        run.define_metric("time/env_steps")
        run.define_metric("*", step_metric="time/env_steps")
        self.videos = set((event.run / "videos").glob("[!.]*")) if before else set()
        kept_here = Path(run.dir).parent
        where = f"{kept_here}, to be sent with: wandb sync {kept_here}" if run.offline else run.url
        print(f"headrace: tracked at {where}", file=sys.stderr, flush=True)
        return run

    def _try(self, act: Callable[[], None]) -> None:
        """Run `act`; a failure is reported once, and then tracking stops."""
        if self.broken:
            return
        try:
            act()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it must not end the training
            self.broken = True
            print(
                f"headrace: W&B failed ({sentence(error)}); training goes on without it.", file=sys.stderr, flush=True
            )
