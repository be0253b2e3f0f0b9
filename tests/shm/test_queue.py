"""queue: everything, in order, whoever is slow and whoever dies."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from headrace.errors import PeerGone
from headrace.shm.memory import Arena
from headrace.shm.queue import Queue
from headrace.shm.wait import wait

from .peers import TIMEOUT, TRAJECTORY, f32, killed, make, produce, result, spawn, trajectories, until


def consume(queue, number, alive, pause=0.0):
    """Take `number` more, each of which must be the next."""
    for i in range(queue.consumed, queue.consumed + number):
        wait(lambda: len(queue) > 0, TIMEOUT, alive)
        arrays = queue.oldest()
        assert queue.version == 10 * i
        assert (arrays["obs"] == i).all()
        assert (arrays["reward"] == -i).all()
        assert len(queue) <= queue.slots
        queue.release()
        if pause:
            time.sleep(random.random() * pause)


def small(slots=3):
    return Queue(Arena(np.zeros(1 << 16, np.uint8)), TRAJECTORY, slots)


def put(queue, i):
    queue.slot()["obs"][...] = i
    queue.commit(10 * i)


@pytest.mark.parametrize(("number", "producer", "consumer"), [(5_000, 0, 0), (400, 0, 2e-3), (400, 2e-3, 0)])
def test_nothing_is_lost_or_reordered_between_processes(number, producer, consumer):
    memory, (_, queue) = make(trajectories)
    process = spawn(produce, memory, number=number, pause=producer)
    consume(queue, number, lambda: process.poll() is None, consumer)
    assert result(process) == number
    assert len(queue) == 0
    memory.close()


def test_a_producer_killed_half_way_through_a_slot_is_replaced_without_loss():
    memory, (flags, queue) = make(trajectories)
    first = spawn(produce, memory, number=3_000, half_at=1_000)
    consume(queue, 998, lambda: first.poll() is None)
    until(lambda: flags[1])
    killed(first)
    assert (queue.produced, len(queue)) == (1_000, 2)
    consume(queue, 1, lambda: False)  # what it had committed is still there
    second = spawn(produce, memory, number=3_000)
    consume(queue, 200, lambda: second.poll() is None)
    killed(second)  # wherever it is
    consume(queue, len(queue), lambda: False)
    with pytest.raises(PeerGone):
        consume(queue, 1, lambda: False)
    third = spawn(produce, memory, number=3_000)
    consume(queue, 3_000 - queue.consumed, lambda: third.poll() is None)
    assert result(third) == 3_000
    memory.close()


def test_neither_side_goes_beyond_the_bound():
    queue = small()
    for first in (0, 3, 6):
        assert (len(queue), queue.full) == (0, False)
        with pytest.raises(AssertionError, match="an empty queue has no oldest slot"):
            queue.oldest()
        for i in range(3):
            assert (len(queue), queue.full) == (i, False)
            put(queue, first + i)
        assert (len(queue), queue.full) == (3, True)
        with pytest.raises(AssertionError, match="a queue of 3 slots is full"):
            queue.slot()
        for i in range(3):
            assert queue.version == 10 * (first + i)
            assert (queue.oldest()["obs"] == first + i).all()
            queue.release()
            assert not queue.full


def test_what_was_not_committed_is_written_again_and_what_was_not_released_is_seen_again():
    arrays = np.zeros(1 << 16, np.uint8)
    queue = Queue(Arena(arrays), TRAJECTORY, slots=3)
    put(queue, 1)
    queue.slot()["obs"][...] = -1
    queue.oldest()
    successor = Queue(Arena(arrays), TRAJECTORY, slots=3)
    assert (successor.produced, successor.consumed) == (1, 0)
    put(successor, 2)
    for i in (1, 2):
        assert (successor.version, float(successor.oldest()["obs"][0, 0])) == (10 * i, i)
        successor.release()
    assert len(queue) == 0


@pytest.mark.parametrize("number", [0, 2, 7])
def test_a_queue_that_is_restarted_is_empty_and_goes_on_from_there(number):
    queue = small()
    for i in range(3):
        put(queue, i)
    queue.release()
    queue.restart(number)
    assert (queue.produced, queue.consumed, len(queue), queue.full) == (number, number, 0, False)
    for i in range(number, number + 5):
        put(queue, i)
        assert (queue.version, float(queue.oldest()["obs"][0, 0])) == (10 * i, i)
        queue.release()


def test_a_slot_without_a_version_has_version_0():
    queue = small(1)
    put(queue, 5)
    queue.release()
    queue.slot()
    queue.commit()
    assert queue.version == 0


def test_a_single_array_is_a_tree_too():
    queue = Queue(Arena(np.zeros(4096, np.uint8)), f32(3), slots=2)
    queue.slot()[:] = [1, 2, 3]
    queue.commit(4)
    assert (queue.version, queue.oldest().tolist()) == (4, [1, 2, 3])
