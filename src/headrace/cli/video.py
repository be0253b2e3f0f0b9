"""A video of an actor at play."""

from __future__ import annotations

from headrace.api import Run
from headrace.services.video import Video
from headrace.services.view import Viewer

MOST_FRAMES = 2_000


def record(run: Run, file: str) -> int:
    """Play an episode, write it to `file`, and return the number of frames."""
    viewer = Viewer(run.graph, run.cells, run.env, run.seed)
    frames = 0
    try:
        with Video(file, viewer.fps) as video:
            ended = False
            while not ended and frames < MOST_FRAMES:
                frame = viewer.frame()
                video.add(frame.image)
                ended = frame.ended
                frames += 1
    finally:
        viewer.close()
    return frames
