"""A sampler: collects, pass after pass, with the latest weights."""

from __future__ import annotations

from functools import partial

import jax

from headrace.runtimes.collect import Collector
from headrace.runtimes.remote import worker_envs
from headrace.runtimes.shared import Mirror
from headrace.runtimes.worker import PATIENCE, Worker


def sample(worker: Worker) -> None:
    """Collect until told to stop."""
    shared, replica = worker.shared, worker.task.replica
    (env,) = worker_envs(worker)
    mirror = Mirror(shared, list(worker.start), worker.graph.where(domain="collect"))
    mirror.refresh()

    def stepped() -> None:
        shared.steps[worker.who] += 1
        shared.beat(worker.who)

    worker.begin()
    collector = Collector(worker.graph, worker.programs, env, worker.task.seed, replica, jax.jit, stepped)
    number = int(shared.passes[replica])
    if number:
        collector.restart(number)
        if shared.table is not None:
            shared.table.sever(replica)
    free = 0
    try:
        while not worker.over():
            if worker.asked_to_pause:
                worker.stand()
                continue
            # Learning only ever allows more: the limiter is asked again when what it allowed is collected.
            if number >= free:
                worker.wait(partial(_may_collect, worker, number))
                free = _free_until(worker)
                continue  # a pause, or the end, may have come meanwhile
            mirror.refresh()
            if not shared.steps[worker.who]:
                worker.be_long()
            rows = collector.collect(mirror.flat, number)
            if shared.table is not None:
                shared.table.insert(rows, replica)
            else:
                for queue in (queues[replica] for queues in shared.queues):
                    if queue.produced > number:
                        continue  # a predecessor died between two learners' queues
                    slot = queue.reserve(PATIENCE, worker.alive)
                    for held, row in zip(slot, rows, strict=True):
                        held[...] = row
                    queue.commit(max(mirror.versions))
            shared.lag(replica, mirror.lag())
            number += 1
            shared.report(replica, env.drain())
    finally:
        env.close()


def _free_until(worker: Worker) -> int:
    """The first pass that needs to ask the limiter again."""
    shared, most = worker.shared, worker.options.steps
    free = shared.pace.may_collect_until(int(shared.learned.min()))
    return free if most is None else min(free, -(-most // shared.pace.collected))


def _may_collect(worker: Worker, number: int) -> bool:
    shared, most = worker.shared, worker.options.steps
    if most is not None and number * shared.pace.collected >= most:
        return worker.asked_to_pause
    return worker.asked_to_pause or shared.pace.may_collect(number, int(shared.learned.min()))
