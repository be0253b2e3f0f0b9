"""Trajectories: lent, committed and learned from once, in order, by every reader."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from headrace.shm.memory import Arena
from headrace.stores.rollout import Put, Take, Trajectories

STEPS, ENVS = 3, 2
HANDED = {
    "obs": jax.ShapeDtypeStruct((STEPS, ENVS, 4), np.float32),
    "reward": jax.ShapeDtypeStruct((STEPS, ENVS), np.float32),
}
TAKE = Take("rollout.put", epochs=1, staleness=0)


def store_of(writers=1, readers=1, ahead=1, block=None):
    return Trajectories(HANDED, writers, readers, ahead, Arena(np.zeros(1 << 16, np.uint8) if block is None else block))


def rows(value):
    return [np.full(leaf.shape, value, leaf.dtype) for leaf in jax.tree.leaves(HANDED)]


def put(store, number, value, writer=0):
    """Collect a pass as a writer does: into what the store lends, if it does."""
    lent = store.room(writer, number)
    for held, row in zip(lent or (), rows(value), strict=lent is not None):
        held[...] = row
    store.insert(lent or rows(value), writer, number)


def drawn(store, number, reader=0):
    return store.draw(TAKE, np.random.default_rng(0), number, 1, reader)


def held(store, number, reader=0):
    """The one value that all of the next pass of a reader has."""
    (value,) = {float(x) for leaf in drawn(store, number, reader) for x in np.unique(leaf)}
    return value


def test_a_writer_collects_into_the_slot_and_nothing_is_copied_when_it_is_committed():
    store = store_of()
    for number in range(5):
        lent = store.room(0, number)
        assert [leaf.shape for leaf in lent] == [(STEPS, ENVS, 4), (STEPS, ENVS)]
        for array, row in zip(lent, rows(number), strict=True):
            array[...] = row
            array.flags.writeable = False  # whoever copied into it now would be found out
        store.insert(lent, 0, number)
        for array in lent:
            array.flags.writeable = True
        assert all(np.shares_memory(*both) for both in zip(drawn(store, number), lent, strict=True))
        assert held(store, number) == number
        store.release(0, number + 1)


def test_what_was_collected_elsewhere_is_copied():
    store = store_of()
    mine = rows(4)
    store.insert(mine, 0, 0)
    mine[0][...] = 99
    assert held(store, 0) == 4


def test_every_reader_has_what_the_first_was_given():
    store = store_of(readers=3)
    for number in range(2):
        put(store, number, number + 5)
    for reader in (2, 0, 1):
        for number in range(2):
            assert held(store, number, reader) == number + 5
            store.release(reader, number + 1)


def test_writers_are_put_side_by_side_along_the_environments():
    store = store_of(writers=3)
    for writer in (1, 2, 0):
        put(store, 0, 10 + writer, writer)
    obs, reward = drawn(store, 0)
    assert obs.shape == (STEPS, 3 * ENVS, 4)
    assert reward.shape == (STEPS, 3 * ENVS)
    assert reward[0].tolist() == [10, 10, 11, 11, 12, 12]
    assert (obs == reward[..., None]).all()


def test_a_pass_that_was_put_before_stays_as_it_was_and_no_room_is_lent_for_it():
    store = store_of(readers=2)
    put(store, 0, 1)
    assert store.room(0, 0) is None
    put(store, 0, 2)
    put(store, 1, 3)
    for reader in range(2):
        assert [len(queue) for queue in store.queues[reader]] == [2]
        assert held(store, 0, reader) == 1
        store.release(reader, 1)
        assert held(store, 1, reader) == 3


def test_a_successor_puts_only_where_a_predecessor_that_died_between_readers_had_not():
    block = np.zeros(1 << 16, np.uint8)
    store = store_of(readers=3, block=block)
    put(store, 0, 1)

    def dies():
        raise SystemExit

    store.queues[1][0].slot = dies
    with pytest.raises(SystemExit):
        put(store, 1, 2)
    assert [queues[0].produced for queues in store.queues] == [2, 1, 1]

    successor = store_of(readers=3, block=block)
    put(successor, 1, 3)
    put(successor, 2, 4)
    for reader, values in enumerate([(1, 2, 4), (1, 3, 4), (1, 3, 4)]):
        for number, value in enumerate(values):
            assert held(successor, number, reader) == value
            successor.release(reader, number + 1)


def test_a_successor_is_lent_the_slot_that_its_predecessor_had_half_written():
    block = np.zeros(1 << 16, np.uint8)
    half, _ = store_of(block=block).room(0, 0)
    half[...] = -1
    successor = store_of(block=block)
    assert np.shares_memory(successor.room(0, 0)[0], half)
    put(successor, 0, 2)
    assert held(successor, 0) == 2


def test_what_was_learned_from_is_let_go_of_once():
    store = store_of(writers=2, ahead=2)
    for number in range(3):
        for writer in range(2):
            put(store, number, number, writer)
    store.release(0, 0)
    assert held(store, 0) == 0
    for learned in (2, 2, 1):  # as successors do whose predecessors had counted two passes and released fewer
        store.release(0, learned)
        assert [queue.consumed for queue in store.queues[0]] == [2, 2]
    assert held(store, 2) == 2


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_there_is_room_for_a_pass_while_as_many_as_may_be_are_ahead_and_one_is_being_given_back(ahead):
    store = store_of(ahead=ahead)
    for number in range(ahead + 2):
        put(store, number, number)
    with pytest.raises(AssertionError, match="is full"):
        store.room(0, ahead + 2)
    store.release(0, 1)
    put(store, ahead + 2, 7)
    assert held(store, 1) == 1


def test_a_checkpoint_keeps_nothing_and_what_goes_on_from_it_begins_empty():
    store = store_of(writers=2, readers=2)
    put(store, 0, 1)
    assert store.contents() is None
    store.sever(0)
    store.fill(None, 7)
    for queue in (queue for queues in store.queues for queue in queues):
        assert (queue.produced, queue.consumed) == (7, 7)
    assert store.room(0, 6) is None
    store.insert(rows(2), 0, 6)  # was learned from before the checkpoint
    for writer in range(2):
        put(store, 7, 8, writer)
    for reader in range(2):
        assert held(store, 7, reader) == 8
        store.release(reader, 8)
        assert [len(queue) for queue in store.queues[reader]] == [0, 0]


def test_a_loop_that_puts_makes_them():
    arena = Arena(np.zeros(1 << 16, np.uint8))
    store = Put().make(HANDED, 2, 3, 1, arena)
    assert isinstance(store, Trajectories)
    assert [[queue.slots for queue in queues] for queues in store.queues] == [[3, 3]] * 3
    assert arena.used >= 2 * 3 * 3 * sum(leaf.size * 4 for leaf in jax.tree.leaves(HANDED))
