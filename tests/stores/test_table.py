"""table: against a list of everything ever inserted."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import CapacityError
from headrace.shm.memory import Arena
from headrace.stores import device
from headrace.stores.replay import Insert, Sample, Table
from headrace.types import Box, Discrete, EnvSpec, Transition, struct, transition_struct

GAMMA = 0.5


class Row(NamedTuple):
    """One transition as the naive model keeps it; `id` is unique among all that were ever inserted."""

    id: int
    reward: float
    terminated: bool
    truncated: bool
    severed: bool = False


def shapes(envs):
    spec = EnvSpec("toy", Box((2,)), Discrete(5), envs)
    return transition_struct(spec, struct(spec.action, envs), {"log_prob": jax.ShapeDtypeStruct((envs,), jnp.float32)})


def step_of(rows):
    """A step of environments as the table takes it. The observation holds the id, the next one its negative."""
    ids = np.asarray([row.id for row in rows], np.float32)
    return Transition(
        obs=np.stack([ids, ids + 0.5], axis=-1),
        action=(ids.astype(np.int32) % 5),
        reward=np.asarray([row.reward for row in rows], np.float32),
        terminated=np.asarray([row.terminated for row in rows]),
        truncated=np.asarray([row.truncated for row in rows]),
        next_obs=np.stack([-ids, -ids - 0.5], axis=-1),
        extra={"log_prob": ids / 4},
    )


def folded(episode, start, steps):
    """(reward, discount, id of the last row) of up to `steps` rows of a list, worked out naively."""
    total, power, at = 0.0, 1.0, start
    while True:
        row = episode[at]
        total += power * row.reward
        power *= GAMMA
        ended = row.terminated or row.truncated or row.severed
        if ended or at + 1 == len(episode) or at - start + 1 == steps:
            return total, 0.0 if row.terminated else power, row.id
        at += 1


def check(batch, streams, capacity, steps):
    """Every row drawn is one that is held, folded as the naive model folds it. Returns the ids drawn."""
    held = {row.id: (stream[-capacity:], i) for stream in streams for i, row in enumerate(stream[-capacity:])}
    drawn = np.asarray(batch.obs)[:, 0].astype(int)
    for i, number in enumerate(drawn):
        assert number in held
        episode, at = held[number]
        reward, discount, last = folded(episode, at, steps)
        assert float(batch.reward[i]) == pytest.approx(reward, rel=1e-5, abs=1e-5)
        assert float(batch.discount[i]) == pytest.approx(discount, rel=1e-6)
        assert np.asarray(batch.next_obs)[i].tolist() == [-last, -last - 0.5]
        assert np.asarray(batch.obs)[i].tolist() == [number, number + 0.5]
        assert int(batch.action[i]) == number % 5
        assert float(batch.extra["log_prob"][i]) == number / 4
    return set(drawn.tolist())


ends = st.sampled_from([(False, False)] * 4 + [(True, False), (False, True)])
histories = st.lists(st.lists(st.tuples(st.integers(-4, 4), ends), min_size=2, max_size=2), min_size=1, max_size=14)


def rows_of(history, first=1):
    """Steps of two environments with ids that count up from `first`."""
    return [
        [Row(first + 2 * t + e, float(reward), *end) for e, (reward, end) in enumerate(step)]
        for t, step in enumerate(history)
    ]


@settings(max_examples=80, deadline=None)
@given(
    histories,
    st.lists(st.integers(0, 2), min_size=14, max_size=14),
    st.integers(1, 3),
    st.integers(1, 6),
    st.integers(1, 5),
)
def test_table_is_the_naive_list(history, turns, writers, length, steps):
    table = Table(shapes(2), writers, capacity=writers * 2 * length)
    assert table.steps == length
    streams = [[] for _ in range(writers * 2)]
    for step, turn in zip(rows_of(history), turns, strict=False):
        writer = turn % writers
        table.insert(step_of(step), writer)
        for e, row in enumerate(step):
            streams[writer * 2 + e].append(row)
    assert table.inserted == 2 * len(history)
    batch = table.sample(np.random.default_rng(0), (64,), GAMMA, steps)
    check(batch, streams, length, steps)


@settings(max_examples=40, deadline=None)
@given(histories, st.sampled_from([1, 4]), st.sampled_from([1, 3]))
def test_device_table_is_the_naive_list(history, length, steps):
    table = device.make_table(shapes(2), capacity=2 * length)
    streams = [[], []]
    for step in rows_of(history):
        table = device_insert(table, step_of(step))
        for e, row in enumerate(step):
            streams[e].append(row)
    assert int(table.written) == len(history)
    batch = jax.device_get(device_sample(table, jax.random.key(0), 32, GAMMA, steps))
    check(batch, streams, length, steps)


device_insert = jax.jit(device.insert)
device_sample = jax.jit(device.sample, static_argnums=(2, 4))


def going(number, envs=2):
    return [[Row(1 + envs * t + e, 1.0, False, False) for e in range(envs)] for t in range(number)]


@pytest.mark.parametrize("steps", [1, 3])
def test_every_row_with_enough_after_it_is_drawn_equally_often_and_no_other(steps):
    table, on_device = Table(shapes(2), 1, capacity=12), device.make_table(shapes(2), 12)
    for step in going(10):
        table.insert(step_of(step))
        on_device = device_insert(on_device, step_of(step))
    expected = {1 + 2 * t + e for t in range(4, 10 - (steps - 1)) for e in range(2)}
    for batch in (
        table.sample(np.random.default_rng(0), (6_000,), GAMMA, steps),
        device_sample(on_device, jax.random.key(0), 6_000, GAMMA, steps),
    ):
        drawn, counts = np.unique(np.asarray(batch.obs)[:, 0].astype(int), return_counts=True)
        assert set(drawn.tolist()) == expected
        np.testing.assert_allclose(counts / 6_000, 1 / len(expected), rtol=0.25)
        if steps > 1:
            assert set(np.asarray(batch.discount).tolist()) == {GAMMA**steps}


def test_writers_are_drawn_from_in_proportion_to_what_they_wrote():
    table = Table(shapes(2), 3, capacity=600)
    for writer, number in ((0, 10), (2, 30)):
        for step in going(number):
            table.insert(step_of(step), writer)
    writer, _, _ = table.places(np.random.default_rng(0), 8_000, 1)
    np.testing.assert_allclose(np.bincount(writer, minlength=3) / 8_000, [0.25, 0, 0.75], atol=0.02)


def test_several_batches_come_in_the_shape_asked_for():
    table = Table(shapes(2), 1, 100)
    for step in going(20):
        table.insert(step_of(step))
    batch = table.sample(np.random.default_rng(0), (3, 5), GAMMA, 2)
    assert batch.obs.shape == (3, 5, 2)
    assert batch.reward.shape == batch.discount.shape == batch.action.shape == (3, 5)
    assert (batch.reward.dtype, batch.discount.dtype, batch.action.dtype) == (np.float32, np.float32, np.int32)
    flat = table.sample(np.random.default_rng(0), (15,), GAMMA, 2)
    assert np.array_equal(batch.obs.reshape(15, 2), flat.obs)


def test_what_is_inserted_is_copied():
    table = Table(shapes(1), 1, 10)
    step = step_of([Row(7, 1.0, False, False)])
    table.insert(step)
    step.obs[:] = 99
    assert table.sample(np.random.default_rng(0), (1,), GAMMA, 1).obs.tolist() == [[7, 7.5]]


def trajectory_of(steps):
    """Steps as what one pass of several steps inserts."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(step_of(step) for step in steps))


