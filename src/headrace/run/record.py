"""The recorder: one JSON object a line in metrics.jsonl, and the same numbers as TensorBoard events."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX import SummaryWriter
from tensorboardX.record_writer import register_writer_factory

from headrace.envs import SUCCESS, Episode
from headrace.files import write_whole
from headrace.runtimes.progress import Progress
from headrace.services.evaluate import Score

WINDOW = 100
"""Episodes that `rollout/ep_rew_mean` is the mean of, as in Stable-Baselines3."""

EVENTS = "headrace"
"""Prefix of event file names that makes tensorboardX open them through `EventFiles`."""


class Appended:
    """A file that is appended to atomically: where the disk is full, pieces are dropped and the run goes on.

    TensorBoard's events go into one, too: tensorboardX's own would stop reading its queue after an error and hang.
    """

    def __init__(self, path: Path):
        self.path = path
        self.file = path.open("ab", buffering=0)
        self.pending = b""
        self.refused = False

    def write(self, data: bytes) -> None:
        self.pending += data

    def flush(self) -> None:
        """Append what is pending or nothing; the first of consecutive failures is reported."""
        piece, self.pending = self.pending, b""
        end = os.fstat(self.file.fileno()).st_size
        try:
            if self.file.write(piece) < len(piece):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.refused = False
        except OSError as error:
            self.file.truncate(end)
            if not self.refused:
                print(f"headrace: could not write {self.path} ({error.strerror}); training goes on.", file=sys.stderr)
            self.refused = True

    def close(self) -> None:
        self.file.close()


class EventFiles:
    """How tensorboardX opens a file of events."""

    def open(self, path: str) -> Appended:
        return Appended(Path(path.removeprefix(f"{EVENTS}:")))

    def directory_check(self, path: str) -> None:
        Path(path.removeprefix(f"{EVENTS}:")).mkdir(parents=True, exist_ok=True)


register_writer_factory(EVENTS, EventFiles())


class Recorder:
    """Collects episodes, evaluations and metrics and writes them; it never blocks training."""

    def __init__(self, directory: Path, elapsed: float = 0.0, env_steps: int = 0):
        self.path = directory / "metrics.jsonl"
        _keep_until(self.path, env_steps)
        self.file = Appended(self.path)
        self.events = SummaryWriter(f"{EVENTS}:{directory / 'tensorboard'}", flush_secs=10)
        self.recent: deque[Episode] = deque(maxlen=WINDOW)
        self.score: Score | None = None
        self.best = -math.inf
        self.started = (elapsed, env_steps)
        self.last: dict[str, Any] = {}
        self.log_info: Sequence[str] = ()
        """Info keys logged at the end of an episode, besides `is_success`."""
        self.met: set[str] = set()
        """Those of them that appeared in an episode."""

    def episodes(self, finished: list[Episode]) -> None:
        """Add finished episodes."""
        self.recent.extend(finished)
        for episode in finished if len(self.met) < len(self.log_info) else ():
            self.met |= episode.info.keys() & set(self.log_info)

    def evaluated(self, score: Score) -> bool:
        """Add an evaluation; True if it is the best so far."""
        self.score = score
        better = score.mean_reward > self.best
        self.best = max(self.best, score.mean_reward)
        return better

    def write(
        self, progress: Progress, elapsed: float, updates: int, figures: dict[str, float] | None = None
    ) -> dict[str, Any]:
        """Write a line of metrics and return it; `figures` are the system's own."""
        since = max(elapsed - self.started[0], 1e-9)
        line: dict[str, Any] = {
            "time/elapsed_s": round(elapsed, 3),
            "time/env_steps": progress.env_steps,
            "time/total_timesteps": progress.env_steps,
            "time/updates": updates,
            "time/update_frames": progress.update_frames,
            "time/fps": round((progress.env_steps - self.started[1]) / since, 1),
            "rollout/ep_rew_mean": _mean([episode.reward for episode in self.recent]),
            "rollout/ep_len_mean": _mean([episode.length for episode in self.recent]),
        }
        told = ("mean_reward", "std_reward", "mean_ep_length", "version")
        line |= {f"eval/{name}": getattr(self.score, name) if self.score else None for name in told}
        measured = {f"rollout/{name}": self._info_mean(name) for name in self.log_info}
        measured["rollout/success_rate"] = self._info_mean(SUCCESS)
        measured["eval/success_rate"] = self.score.success_rate if self.score else None
        line |= {name: value for name, value in measured.items() if value is not None}
        line |= {f"train/{name}": float(value) for name, value in progress.metrics.items()}
        line |= {name: round(value, 4) for name, value in (figures or {}).items()}
        # JSON has no NaN or infinity: they become null, like metrics that do not exist yet.
        line = {name: value if value is None or math.isfinite(value) else None for name, value in line.items()}
        self.file.write(json.dumps(line).encode() + b"\n")
        self.file.flush()
        for name, value in line.items():
            if value is not None:
                self.events.add_scalar(name, value, progress.env_steps)
        self.last = line
        return line

    def _info_mean(self, name: str) -> float | None:
        """The mean of an info key over the recent episodes that have it."""
        return _mean([episode.info[name] for episode in self.recent if name in episode.info])

    def close(self) -> None:
        self.file.close()
        self.events.close()


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """Every line of a run's metrics."""
    path = directory / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _keep_until(path: Path, env_steps: int) -> None:
    """Drop what was recorded after the checkpoint that a run resumes from."""
    if path.exists():
        lines = [line for line in path.read_text().splitlines() if line.endswith("}")]
        kept = [line for line in lines if json.loads(line)["time/env_steps"] <= env_steps]
        write_whole(path, "".join(line + "\n" for line in kept))


def _mean(values: list[Any]) -> float | None:
    return float(np.mean(values)) if values else None
