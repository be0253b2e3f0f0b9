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

from headrace.channels.latest import Latest
from headrace.channels.lockstep import Client, Lockstep
from headrace.channels.memory import Memory, measure
from headrace.channels.queue import Queue
from headrace.channels.table import Table
from headrace.channels.wait import wait
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
    return memory, build(memory.layout())


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


def weights(layout):
    return layout.counters(4), Latest(layout, [f32(100, 200), f32(), jax.ShapeDtypeStruct((30_001,), np.int8), f32(64)])


def filled(latest, version):
    """Arrays from which the version can be told everywhere."""
    return [np.full(s.shape, version % 127, s.dtype) for s in latest.structs]


def publish_weights(memory, seconds, versions, reads=0, half_at=None, turn=1):
    """Publish as fast as can be, until each reader has read so often; with `half_at` die half-way through a version."""
    flags, latest = weights(memory.layout())
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
    flags, latest = weights(memory.layout())
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


def trajectories(layout):
    return layout.counters(2), Queue(layout, TRAJECTORY, slots=3)


def produce(memory, number, pause=0.0, half_at=None):
    """Commit trajectories up to `number`; stop to be killed with `half_at` half written."""
    flags, queue = trajectories(memory.layout())
    while (i := queue.produced) < number:
        slot = queue.reserve(TIMEOUT, parent_lives)
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


def table_of(layout, writers=2, steps=8):
    return layout.counters(4), Table(step_struct(), writers, writers * steps * ENVS, allocate=layout.array)


def checked_rows(writer, generation, step):
    """One step whose every number follows from (writer, generation, step, env): a checksum that needs no sum."""
    ids = (step * ENVS + np.arange(ENVS)).astype(np.float32)
    wide = ids[:, None] + np.arange(16, dtype=np.float32)
    action = np.stack([ids, np.full(ENVS, writer), np.full(ENVS, generation)], axis=-1).astype(np.float32)
    ended = np.zeros(ENVS, np.bool_)
    return [wide, action, ids % 64, ended, ended, -wide + 1000 * generation, np.full(ENVS, writer + 7, np.int32)]


def fill_table(memory, writer, generation, half_at=None):
    """Insert as fast as can be, until told to stop."""
    flags, table = table_of(memory.layout())
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


# lockstep


def asking(layout, replicas=2):
    return layout.counters(2), Lockstep(layout, {"obs": f32(4, 17)}, {"action": f32(4, 6)}, replicas)


def ask(memory, replica, calls, hang_at=None):
    """Ask about distinct observations; check each answer."""
    flags, lockstep = asking(memory.layout())
    client = Client(lockstep, replica)
    for i in range(calls):
        obs = np.full((4, 17), 1000 * replica + i, np.float32)
        if i == hang_at:
            lockstep.requests["obs"][replica, :2] = -1
            hang(flags)
        reply = client.call({"obs": obs}, TIMEOUT, parent_lives)
        assert (reply["action"] == 2 * obs[0, 0] + replica).all()
    return calls


# memory


def touch(memory, value):
    """Write into the first bytes and return what the next ones held."""
    array = memory.layout().array(8, np.int64)
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
