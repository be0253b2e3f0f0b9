"""table over shared memory: writers of their own process, and only whole rows drawn."""

from __future__ import annotations

import numpy as np

from headrace.shm.memory import Arena
from headrace.stores.replay import Table

from .peers import ENVS, checked_rows, fill_table, killed, make, result, spawn, step_struct, table_of, until

GAMMA = 0.5


def check(batch, steps):
    """Every number of every row drawn is what its writer wrote there; the writers and generations seen."""
    first = batch.obs[:, 0].astype(int)
    assert (batch.obs == first[:, None] + np.arange(16)).all()
    assert (batch.action[:, 0] == first).all()
    assert (batch.extra["writer"] == batch.action[:, 1] + 7).all()
    summed = np.rint(-np.log2(batch.discount)).astype(int)
    assert (batch.discount == GAMMA**summed).all()
    assert ((summed >= 1) & (summed <= steps)).all()
    last = first + (summed - 1) * ENVS
    assert (batch.next_obs == 1000 * batch.action[:, 2:] - last[:, None] - np.arange(16)).all()
    reward = sum(np.where(summed > k, GAMMA**k * ((first + k * ENVS) % 64), 0) for k in range(steps))
    assert (batch.reward == reward).all()
    return {(int(writer), int(generation)) for writer, generation in batch.action[:, 1:]}, summed


def test_rows_are_whole_while_writers_race_and_one_is_killed_and_replaced():
    memory, (flags, table) = make(table_of)
    writers = [spawn(fill_table, memory, writer=0, generation=1), spawn(fill_table, memory, writer=1, generation=1)]
    until(lambda: table.written.all())
    overtaken = [0]
    overwritten = table._overwritten

    def counted(writer, step):
        lost = overwritten(writer, step)
        overtaken[0] += int(lost.sum())
        return lost

    table._overwritten = counted
    rng, seen, folded = np.random.default_rng(0), set(), []

    def draw():
        for steps in (1, 3):
            who, summed = check(table.sample(rng, (64,), GAMMA, steps), steps)
            seen.update(who)
            folded.append(summed)

    def draw_until(condition):
        until(lambda: draw() or condition())

    draw_until(lambda: len(folded) >= 400 and overtaken[0] > 100 and seen == {(0, 1), (1, 1)})
    killed(writers[1])
    at = int(table.written[1])
    for _ in range(50):
        draw()
    assert table.written[1] == at
    writers[1] = spawn(fill_table, memory, writer=1, generation=2, half_at=at + 2_000)
    draw_until(lambda: flags[1])
    killed(writers[1])  # while one step is half written
    for _ in range(50):
        draw()
    assert table.written[1] == at + 2_000
    flags[0] = 1
    assert result(writers[0]) == table.written[0]
    assert seen == {(0, 1), (1, 1), (1, 2)}
    assert overtaken[0] > 100  # or nothing was tested
    assert np.concatenate(folded).mean() > 1.9
    memory.close()


def test_the_same_rows_are_drawn_in_every_kind_of_memory():
    shared = Table(step_struct(), 2, 2 * 8 * ENVS, allocate=Arena(np.zeros(1 << 16, np.uint8)).array)
    plain = Table(step_struct(), 2, 2 * 8 * ENVS)
    for step in range(21):
        for table in (shared, plain):
            table.insert(checked_rows(step % 2, 1, step // 2), step % 2)
    batches = [table.sample(np.random.default_rng(3), (5, 8), GAMMA, 2) for table in (shared, plain)]
    assert np.array_equal(batches[0].obs, batches[1].obs)
    assert np.array_equal(batches[0].reward, batches[1].reward)
    assert shared.inserted == plain.inserted == 21 * ENVS


def test_the_step_being_written_is_none_of_those_drawn():
    table = Table(step_struct(), 1, 8 * ENVS)
    for step in range(30):
        table.insert(checked_rows(0, 1, step))
        at = int(table.written[0]) % table.ring
        for stripe in table.stripes:
            stripe[0, at] = 1  # as a writer does before it commits
        batch = table.sample(np.random.default_rng(step), (64,), GAMMA, 1)
        held = set((batch.obs[:, 0] // ENVS).astype(int).tolist())
        assert held <= set(range(max(0, step - 7), step + 1))
        check(batch, 1)


def test_what_is_overwritten_during_the_copy_is_drawn_anew():
    table = Table(step_struct(), 1, 8 * ENVS)
    for step in range(8):
        table.insert(checked_rows(0, 1, step))
    gather, rounds = table.gather, []

    def slow(*places):
        batch = gather(*places)
        if not rounds:
            for step in range(8, 13):  # five of eight steps change under the reader
                table.insert(checked_rows(0, 1, step))
            batch.obs[places[1] <= 4] = np.nan  # what a torn copy might hold
        rounds.append(len(places[0]))
        return batch

    table.gather = slow
    batch = table.sample(np.random.default_rng(0), (400,), GAMMA, 1)
    check(batch, 1)
    assert set((batch.obs[:, 0] // ENVS).astype(int).tolist()) == set(range(5, 13))
    assert len(rounds) == 2
    assert 200 < rounds[1] < 300


def test_a_successors_steps_do_not_follow_those_of_its_predecessor():
    table = Table(step_struct(), 1, 8 * ENVS)
    for step in range(3):
        table.insert(checked_rows(0, 1, step))
    table.sever(0)
    for step in range(3, 8):
        table.insert(checked_rows(0, 2, step))
    who, summed = check(table.sample(np.random.default_rng(0), (400,), GAMMA, 3), 3)
    assert who == {(0, 1), (0, 2)}
    assert set(summed.tolist()) == {1, 2, 3}
