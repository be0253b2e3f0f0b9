"""memory: the same bytes in every process, and none when they are gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headrace.errors import CapacityError
from headrace.shm.memory import LINE, Arena, Memory, measure
from headrace.stores.replay import Table

from .peers import TIMEOUT, killed, own_and_share, result, spawn, step_struct, touch

SHM = Path("/dev/shm")
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def block(number=4096, **options):
    return Memory.create(number, "a test", "free some", **options)


def descriptors(label):
    """The open files of all our processes whose name has this label."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            found += [entry] if label in os.readlink(entry) else []
        except OSError:
            continue  # it ended meanwhile
    return found


@pytest.mark.parametrize("named", [False, True])
def test_another_process_sees_the_same_bytes_and_its_end_changes_nothing(named):
    memory = block(named=named)
    array = memory.arena().array(8, np.int64)
    array[:] = range(8)
    for value in (70, 71) if named else (70,):  # the second finds the block that the first let go of
        assert result(spawn(touch, memory, value=value)) == [1, 2, 3, 4, 5, 6, 7]
        assert array[0] == value
    memory.close()


@pytest.mark.parametrize("named", [False, True])
def test_closing_leaves_views_valid_and_may_be_done_twice(named):
    memory = block(named=named)
    array = memory.arena().array(8, np.int64)
    if named:
        assert (SHM / str(memory.description["name"])).exists()
    memory.close()
    memory.close()
    array[:] = 3
    assert array.sum() == 24
    if named:
        assert not (SHM / str(memory.description["name"])).exists()


def test_an_end_with_open_named_memory_and_views_is_silent():
    code = """if True:
        import numpy as np
        from headrace.shm.memory import Memory
        for close in (True, False):
            memory = Memory.create(4096, "a test", "free some", named=True)
            view = memory.arena().array(8, np.int64)
            if close: memory.close()
        memory.close()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stderr) == (0, "")


@linux
@pytest.mark.parametrize("named", [False, True])
def test_processes_that_are_killed_leave_nothing(named):
    before = set(SHM.iterdir())
    label = f"kill test {os.getpid()}"
    start = block()
    owner = spawn(own_and_share, start, what=label, named=named)
    told = json.loads(owner.stdout.readline())
    assert bool(descriptors(label)) is not named
    killed(owner)
    os.kill(told["child"], signal.SIGKILL)
    end = time.monotonic() + TIMEOUT
    while (set(SHM.iterdir()) - before or descriptors(label)) and time.monotonic() < end:
        time.sleep(0.02)
    assert not set(SHM.iterdir()) - before
    assert not descriptors(label)
    start.close()


def test_too_large_is_refused_before_it_is_made():
    with pytest.raises(CapacityError, match=r"a test needs 9.095e\+05 TiB|a test needs .* free some\."):
        block(10**18)


def test_a_layout_gives_every_process_the_same_aligned_views():
    struct = {"a": jax.ShapeDtypeStruct((3, 5), jnp.bfloat16), "b": [jax.ShapeDtypeStruct((), jnp.float32)]}

    def build(arena):
        return arena.tree(struct), arena.counters(3), arena.array((0, 4), np.int8), arena.tree(struct, 2, 7)

    memory = block(measure(build))
    assert measure(build) == 2 * LINE + 3 * LINE + 0 + 448 + LINE
    (tree, counters, empty, wide), (again, counted, _, _) = build(memory.arena()), build(memory.arena())
    assert (tree["a"].shape, tree["a"].dtype, tree["b"][0].shape) == ((3, 5), jnp.bfloat16, ())
    assert (empty.shape, wide["a"].shape, wide["b"][0].shape) == ((0, 4), (2, 7, 3, 5), (2, 7))
    for leaf in (*jax.tree.leaves(tree), counters, *jax.tree.leaves(wide)):
        assert leaf.ctypes.data % LINE == 0
        assert not leaf.any()
    assert counters.strides == (LINE,)
    tree["a"][...] = 1.5
    counters[:] = [4, 5, 6]
    assert (again["a"] == 1.5).all()
    assert counted.tolist() == [4, 5, 6]
    assert not wide["a"].any()


def test_a_block_that_is_too_small_is_refused():
    with pytest.raises(ValueError, match="no room for an array that ends at byte 4104"):
        block(4096).arena().array(513, np.int64)


def test_measuring_takes_no_memory():
    def build(arena):
        return Table(step_struct(), 2, 10**12, allocate=arena.array)

    assert measure(build) > 10**14
    with pytest.raises(CapacityError, match="replay"):
        Memory.create(measure(build), "a replay store", "set replay_capacity lower")


def test_layout_arguments_are_those_of_zeros():
    arena = Arena(np.zeros(1024, np.uint8))
    assert arena.array(3).dtype == np.zeros(3).dtype
    assert arena.array((2, 2), "int32").shape == (2, 2)