def several(envs, steps):
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((steps, *leaf.shape), leaf.dtype), shapes(envs))


def bytes_of(table):
    return [stripe.tobytes() for stripe in table.stripes], table.written.tolist()


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("writer", [0, 1])
def test_a_pass_that_was_committed_is_not_written_again(together, writer):
    handed, make = (shapes(2), step_of) if together == 1 else (several(2, together), trajectory_of)
    table = Table(handed, 2, capacity=2 * 2 * 4)
    history = going(together * 8)
    for number in range(7):
        steps = history[number * together : (number + 1) * together]
        given_ = make(steps[0] if together == 1 else steps)
        assert not table.insert(jax.tree.leaves(given_), writer, number)
        assert table.written.tolist() == [(number + 1) * together * (i == writer) for i in range(2)]
        held = bytes_of(table)
        other = jax.tree.map(lambda leaf: np.zeros_like(leaf) + 1, given_)
        for again in range(number + 1):
            assert table.insert(jax.tree.leaves(other), writer, again)
        assert bytes_of(table) == held
    streams = [[row for step in history[: 7 * together] for row in step if row.id % 2 == e % 2] for e in (1, 0)]
    check(table.sample(np.random.default_rng(0), (64,), GAMMA, 1), streams, 4, 1)


def test_numbers_of_passes_go_on_after_a_checkpoint():
    table, other = (Table(several(2, 3), 1, capacity=2 * 9) for _ in range(2))
    history = going(9)
    for number in range(2):
        table.insert(trajectory_of(history[3 * number : 3 * number + 3]), 0, number)
    other.fill(jax.tree.map(np.copy, table.contents()), 2)
    held = bytes_of(other)
    other.insert(trajectory_of(history[6:]), 0, 1)
    assert bytes_of(other) == held
    other.insert(trajectory_of(history[6:]), 0, 2)
    assert other.written.tolist() == [9]


