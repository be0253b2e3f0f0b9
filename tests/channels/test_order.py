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

from headrace.channels import memory
from headrace.channels.latest import Latest
from headrace.channels.lockstep import Client, Lockstep, Server
from headrace.channels.memory import Layout
from headrace.channels.queue import Queue
from headrace.channels.table import Table
from headrace.types import Box, Discrete, EnvSpec, struct, transition_struct

ONE = jax.ShapeDtypeStruct((1,), np.float32)


def room() -> Layout:
    return Layout(np.zeros(1 << 16, np.uint8))


@pytest.fixture
def at_fences(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], Any]], list[Any]]:
    """What `look` sees at each fence of a channel from now on."""

    def watch(channel: str, look: Callable[[], Any]) -> list[Any]:
        seen: list[Any] = []
        monkeypatch.setattr(
            importlib.import_module(f"headrace.channels.{channel}"), "fence", lambda: seen.append(look())
        )
        return seen

    return watch


def test_a_queue_announces_what_is_written_and_gives_back_what_was_read(at_fences):
    queue = Queue(room(), ONE, slots=2)
    seen = at_fences("queue", lambda: (float(queue._arrays[0][0]), queue.produced, queue.consumed))
    queue.reserve(1.0, lambda: True)[...] = 7
    queue.commit(version=1)
    queue.peek(1.0, lambda: True)
    queue.release()
    assert seen == [(7.0, 0, 0), (7.0, 1, 0)]


def test_the_latest_is_marked_before_it_is_written_and_counted_after_that(at_fences):
    latest = Latest(room(), [ONE])

    def look() -> tuple[int, float, int]:
        return int(latest._begun[1]), float(latest._views[1][0][0]), latest.version

    seen = at_fences("latest", look)
    latest.publish([np.full(1, 5, np.float32)])
    assert seen == [(1, 0.0, 0), (1, 5.0, 0)]
    assert latest.read()[1][0][0] == 5
    assert seen[2:] == [(1, 5.0, 1)] * 2  # before the copy, and before it is asked whether that was overtaken


def test_requests_and_replies_are_written_before_they_are_counted(at_fences):
    lockstep = Lockstep(room(), ONE, ONE, replicas=1)
    client, server = Client(lockstep, 0), Server(lockstep)

    def look() -> tuple[float, int, float, int]:
        asked, answered = int(lockstep.asked[0]), int(lockstep.answered[0])
        return float(lockstep.requests[0, 0]), asked, float(lockstep.replies[0, 0]), answered

    seen = at_fences("lockstep", look)
    client.send(np.full(1, 3, np.float32), 1.0, lambda: True)
    server.poll()
    server.reply(0, np.full(1, 4, np.float32))
    assert seen == [(3.0, 0, 0.0, 0), (3.0, 1, 0.0, 0), (3.0, 1, 4.0, 0)]


def test_a_table_counts_rows_that_are_written_and_asks_again_when_they_were_read(at_fences):
    spec = EnvSpec("toy", Box((2,)), Discrete(5), 1)
    handed = transition_struct(spec, struct(spec.action, 1), {})
    table = Table(handed, writers=1, capacity=4)
    seen = at_fences("table", lambda: (float(table.rows.reward[0]), int(table.written[0])))
    rows = jax.tree.map(lambda leaf: np.ones(leaf.shape, leaf.dtype), handed)
    table.insert(rows)
    assert seen == [(1.0, 0)]
    table.sample(np.random.default_rng(0), (2,), gamma=0.9, steps=1)
    assert seen[1:] == [(1.0, 1)] * 2


def test_a_fence_is_nothing_on_x86_and_works_from_every_thread_elsewhere():
    x86 = platform.machine().lower() in ("x86_64", "amd64", "i686", "x86")
    assert memory.fence is (memory._nothing if x86 else memory._fence)
    threads = [threading.Thread(target=lambda: [memory._fence() for _ in range(1_000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
