"""queue: everything, in order, whoever is slow and whoever dies."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from headrace.channels.memory import Layout
from headrace.channels.queue import Queue
from headrace.errors import OverdueError, PeerGone

from .peers import TIMEOUT, TRAJECTORY, f32, killed, make, produce, result, spawn, trajectories, until


def consume(queue, number, alive, pause=0.0):
    """Take `number` more, each of which must be the next."""
    for i in range(queue.consumed, queue.consumed + number):
        version, arrays = queue.peek(TIMEOUT, alive)
        assert version == 10 * i
        assert (arrays["obs"] == i).all()
        assert (arrays["reward"] == -i).all()
        queue.release()
        if pause:
            time.sleep(random.random() * pause)


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
    with pytest.raises(PeerGone, match="the producer of an empty queue has ended"):
        queue.peek(TIMEOUT, lambda: False)
    third = spawn(produce, memory, number=3_000)
    consume(queue, 3_000 - queue.consumed, lambda: third.poll() is None)
    assert result(third) == 3_000
    memory.close()


def test_both_sides_block_at_the_bound():
    queue = Queue(Layout(np.zeros(1 << 16, np.uint8)), TRAJECTORY, slots=3)
    with pytest.raises(OverdueError, match="the producer of an empty queue"):
        queue.peek(0.01, lambda: True)
    for i in range(3):
        queue.reserve(0.01, lambda: True)["obs"][...] = i
        queue.commit(i)
    with pytest.raises(OverdueError, match="the consumer of a full queue"):
        queue.reserve(0.01, lambda: True)
    with pytest.raises(PeerGone):
        queue.reserve(60, lambda: False)
    for i in range(3):
        slot = queue.peek(0.01, lambda: True)
        assert slot.version == i
        assert queue.peek(0.01, lambda: True) == slot or (slot.arrays["obs"] == i).all()
        queue.release()
    queue.reserve(0.01, lambda: True)


def test_a_single_array_is_a_tree_too():
    queue = Queue(Layout(np.zeros(4096, np.uint8)), f32(3), slots=2)
    queue.reserve(1, lambda: True)[:] = [1, 2, 3]
    queue.commit(4)
    assert queue.peek(1, lambda: True).arrays.tolist() == [1, 2, 3]