def test_a_draw_is_a_sample_for_each_pass_and_nothing_is_lent_or_held():
    table = Insert(capacity=100).make(shapes(2), 1, 1, 1, Arena(np.zeros(1 << 16, np.uint8)))
    for number, step in enumerate(going(20)):
        assert table.room(0, number) is None
        table.insert(jax.tree.leaves(step_of(step)), 0, number)
    how = Sample("replay.insert", size=5, after=0, per_insert=1.0, gamma=GAMMA, steps=2)
    drawn = table.draw(how, np.random.default_rng(3), 7, 3, 0)
    batch = jax.tree.leaves(table.sample(np.random.default_rng(3), (3, 5), GAMMA, 2))
    assert [leaf.shape[:2] for leaf in drawn] == [(3, 5)] * len(batch)
    assert all(np.array_equal(*both) for both in zip(drawn, batch, strict=True))
    held = bytes_of(table)
    table.release(0, 10)
    assert bytes_of(table) == held


@settings(max_examples=40, deadline=None)
@given(histories, histories, st.integers(1, 8), st.integers(1, 4))
def test_contents_fill_another_table_and_what_follows_does_not_join_on(before, after, length, steps):
    table = Table(shapes(2), 1, 2 * length)
    early = rows_of(before)
    for step in early:
        table.insert(step_of(step))
    contents = jax.tree.map(np.copy, table.contents())
    other = Table(shapes(2), 1, 2 * length)
    other.fill(contents)
    assert other.inserted == table.inserted
    late = rows_of(after, first=1000)
    for step in late:
        other.insert(step_of(step))
    streams = [
        [*(s[e] for s in early[:-1]), early[-1][e]._replace(severed=True), *(s[e] for s in late)] for e in range(2)
    ]
    check(other.sample(np.random.default_rng(0), (64,), GAMMA, steps), streams, length, steps)


def test_contents_hold_no_more_than_was_written():
    table = Table(shapes(2), 2, capacity=400)
    for step in going(3):
        table.insert(step_of(step), 1)
    assert {leaf.shape[:3] for leaf in table.contents()["rows"]} == {(2, 3, 2)}
    assert table.contents()["written"].tolist() == [0, 3]


def test_capacity_is_shared_among_writers_and_environments():
    assert Table(shapes(4), 5, capacity=1_000).steps == 50
    assert Table(shapes(4), 1, capacity=1).steps == 1


def test_a_table_that_does_not_fit_is_refused_before_it_is_allocated():
    with pytest.raises(
        CapacityError, match=r"a replay store of 1,000,000,000,000 transitions of .* set replay_capacity to at most"
    ):
        Table(shapes(2), 1, capacity=10**12)
    with pytest.raises(CapacityError, match="set replay_capacity to at most"):
        device.make_table(shapes(2), capacity=10**12)
