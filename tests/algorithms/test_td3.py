"""td3: every stage against its equations."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headrace.algorithms import TD3
from headrace.errors import EnvError
from headrace.types import Batch, Box, Discrete, EnvSpec

SPEC = EnvSpec("toy", Box((3,)), Box((2,), bounded=True), 4)
KEY = jax.random.key(7)


@cache
def made(**settings):
    algorithm = TD3(**({"hidden": (8,)} | settings))
    return algorithm, algorithm.cells(SPEC, jax.random.key(0))


@cache
def batch():
    keys = jax.random.split(jax.random.key(1), 4)
    return Batch(
        obs=jax.random.normal(keys[0], (6, 3)),
        action=jnp.tanh(jax.random.normal(keys[1], (6, 2))),
        reward=jax.random.normal(keys[2], (6,)),
        discount=jnp.asarray([0.99, 0.0, 0.9, 0.99, 0.0, 0.99]),
        next_obs=jax.random.normal(keys[3], (6, 3)),
        extra={},
    )


def leaves(*trees):
    return zip(*(jax.tree.leaves(tree) for tree in trees), strict=True)


@cache
def critic_step(**settings):
    td3, cells = made(**settings)
    return td3.learn_critic(batch(), cells["target_actor"].module, cells["critic"], cells["target_critic"], KEY)


@pytest.mark.parametrize(("noise", "clip"), [(0.2, 0.5), (5.0, 0.1), (0.0, 0.5)])
def test_critic_loss_with_smoothed_and_clipped_target_actions(noise, clip):
    _, cells = made(target_noise=noise, target_noise_clip=clip)
    _, metrics = critic_step(target_noise=noise, target_noise_clip=clip)
    b = batch()
    shake = np.clip(noise * np.asarray(jax.random.normal(KEY, (6, 2))), -clip, clip)
    assert np.abs(shake).max() <= clip
    next_action = np.clip(np.tanh(np.asarray(cells["target_actor"](b.next_obs))) + shake, -1, 1).astype(np.float32)
    twins = [np.asarray(q(b.next_obs, next_action))[:, 0] for q in cells["target_critic"].module.members]
    goal = np.asarray(b.reward + b.discount * np.minimum(*twins))
    errors = [np.asarray(q(b.obs, b.action))[:, 0] - goal for q in cells["critic"].module.members]
    assert float(metrics["critic_loss"]) == pytest.approx(float(np.mean(np.square(errors))), rel=1e-5)


def test_learning_the_critic_returns_only_critic_and_target_which_moved_by_tau():
    td3, cells = made()
    assert td3.learn_critic.signature.writes == ("critic", "target_critic")
    assert "actor" not in td3.learn_critic.signature.cells
    (critic, target), _ = critic_step()
    assert critic.updates == 1
    for before, new, now in leaves(cells["target_critic"].module, critic.module, target.module):
        np.testing.assert_allclose(now, before + 0.005 * (new - before), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("delay", [1, 2])
def test_actor_climbs_the_first_critic_and_its_target_catches_up(delay):
    td3, cells = made(policy_delay=delay, tau=0.1)
    b = batch()
    (actor, target), metrics = td3.learn_actor(b, cells["critic"].module, cells["actor"], cells["target_actor"])

    def value(actor):
        return float(cells["critic"].module.members[0](b.obs, jnp.tanh(actor(b.obs))).mean())

    assert float(metrics["actor_loss"]) == pytest.approx(-value(cells["actor"].module), rel=1e-5)
    assert value(actor.module) > value(cells["actor"].module)
    tau = 1 - 0.9**delay  # as far as the critic's target goes in `delay` steps
    for before, new, now in leaves(cells["target_actor"].module, actor.module, target.module):
        np.testing.assert_allclose(now, before + tau * (new - before), rtol=1e-5, atol=1e-7)


def test_exploration_is_clipped_noise_around_play():
    td3, cells = made(exploration_noise=0.3)
    actor, obs = cells["actor"].module, batch().obs
    calm = td3.play(obs, actor)
    np.testing.assert_allclose(calm, jnp.tanh(actor(obs)), rtol=1e-6)
    expected = np.clip(calm + 0.3 * jax.random.normal(KEY, (6, 2)), -1, 1)
    np.testing.assert_allclose(td3.act(obs, actor, KEY), expected, rtol=1e-5, atol=1e-6)
    wild, _ = made(exploration_noise=50.0)
    assert bool((jnp.abs(wild.act(obs, actor, KEY)) <= 1).all())


def test_targets_start_equal_and_twins_differ():
    _, cells = made()
    assert eqx.tree_equal(cells["actor"].module, cells["target_actor"].module)
    assert eqx.tree_equal(cells["critic"].module, cells["target_critic"].module)
    assert not eqx.tree_equal(*cells["critic"].module.members)


def test_refuses_other_actions():
    with pytest.raises(EnvError, match=r"TD3 needs continuous \(Box\) actions"):
        TD3().cells(EnvSpec("CartPole-v1", Box((4,)), Discrete(2), 4), KEY)
