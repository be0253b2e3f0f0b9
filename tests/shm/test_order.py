"""Memory order: a fence stands between every payload and the counter that announces it, on both sides."""

from __future__ import annotations

import importlib
import platform
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from headrace.shm import memory
from headrace.shm.latest import Latest
from headrace.shm.memory import Arena
from headrace.shm.queue import Queue
from headrace.shm.stream import Receiver, Ring, Sender
from headrace.shm.wait import wait
from headrace.stores.replay import Table
from headrace.stores.rollout import Trajectories
from headrace.types import Box, Discrete, EnvSpec, struct, transition_struct

ONE = jax.ShapeDtypeStruct((1,), np.float32)


def room() -> Arena:
    return Arena(np.zeros(1 << 16, np.uint8))


@pytest.fixture
def at_fences(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], Any]], list[Any]]:
    """What `look` sees at each fence of a module from now on."""

    def watch(module: str, look: Callable[[], Any]) -> list[Any]:
        seen: list[Any] = []
        monkeypatch.setattr(importlib.import_module(f"headrace.{module}"), "fence", lambda: seen.append(look()))
        return seen

    return watch


def test_a_queue_announces_what_is_written_and_gives_back_what_was_read(at_fences):
    queue = Queue(room(), ONE, slots=2)

    def look() -> tuple[float, int, int, int]:
        return float(queue._arrays[0][0]), int(queue._versions[0]), queue.produced, queue.consumed

    seen = at_fences("shm.queue", look)
    queue.slot()[...] = 7
    queue.commit(version=3)
    assert seen == [(0.0, 0, 0, 0), (7.0, 3, 0, 0)]  # before it is written, and before it is counted
    queue.oldest()
    queue.release()
    assert seen[2:] == [(7.0, 3, 1, 0)] * 2  # before it is read, and before it is given back


def test_the_latest_is_marked_before_it_is_written_and_counted_after_that(at_fences):
    latest = Latest(room(), [ONE])

    def look() -> tuple[int, float, int]:
        return int(latest._begun[1]), float(latest._views[1][0][0]), latest.version

    seen = at_fences("shm.latest", look)
    latest.publish([np.full(1, 5, np.float32)])
    assert seen == [(1, 0.0, 0), (1, 5.0, 0)]
    assert latest.read()[1][0][0] == 5
    assert seen[2:] == [(1, 5.0, 1)] * 2  # before the copy, and before it is asked whether that was overtaken


def test_a_stream_announces_each_step_that_is_written_and_gives_back_what_was_read(at_fences):
    ring = Ring(room(), [jax.ShapeDtypeStruct((2, 1), np.float32)], 1, 1, steps=2, axis=1, stacked=True)
    sender, receiver = Sender(ring, 0), Receiver(ring, 0)

    def look() -> tuple[list[float], int, int]:
        return sender.views[0][0][:, 0].tolist(), int(ring.produced[0]), int(ring.consumed[0])

    seen = at_fences("shm.stream", look)

    def during(act: Callable[[], Any]) -> list[Any]:
        before = len(seen)
        act()
        return seen[before:]

    # The last fence of a send stands before its counter; one before the payload would do no harm.
    assert during(lambda: sender.send(0, 0, [3]))[-1] == ([3.0, 0.0], 0, 0)
    assert during(lambda: receiver.take(0)) == [([3.0, 0.0], 1, 0)]
    assert during(lambda: sender.send(0, 1, [4]))[-1] == ([3.0, 4.0], 1, 0)
    assert during(lambda: receiver.take(0)) == [([3.0, 4.0], 2, 0)]
    assert during(lambda: receiver.release(0)) == [([3.0, 4.0], 2, 0)]
    assert int(ring.consumed[0]) == 1


def test_a_table_counts_rows_that_are_written_and_asks_again_when_they_were_read(at_fences):
    spec = EnvSpec("toy", Box((2,)), Discrete(5), 1)
    handed = transition_struct(spec, struct(spec.action, 1), {})
    table = Table(handed, writers=1, capacity=4)
    seen = at_fences("stores.replay", lambda: (float(table.rows.reward[0]), int(table.written[0])))
    rows = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), handed)
    table.insert(rows, 0, 0)
    assert seen == [(1.0, 0)]
    table.sample(np.random.default_rng(0), (2,), gamma=0.9, steps=1)
    assert seen[1:] == [(1.0, 1)] * 2


def test_trajectories_are_counted_for_each_reader_when_they_are_written(at_fences):
    store = Trajectories([jax.ShapeDtypeStruct((1, 1), np.float32)], writers=1, readers=2, ahead=0, arena=room())
    first, second = (queues[0] for queues in store.queues)

    def look() -> tuple[float, int, int, float, int, int]:
        counted = [(float(queue._arrays[0][0][0, 0]), queue.produced, queue.consumed) for queue in (first, second)]
        return (*counted[0], *counted[1])

    seen = at_fences("shm.queue", look)
    (lent,) = store.room(0, 0)
    lent[...] = 6
    store.insert([lent], 0, 0)
    assert (6.0, 0, 0, 0.0, 0, 0) in seen  # before it is counted for the first reader
    assert seen[-1] == (6.0, 1, 0, 6.0, 0, 0)  # and for the second
    assert (first.produced, second.produced) == (1, 1)
    del seen[:]
    store.draw(None, np.random.default_rng(0), 0, 1, 1)
    store.release(1, 1)
    assert seen == [(6.0, 1, 0, 6.0, 1, 0)] * 2
    assert (first.consumed, second.consumed) == (0, 1)


@pytest.mark.parametrize("late", [False, True])
def test_what_was_waited_for_is_looked_at_after_a_fence(at_fences, late):
    looks = iter([False] * 60 * late + [True])
    seen = at_fences("shm.wait", lambda: next(looks, "ready"))
    wait(lambda: next(looks), 600.0, lambda: True)
    assert seen == ["ready"]


def test_a_fence_is_nothing_on_x86_and_works_from_every_thread_elsewhere():
    x86 = platform.machine().lower() in ("x86_64", "amd64", "i686", "x86")
    assert memory.fence is (memory._nothing if x86 else memory._fence)
    threads = [threading.Thread(target=lambda: [memory._fence() for _ in range(1_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
