"""A video of an actor at play."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from headrace.run.run import Run
from headrace.services.video import Video
from headrace.services.view import Viewer

MOST_FRAMES = 2_000


def film_names(file: str, runs: list[Path]) -> list[str]:
    """The file of each run's video: the one given, or, of several runs, one with each run's name in it."""
    if len(runs) == 1:
        return [file]
    names = [run.resolve().name for run in runs]
    names = [name if names.count(name) == 1 else f"{name}-{i + 1}" for i, name in enumerate(names)]
    return [str(Path(file).with_stem(f"{Path(file).stem}-{name}")) for name in names]


def record(run: Run, file: str) -> int:
    """Play an episode, write it to `file`, and return the number of frames."""
    with closing(Viewer(run.graph, run.cells, run.env, run.seed)) as viewer, Video(file, viewer.fps) as video:
        while True:
            frame = viewer.frame()
            video.add(frame.image)
            if frame.ended or frame.step == MOST_FRAMES:
                return frame.step
