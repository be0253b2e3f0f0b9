"""Trajectories over shared memory: every reader gets each pass once, in order, whoever dies."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.errors import PeerGone
from headrace.shm.wait import wait

from .peers import READERS, TIMEOUT, killed, make, put_rollouts, result, rollouts, spawn, until


class Reading:
    """All readers of the store, and which generation wrote each pass that they drew."""

    def __init__(self, store):
        self.store = store
        self.generations = [[] for _ in range(READERS)]

    def take(self, reader, number, alive):
        """Learn from the next `number` passes."""
        generations, queue = self.generations[reader], self.store.queues[reader][0]
        for i in range(len(generations), len(generations) + number):
            wait(lambda: len(queue) > 0, TIMEOUT, alive)
            obs, reward = self.store.draw(None, np.random.default_rng(0), i, 1, reader)
            generation = int(obs[0, 0, 0]) - 10 * i
            assert generation in (1, 2, 3)
            assert (obs == 10 * i + generation).all()
            assert (reward == -(10 * i + generation)).all()
            generations.append(generation)
            self.store.release(reader, i + 1)

    def take_all(self, number, alive):
        for _ in range(number):
            for reader in range(READERS):
                self.take(reader, 1, alive)


def test_a_writer_that_dies_half_way_or_between_two_readers_is_replaced_without_loss():
    memory, (flags, store) = make(rollouts)
    reading, queues = Reading(store), [queues[0] for queues in store.queues]
    first = spawn(put_rollouts, memory, number=300, generation=1, half_at=100)
    reading.take_all(99, lambda: first.poll() is None)
    until(lambda: flags[1])
    killed(first)
    assert [queue.produced for queue in queues] == [100, 100]
    flags[1] = 0

    second = spawn(put_rollouts, memory, number=300, generation=2, between_at=200)
    reading.take_all(101, lambda: second.poll() is None)
    until(lambda: flags[1])
    killed(second)
    assert [queue.produced for queue in queues] == [201, 200]
    with pytest.raises(PeerGone):
        reading.take(1, 1, lambda: False)

    third = spawn(put_rollouts, memory, number=300, generation=3)
    reading.take(1, 1, lambda: third.poll() is None)
    reading.take(0, 1, lambda: third.poll() is None)
    reading.take_all(99, lambda: third.poll() is None)
    assert result(third) == 300
    assert reading.generations[0] == [1] * 100 + [2] * 101 + [3] * 99  # what it had of the second stays
    assert reading.generations[1] == [1] * 100 + [2] * 100 + [3] * 100
    assert [len(queue) for queue in queues] == [0, 0]
    memory.close()
