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
    """A runtime after six cycles, its whole state, and the state of one that went on from its first three."""
    runtime = start(make)
    for _ in range(3):
        runtime.advance()
    state, values = copied(runtime.state()[0]), dict(runtime.state()[1])
    for _ in range(3):
        runtime.advance()
    whole, counters, episodes = copied(runtime.state()[0]), runtime.progress.counters(), runtime.progress.episodes
    other = start(make) if make is dqn else runtime  # a program of its own is compiled anew: once is enough
    other.restore(state, values)
    for _ in range(3):
        other.advance()
    assert isinstance(other, Pure)
    assert counters["learned"] > values["learned"] > 0
    return whole, counters, episodes, other


@pytest.mark.parametrize("make", [dqn, ppo])
def test_going_on_from_a_state_gives_the_same_bits(make):
    whole, counters, _, other = continued(make)
    assert other.progress.counters() == counters
    assert same_bits(whole["cells"], eqx.filter(other.cells(), eqx.is_array))
    assert same_bits(whole, other.state()[0])


def test_another_seed_gives_other_cells():
    whole, counters, _, _ = continued(dqn)
    other = start(dqn, seed=1)
    for _ in range(6):
        other.advance()
    assert other.progress.counters() == counters
    assert not same_bits(whole["cells"], other.state()[0]["cells"])


def test_the_rate_is_exact():
    runtime = continued(dqn)[-1]
    progress = runtime.progress
    # 32 to warm up in the first cycle, then 8 passes of 16 for every 32 inserted.
    assert progress.counters() == {"env_steps": 32 + 5 * 32, "passes": 48, "learned": 40, "update_frames": 640}
    assert (progress.env_steps - 32) * 4 == progress.update_frames
    assert int(runtime.cells()["critic"].updates) == 40


def test_on_policy_every_trajectory_is_learned_from_once():
    runtime = continued(ppo)[-1]
    assert runtime.progress.counters() == {"env_steps": 6 * 64, "passes": 6, "learned": 6, "update_frames": 6 * 128}
    assert int(runtime.cells()["actor"].updates) == 6 * 2 * 2


def test_episodes_are_reported_with_their_lengths():
    _, _, episodes, _ = continued(ppo)
    assert episodes
    for episode in episodes:
        assert episode.reward == episode.length  # CartPole pays 1 a step
        assert 1 <= episode.length <= 96


def test_a_cut_plan_steps_the_same_environment_from_the_host():
    runtime = start(dqn, policy=single_learner_coarse)
    assert not isinstance(runtime, Pure)
    while runtime.progress.learned == 0:
        runtime.advance()
    assert runtime.progress.counters() == {"env_steps": 64, "passes": 16, "learned": 8, "update_frames": 128}
    runtime.close()
