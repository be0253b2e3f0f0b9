"""The other processes of the channel tests: each runs one function of this file over memory that it attaches."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import time

import jax
import numpy as np

from headrace.shm.latest import Latest
from headrace.shm.memory import Memory, measure
from headrace.shm.queue import Queue
from headrace.shm.stream import Receiver, Ring, Sender
from headrace.shm.wait import wait
from headrace.stores.replay import Table
from headrace.stores.rollout import Trajectories
from headrace.types import Transition

TIMEOUT = 600.0
"""Seconds that anything may take on any machine, however busy: only what will never come is waited for so long."""

ENVS = 4
PARENT = os.getppid()
STARTED: list[subprocess.Popen] = []


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, np.float32)


def make(build):
    """Memory for what `build` makes over it, and what it made."""
    memory = Memory.create(measure(build), f"a test by {os.getpid()}", "free some")
    return memory, build(memory.arena())


def spawn(role, memory, **options):
    """A process that runs `role` over the memory."""
    arguments = json.dumps({"memory": memory.description, "options": options})
    command = [sys.executable, __file__, role.__name__, arguments]
    STARTED.append(subprocess.Popen(command, pass_fds=memory.fds, stdout=subprocess.PIPE, text=True))
    return STARTED[-1]


def result(process):
    """What its function returned."""
    text, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    return json.loads(text)


def until(condition):
    """Wait for something that is bound to happen."""
    wait(condition, TIMEOUT, lambda: True)


def parent_lives():
    return os.getppid() == PARENT


def killed(process):
    """End it as a crash or the kernel would."""
    process.kill()
    process.wait()


def hang(flags):
    """Tell the parent, and wait to be killed."""
    flags[1] = 1
    time.sleep(TIMEOUT)


# latest


def weights(arena):
    return arena.counters(4), Latest(arena, [f32(100, 200), f32(), jax.ShapeDtypeStruct((30_001,), np.int8), f32(64)])


def filled(latest, version):
    """Arrays from which the version can be told everywhere."""
    return [np.full(s.shape, version % 127, s.dtype) for s in latest.structs]


def publish_weights(memory, seconds, versions, reads=0, half_at=None, turn=1):
    """Publish as fast as can be, until each reader has read so often; with `half_at` die half-way through a version."""
    flags, latest = weights(memory.arena())
    patterns = [filled(latest, i) for i in range(127)]
    wait(lambda: flags[0] == turn, TIMEOUT, parent_lives)
    end = time.monotonic() + seconds
    while time.monotonic() < end or latest.version < versions or min(flags[2], flags[3]) <= reads:
        assert time.monotonic() < end + TIMEOUT
        version = latest.version + 1
        if version == half_at:
            with contextlib.suppress(ValueError):
                latest.publish(filled(latest, 0)[:2])  # refused as too few, once they are written
            hang(flags)
        latest.publish(patterns[version % 127])
    flags[0] = 3
    return latest.version


def read_weights(memory, reuse):
    """Read every version that can be caught until the writer ends."""
    flags, latest = weights(memory.arena())
    into = latest.room() if reuse else None
    seen, count, torn = 0, 0, 0
    while True:
        flags[2 + reuse] = 1 + count
        over = flags[0] == 3
        found = latest.read(seen, into)
        if found is None:
            if over:
                return {"last": seen, "count": count, "torn": torn}
            continue
        version, arrays = found
        assert version > seen
        seen, count = version, count + 1
        torn += not all((array == version % 127).all() for array in arrays)


# queue

TRAJECTORY = {"obs": f32(5, 300), "reward": f32(5)}


def trajectories(arena):
    return arena.counters(2), Queue(arena, TRAJECTORY, slots=3)


def produce(memory, number, pause=0.0, half_at=None):
    """Commit trajectories up to `number`; stop to be killed with `half_at` half written."""
    flags, queue = trajectories(memory.arena())
    while (i := queue.produced) < number:
        wait(lambda: not queue.full, TIMEOUT, parent_lives)
        slot = queue.slot()
        slot["obs"][...] = i
        if i == half_at:
            hang(flags)
        slot["reward"][...] = -i
        queue.commit(version=10 * i)
        if pause:
            time.sleep(random.random() * pause)
    return queue.produced


# table


def step_struct():
    flag = jax.ShapeDtypeStruct((ENVS,), np.bool_)
    number = jax.ShapeDtypeStruct((ENVS,), np.int32)
    return Transition(f32(ENVS, 16), f32(ENVS, 3), f32(ENVS), flag, flag, f32(ENVS, 16), {"writer": number})


def table_of(arena, writers=2, steps=8):
    return arena.counters(4), Table(step_struct(), writers, writers * steps * ENVS, allocate=arena.array)


def checked_rows(writer, generation, step):
    """One step whose every number follows from (writer, generation, step, env): a checksum that needs no sum."""
    ids = (step * ENVS + np.arange(ENVS)).astype(np.float32)
    wide = ids[:, None] + np.arange(16, dtype=np.float32)
    action = np.stack([ids, np.full(ENVS, writer), np.full(ENVS, generation)], axis=-1).astype(np.float32)
    ended = np.zeros(ENVS, np.bool_)
    return [wide, action, ids % 64, ended, ended, -wide + 1000 * generation, np.full(ENVS, writer + 7, np.int32)]


def fill_table(memory, writer, generation, half_at=None):
    """Insert as fast as can be, until told to stop."""
    flags, table = table_of(memory.arena())
    table.sever(writer)
    while not flags[0]:
        step = int(table.written[writer])
        rows = checked_rows(writer, generation, step)
        if half_at is not None and step >= half_at:
            for stripe, row in zip(table.stripes[:3], rows, strict=False):
                stripe[writer, step % table.ring] = row
            hang(flags)
        table.insert(rows, writer)
    return int(table.written[writer])


# rollout

READERS = 2
AHEAD = 1
PUT = {"obs": f32(5, 3, 100), "reward": f32(5, 3)}


def rollouts(arena):
    return arena.counters(2), Trajectories(PUT, writers=1, readers=READERS, ahead=AHEAD, arena=arena)


def put_rollouts(memory, number, generation, half_at=None, between_at=None):
    """Put trajectories up to `number`; stop to be killed with one half written, or put for the first reader only."""
    flags, store = rollouts(memory.arena())
    first, last = store.queues[0][0], store.queues[-1][0]
    for i in range(last.produced, number):  # a pass is over when the last reader has it
        wait(lambda: not (first.full or last.full), TIMEOUT, parent_lives)
        lent = store.room(0, i)
        rows = [np.empty(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(PUT)] if lent is None else lent
        rows[0][...] = 10 * i + generation
        if i == half_at:
            hang(flags)
        rows[1][...] = -(10 * i + generation)
        if i == between_at:
            last.slot = lambda: hang(flags)
        store.insert(rows, 0, i)
    return last.produced


# stream

LAYOUTS = {"plain": (1, 0, False), "whole": (1, 1, False), "stacked": (3, 1, True)}
"""Steps, axis of environments, and whether steps are stacked: values of a step, of a trajectory, and of its steps."""

LANES = 12
"""Environments of all replicas together: what every number of replicas used here divides."""

SENDS = 400
"""Passes of a test."""


def ring_of(arena, layout, senders, receivers, slots=2):
    steps, axis, stacked = LAYOUTS[layout]
    lead = (3,) * axis
    each = LANES // min(senders, receivers)
    structs = [jax.ShapeDtypeStruct((*lead, each, 5), np.float64), jax.ShapeDtypeStruct((*lead, each), np.int64)]
    return Ring(arena, structs, senders, receivers, slots=slots, steps=steps, axis=axis, stacked=stacked)


def rings(arena, senders, receivers):
    """A ring of each layout."""
    return arena.counters(2), {layout: ring_of(arena, layout, senders, receivers) for layout in LAYOUTS}


def lanes(place, number):
    """The environments of one of `number` replicas."""
    each = LANES // number
    return np.arange(place * each, (place + 1) * each)


def sent(ring, lane, number, step, generation=0):
    """What is sent of some environments at a step: every number tells which, when, and by whom it was written."""
    at = (10 * (number * ring.steps + step) + generation) * LANES + lane
    whole = (3,) if ring.axis and not ring.stacked else ()
    numbers = np.broadcast_to(at, (*whole, *np.shape(at)))
    return [np.repeat(numbers[..., None], 5, axis=-1).astype(np.float64), -numbers]


def is_sent(ring, arrays, lane, number, step, generation=0):
    """Whether a step of what was taken is what was sent of these environments."""
    found = [array[step] if ring.stacked else array for array in arrays]
    expected = sent(ring, lane, number, step, generation)
    return all(np.array_equal(have, want) for have, want in zip(found, expected, strict=True))


def send(memory, place, senders, receivers, generation=0, half_at=None):
    """Send passes over each ring; stop to be killed with step `half_at` of the stacked ones half written."""
    flags, made = rings(memory.arena(), senders, receivers)
    ends = [Sender(ring, place) for ring in made.values()]
    own = lanes(place, senders)
    for number in range(int(ends[-1].produced[0]) // made["stacked"].steps, SENDS):
        for sender in ends:
            ring = sender.ring
            wait(lambda s=sender, n=number: s.free(n), TIMEOUT, parent_lives)
            for step in range(ring.steps):
                leaves = sent(ring, own, number, step, generation)
                if ring.stacked and [number, step] == half_at:
                    with contextlib.suppress(ValueError):
                        sender.send(number, step, leaves[:1])  # refused as too few, once they are written
                    hang(flags)
                sender.send(number, step, leaves)
    return SENDS


def receive(memory, place, senders, receivers):
    """Take passes from each ring, each step as soon as it is there; check each, and the whole pass before it goes."""
    _, made = rings(memory.arena(), senders, receivers)
    ends = [Receiver(ring, place) for ring in made.values()]
    own = lanes(place, receivers)
    for number in range(SENDS):
        for receiver in ends:
            ring = receiver.ring
            for step in range(ring.steps):
                wait(lambda r=receiver, n=number, s=step: r.ready(n, s), TIMEOUT, parent_lives)
                assert is_sent(ring, receiver.take(number), own, number, step)
            assert all(is_sent(ring, receiver.take(number), own, number, step) for step in range(ring.steps))
            receiver.release(number)
    return SENDS


# memory


def touch(memory, value):
    """Write into the first bytes and return what the next ones held."""
    array = memory.arena().array(8, np.int64)
    array[0] = value
    memory.close()
    return array[1:].tolist()


def own_and_share(memory, what, named):
    """Make memory of its own with a child that attaches it, say so, and wait to be killed."""
    mine = Memory.create(1 << 20, what, "free some", **({"named": True} if named else {}))
    mine.block[:] = 7
    child = spawn(linger, mine)
    child.stdout.readline()
    print(json.dumps({"child": child.pid, "description": mine.description}), flush=True)
    time.sleep(TIMEOUT)


def linger(memory):
    assert memory.block[-1] == 7
    print("attached", flush=True)
    time.sleep(TIMEOUT)


if __name__ == "__main__":
    given = json.loads(sys.argv[2])
    print(json.dumps(globals()[sys.argv[1]](Memory.attach(given["memory"]), **given["options"])))
