"""The evaluator and the viewer, which read the newest weights and never block training."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import numpy as np

from headrace.compile.cells import make_flat
from headrace.exec.cells import Cells, readers
from headrace.fabric.results import FRAME
from headrace.runtimes.boot import lower_priority
from headrace.runtimes.worker import Worker
from headrace.services.evaluate import Evaluator
from headrace.services.video import Video
from headrace.services.view import Frame, Viewer, fit
from headrace.services.window import Window

AMPLE_SHARE, SHARE, CROWDED_SHARE = 0.25, 0.1, 0.03
"""Share of one core that each may use: where only samplers run, which replay loops leave half idle; where
collecting and learning take turns; and where something learns beside the samplers."""


LONGEST_VIDEO = 20.0
"""Seconds after which a video is closed, whether the episode is over or not: with 0.03 of a core the viewer takes a
quarter of a second over a frame, so an episode of 1,000 would take minutes."""


def evaluate(worker: Worker) -> None:
    """Play the newest weights without exploring, again and again, and report the returns with their version."""
    options, results, layout = worker.options, worker.results, worker.fabric.layout
    mirror = _subscribed(worker)
    evaluator: Evaluator | None = None
    last = 0
    while worker.wait(partial(_has_news, worker, last)):
        if not mirror.refresh() and evaluator is not None:
            if not worker.sleep(time.monotonic() + 0.05):
                break
            continue
        last, began, first = worker.fabric.stored()[1], time.process_time(), evaluator is None
        cells = layout.cells(mirror.flat)
        if evaluator is None:
            worker.suspend_watchdog()
            evaluator = Evaluator(worker.graph, cells, worker.env, worker.seed, options.eval_episodes)
        score = evaluator.score(cells, worker.beat)
        worker.ran_play()
        table = np.full((3, options.eval_episodes), np.nan)
        table[0], table[1], table[2, : len(score.successes)] = score.returns, score.lengths, score.successes
        actor = [np.asarray(mirror.flat[i]) for i in results.played]
        results.score.publish([table, np.array([mirror.version, last]), *actor])
        # The first one compiles, so its time does not count.
        if options.eval_every is None and not worker.sleep(time.monotonic() + 1 if first else _rest(worker, began)):
            break
    if evaluator is not None:
        evaluator.close()


def view(worker: Worker) -> None:
    """Play the newest weights and render them: to shared memory, a window, and videos at intervals."""
    options, results, layout = worker.options, worker.results, worker.fabric.layout
    mirror = _subscribed(worker)
    if not worker.wait(lambda: bool(worker.ledger.learned.min() > 0)):
        return
    mirror.refresh()
    worker.suspend_watchdog()
    viewer = Viewer(worker.graph, layout.cells(mirror.flat), worker.env, worker.seed)
    window = (
        Window(f"headrace: {worker.graph.algorithm} on {worker.graph.spec.id}") if options.view == "window" else None
    )
    recording: Video | None = None
    due, end = time.monotonic(), 0.0
    try:
        while not worker.over():
            wanted, began = time.monotonic() + 1 / viewer.fps, time.process_time()
            if not viewer.count:
                worker.suspend_watchdog()
            if options.record_every is not None and recording is None and time.monotonic() >= due:
                if viewer.steps:
                    _play_newest(worker, viewer, mirror)
                    viewer.restart()
                due = time.monotonic() + options.record_every
                end = time.monotonic() + min(LONGEST_VIDEO, options.record_every / 2)
                recording = _video(worker, viewer.fps)
            frame = viewer.frame()
            worker.ran_play()
            if viewer.count == 1:
                lower_priority()  # not before: at low priority on busy cores, loading and compiling would take minutes
            results.frame.publish(_framed(frame))
            if window is not None and not window.show(frame.image):
                window.close()
                window = None
            if recording is not None:
                recording.add(frame.image)
                if frame.ended or time.monotonic() >= end:
                    recording.close()
                    recording = None
            if frame.ended:
                _play_newest(worker, viewer, mirror)
            if not worker.sleep(max(wanted, _rest(worker, began))):
                break
        if recording is not None:
            recording.close()
    finally:
        if recording is not None:
            recording.discard()
        viewer.close()


def _subscribed(worker: Worker) -> Cells:
    """The cells that play reads, in the newest version."""
    fabric = worker.fabric
    return Cells(make_flat(fabric.begin), readers(fabric, (bound.cell for bound in worker.graph.play.reads)))


def _play_newest(worker: Worker, viewer: Viewer, mirror: Cells) -> None:
    if mirror.refresh():
        viewer.load(worker.fabric.layout.cells(mirror.flat))


def _video(worker: Worker, fps: float) -> Video:
    folder = Path(worker.options.videos)
    folder.mkdir(parents=True, exist_ok=True)
    return Video(folder / f"{worker.fabric.stored()[1]:012d}.{worker.options.record_format}", fps)


def _has_news(worker: Worker, last: int) -> bool:
    """Whether there is something new to evaluate since `last` time."""
    steps = worker.fabric.stored()[1] - last
    return bool(worker.ledger.learned.min() > 0) and steps >= (worker.options.eval_every or 1)


def _rest(worker: Worker, began: float) -> float:
    """Until when to rest so that the processor's time used since `began` is no more than a share of all time."""
    beside = set(worker.plan.collector.cores)
    crowded = any(not beside or not learner.cores or beside & set(learner.cores) for learner in worker.plan.learners)
    share = CROWDED_SHARE if crowded else AMPLE_SHARE
    if worker.plan.turns:
        share = SHARE  # collecting or learning is always idle
    return time.monotonic() + (time.process_time() - began) * (1 - share) / share


def _framed(frame: Frame) -> list[np.ndarray]:
    image = fit(frame.image, *FRAME[:2])
    height, width = image.shape[:2]
    room = np.zeros(FRAME, np.uint8)
    room[:height, :width] = image
    return [room, np.array([height, width, frame.episode, frame.step, frame.reward])]


SERVE = {"evaluator": evaluate, "viewer": view}
"""What each service does."""
