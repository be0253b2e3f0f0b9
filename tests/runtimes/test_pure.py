"""pure: the whole loop as one program goes on from its state to the bit."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import numpy as np
import pytest

from headrace.algorithms import DQN, PPO
from headrace.api import describe_env
from headrace.graph import fuse, trace
from headrace.machine import Machine
from headrace.policies import single, single_learner_coarse
from headrace.runtimes import inline
from headrace.runtimes.pure import Pure

pytest.importorskip("gymnax")

ENV = "gymnax:CartPole-v1"
MACHINE = Machine(cores=2, memory=1 << 34, devices=("cpu:0",))


def dqn():
    settings = {"batch_size": 16, "warmup": 32, "samples_per_insert": 4.0, "replay_capacity": 500, "n_step": 2}
    return DQN(hidden=(8,), num_envs=4, **settings)


def ppo():
    return PPO(hidden=(8,), num_envs=4, horizon=16, minibatch_size=32, epochs=2)


def start(make, seed=0, policy=single):
    algorithm = make()
    graph = trace(algorithm, describe_env(ENV, 4))
    return inline(fuse(policy(graph, MACHINE, 1)), algorithm, ENV, seed)


def arrays(tree):
    return [np.array(jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
            for x in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]  # fmt: skip


def same_bits(first, second):
    return all(np.array_equal(a, b) for a, b in zip(arrays(first), arrays(second), strict=True))


def copied(tree):
    return jax.tree.map(lambda leaf: jax.numpy.array(leaf, copy=True), tree)


@cache
def continued(make):
    """One run of six cycles, its state after three, and another runtime that went on from there."""
    first = start(make)
    for _ in range(3):
        first.advance()
    state, values = copied(first.state()[0]), dict(first.state()[1])
    for _ in range(3):
        first.advance()
    other = start(make, seed=0)
    other.restore(state, values)
    for _ in range(3):
        other.advance()
    return first, other, values


@pytest.mark.parametrize("make", [dqn, ppo])
def test_going_on_from_a_state_gives_the_same_bits(make):
    first, other, values = continued(make)
    assert isinstance(first, Pure)
    assert first.progress.counters() == other.progress.counters()
    assert first.progress.learned > values["learned"] > 0
    assert same_bits(first.cells(), other.cells())
    assert same_bits(first.state()[0], other.state()[0])


@pytest.mark.parametrize("make", [dqn, ppo])
def test_another_seed_gives_other_cells(make):
    first, *_ = continued(make)
    other = start(make, seed=1)
    for _ in range(6):
        other.advance()
    assert other.progress.counters() == first.progress.counters()
    assert not same_bits(first.cells(), other.cells())


def test_the_rate_is_exact():
    first, *_ = continued(dqn)
    progress = first.progress
    # 32 to warm up in the first cycle, then 8 passes of 16 for every 32 inserted.
    assert progress.counters() == {"env_steps": 32 + 5 * 32, "passes": 48, "learned": 40, "update_frames": 640}
    assert (progress.env_steps - 32) * 4 == progress.update_frames
    assert int(first.cells()["critic"].updates) == 40


def test_on_policy_every_trajectory_is_learned_from_once():
    first, *_ = continued(ppo)
    assert first.progress.counters() == {"env_steps": 6 * 64, "passes": 6, "learned": 6, "update_frames": 6 * 128}
    assert int(first.cells()["actor"].updates) == 6 * 2 * 2


def test_episodes_are_reported_with_their_lengths():
    first, *_ = continued(ppo)
    assert first.progress.episodes
    for episode in first.progress.episodes:
        assert episode.reward == episode.length  # CartPole pays 1 a step
        assert 1 <= episode.length <= 96


def test_a_cut_plan_steps_the_same_environment_from_the_host():
    runtime = start(ppo, policy=single_learner_coarse)
    assert not isinstance(runtime, Pure)
    runtime.advance()
    assert runtime.progress.counters() == {"env_steps": 64, "passes": 1, "learned": 1, "update_frames": 128}
    runtime.close()
