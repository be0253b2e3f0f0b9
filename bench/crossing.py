"""What it costs to cross from one process to another: the constants of the cost model (src/headrace/tune/model.py).

    python bench/crossing.py [rounds]        default: 20,000 there and back

A message of one cache line goes to another process and back by a stream in shared memory, each side waiting as a
worker waits; one core copies 64 MiB into shared memory; two processes average a gradient of 64 KiB by gloo.
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time

import jax
import numpy as np
from measure import interleaved, report

from headrace.compile.replicas import AXIS
from headrace.exec.group import Group, mesh_of
from headrace.shm.memory import LINE, Arena, Memory, measure
from headrace.shm.stream import Receiver, Ring, Sender
from headrace.shm.wait import wait
from headrace.tune.model import COPYING, CROSSING, REDUCING

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 20_000
COPIED, GRADIENT = 1 << 26, 1 << 16
SMALL = jax.ShapeDtypeStruct((LINE // 8,), np.dtype("int64"))
REDUCED = 2_000


def rings(arena: Arena) -> tuple[Ring, Ring]:
    """There, and back."""
    return Ring(arena, [SMALL], 1, 1), Ring(arena, [SMALL], 1, 1)


def echo(description: str, rounds: int) -> None:
    """The other process: sends back what it gets."""
    there, back = rings(Memory.attach(json.loads(description)).arena())
    receiver, sender = Receiver(there, 0), Sender(back, 0)
    for number in range(rounds):
        pass_on(receiver, sender, number)


def pass_on(receiver: Receiver, sender: Sender, number: int) -> None:
    wait(lambda: receiver.ready(number, 0), 60, lambda: True)
    sender.send(number, 0, receiver.take(number))
    receiver.release(number)


def there_and_back() -> float:
    """Seconds, the median over hundreds of turns."""
    memory = Memory.create(measure(rings), "the rings", "close other programs")
    words = [sys.executable, __file__, "echo", json.dumps(memory.description), str(ROUNDS)]
    other = subprocess.Popen(words, pass_fds=memory.fds)
    there, back = rings(memory.arena())
    sender, receiver = Sender(there, 0), Receiver(back, 0)
    message, seen, began = np.zeros(SMALL.shape, SMALL.dtype), [], 0.0
    for number in range(ROUNDS):
        if number % 100 == 0:
            seen.append((time.perf_counter() - began) / 100)
            began = time.perf_counter()
        sender.send(number, 0, [message])
        wait(lambda: receiver.ready(number, 0), 60, lambda: other.poll() is None)  # noqa: B023 - asked at once
        receiver.release(number)
    other.wait()
    return statistics.median(seen[2:])  # the first waited for the other to start


def copying() -> float:
    """Bytes in a second."""
    memory = Memory.create(COPIED, "the copy", "close other programs")
    held, source = memory.block[:COPIED], np.ones(COPIED, np.uint8)
    return COPIED / interleaved({"copy": lambda: np.copyto(held, source)}, 20)["copy"]


def reduce(address: str, rank: int) -> None:
    """One of two processes: prints the seconds of an average."""
    jax.distributed.initialize(address, 2, rank)
    group = Group(mesh_of(2))
    spread, whole = jax.sharding.PartitionSpec(AXIS), jax.sharding.PartitionSpec()
    mean = jax.jit(jax.shard_map(lambda x: jax.lax.pmean(x, AXIS), mesh=group.mesh, in_specs=spread, out_specs=whole))
    gradient = group.own(np.ones((1, GRADIENT // 4), np.float32))
    seen = []
    for _ in range(REDUCED):
        began = time.perf_counter()
        jax.block_until_ready(mean(gradient))
        seen.append(time.perf_counter() - began)
    print(statistics.median(seen[10:]), flush=True)


def reducing() -> float:
    """Seconds of an average over two processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = [sys.executable, __file__, "reduce", address]
    both = [subprocess.Popen([*words, str(rank)], stdout=subprocess.PIPE, text=True) for rank in range(2)]
    return max(float(one.communicate()[0].splitlines()[-1]) for one in both)


def main() -> None:
    figures: dict[str, object] = {
        "there and back, us": 1e6 * there_and_back(),
        "there and back, us, in the model": 1e6 * CROSSING,
        "copying, GB/s": copying() / 1e9,
        "copying, GB/s, in the model": COPYING / 1e9,
        "averaging a gradient alone, us": 1e6 * reducing(),
        "averaging a gradient beside work, us, in the model": 1e6 * REDUCING,
    }
    report("crossing", figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["echo"]:
        echo(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:2] == ["reduce"]:
        reduce(sys.argv[2], int(sys.argv[3]))
    else:
        main()
