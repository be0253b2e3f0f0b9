"""latest: whole versions only, whatever is published meanwhile."""

from __future__ import annotations

import os

import numpy as np
import pytest

from headrace.shm.latest import BUFFERS, Latest
from headrace.shm.memory import Arena

from .peers import f32, filled, killed, make, publish_weights, read_weights, result, spawn, until, weights

LONG = os.environ.get("HEADRACE_LONG") == "1"


def small():
    return Latest(Arena(np.zeros(4096, np.uint8)), [f32(2, 3), f32()])


def test_versions_count_up_and_only_newer_ones_are_read():
    latest = small()
    assert latest.version == 0
    assert latest.read() is None
    for version in range(1, 6):
        assert latest.publish(filled(latest, version)) == version
        number, (matrix, scalar) = latest.read(newer_than=version - 1)
        assert (number, matrix.shape, scalar.shape) == (version, (2, 3), ())
        assert (matrix == version).all()
        assert scalar == version
        assert latest.read(newer_than=version) is None


def test_what_was_read_is_a_copy_in_the_readers_memory():
    latest = small()
    latest.publish(filled(latest, 1))
    _, fresh = latest.read()
    into = latest.room()
    _, reused = latest.read(into=into)
    assert all(np.shares_memory(array, into) for array in reused)
    for version in range(2, 12):
        latest.publish(filled(latest, version))
    assert (fresh[0] == 1).all()
    assert (reused[0] == 1).all()
    latest.read(into=into)
    assert (reused[0] == 11).all()


def test_a_reader_that_is_overtaken_tries_again():
    latest = small()
    latest.publish(filled(latest, 1))
    rooms = []

    def room():
        if not rooms:  # between the look at the version and the copy: enough more to overwrite it are published
            for version in range(2, BUFFERS + 2):
                latest.publish(filled(latest, version))
        rooms.append(np.empty(latest._buffers[0].size, np.uint8))
        return rooms[-1]

    latest.room = room
    version, arrays = latest.read()
    assert (version, len(rooms)) == (BUFFERS + 1, 2)
    assert (arrays[0] == BUFFERS + 1).all()


def test_too_few_arrays_are_refused_and_no_version_comes_of_it():
    latest = small()
    latest.publish(filled(latest, 1))
    with pytest.raises(ValueError, match="zip"):
        latest.publish(filled(latest, 2)[:1])
    assert latest.version == 1
    assert (latest.read()[1][0] == 1).all()


def test_readers_in_other_processes_never_see_a_torn_version_though_a_writer_dies_half_way():
    memory, (flags, latest) = make(weights)
    readers = [spawn(read_weights, memory, reuse=reuse) for reuse in (False, True)]
    first = spawn(publish_weights, memory, seconds=0, versions=501, half_at=500)
    wanted = {"seconds": 10 if LONG else 1, "versions": 100_000 if LONG else 2_000, "reads": 101}
    second = spawn(publish_weights, memory, **wanted, turn=2)
    until(lambda: flags[2] and flags[3])
    flags[0] = 1
    until(lambda: flags[1])
    killed(first)
    assert latest.version == 499
    flags[0] = 2
    last = result(second)
    assert last >= (100_000 if LONG else 2_000)
    for reader in readers:
        found = result(reader)
        assert found["torn"] == 0
        assert found["last"] == last
        assert found["count"] > 100
    memory.close()
