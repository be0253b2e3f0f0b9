"""sac: every stage against its equations."""

from __future__ import annotations

import math
from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from headrace.algorithms import SAC
from headrace.algorithms.sac import actions
from headrace.errors import EnvError
from headrace.types import Batch, Box, Discrete, EnvSpec

SPEC = EnvSpec("toy", Box((3,)), Box((2,), bounded=True), 4)
KEY = jax.random.key(7)
RATE = 1e-2


@cache
def made(**settings):
    settings = {"hidden": (8,), "learning_rate": RATE} | settings
    algorithm = SAC(**settings)
    return algorithm, algorithm.cells(SPEC, jax.random.key(0))


@cache
def batch(size=6):
    keys = jax.random.split(jax.random.key(1), 4)
    return Batch(
        obs=jax.random.normal(keys[0], (size, 3)),
        action=jnp.tanh(jax.random.normal(keys[1], (size, 2))),
        reward=jax.random.normal(keys[2], (size,)),
        discount=jnp.asarray([0.99, 0.0, 0.9, 0.99, 0.0, 0.99])[:size],
        next_obs=jax.random.normal(keys[3], (size, 3)),
        extra={},
    )


def same(a, b):
    return all(jnp.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


@cache
def critic_step(**settings):
    sac, cells = made(**settings)
    log_alpha = jnp.asarray(-0.5)
    (critic, target), metrics = sac.learn_critic(
        batch(), cells["actor"].module, log_alpha, cells["critic"], cells["target"], KEY
    )
    return cells, log_alpha, critic, target, metrics


def test_critic_loss_is_the_soft_bellman_error():
    cells, log_alpha, _, _, metrics = critic_step()
    b = batch()
    next_action, next_log_prob = actions(cells["actor"].module, b.next_obs).sample(KEY)
    twins = [np.asarray(q(b.next_obs, next_action))[:, 0] for q in cells["target"].module.members]
    goal = b.reward + b.discount * (np.minimum(*twins) - math.exp(log_alpha) * next_log_prob)
    errors = [np.asarray(q(b.obs, b.action))[:, 0] - goal for q in cells["critic"].module.members]
    assert float(metrics["critic_loss"]) == pytest.approx(float(np.mean(np.square(errors))), rel=1e-5)


def test_where_the_episode_ended_only_the_reward_counts():
    sac, cells = made()
    ended = batch()._replace(discount=jnp.zeros(6))
    arguments = (cells["critic"], cells["target"], KEY)
    _, metrics = sac.learn_critic(ended, cells["actor"].module, jnp.asarray(3.0), *arguments)
    values = cells["critic"](ended.obs, ended.action)[..., 0]
    assert float(metrics["critic_loss"]) == pytest.approx(float(jnp.mean((values - ended.reward) ** 2)), rel=1e-5)


def test_critic_step_is_adam_on_that_loss_and_the_target_follows_by_tau():
    cells, log_alpha, critic, target, _ = critic_step()
    b = batch()
    next_action, next_log_prob = actions(cells["actor"].module, b.next_obs).sample(KEY)
    value = cells["target"](b.next_obs, next_action)[..., 0].min(axis=0) - jnp.exp(log_alpha) * next_log_prob
    goal = b.reward + b.discount * value
    arrays, static = eqx.partition(cells["critic"].module, eqx.is_inexact_array)
    gradient = jax.grad(lambda w: jnp.mean((eqx.combine(w, static)(b.obs, b.action)[..., 0] - goal) ** 2))(arrays)
    step, _ = optax.adam(RATE).update(gradient, optax.adam(RATE).init(arrays))
    expected = optax.apply_updates(arrays, step)
    for mine, theirs in zip(jax.tree.leaves(critic.module), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-7)
    tau = made()[0].config.tau
    assert tau == 0.005
    for before, new, now in zip(
        *(jax.tree.leaves(x) for x in (cells["target"].module, critic.module, target.module)), strict=True
    ):
        np.testing.assert_allclose(now, (1 - tau) * before + tau * new, rtol=1e-5, atol=1e-7)
    assert critic.updates == 1


def test_critic_and_target_start_equal_and_twins_differ():
    _, cells = made()
    assert same(cells["critic"].module, cells["target"].module)
    assert not same(*cells["critic"].module.members)


@cache
def actor_step(log_alpha=-0.5):
    sac, cells = made()
    temperature = eqx.tree_at(lambda cell: cell.module, cells["log_alpha"], jnp.asarray(log_alpha))
    (actor, new_temperature), metrics = sac.learn_actor(
        batch(), cells["critic"].module, cells["actor"], temperature, KEY
    )
    return cells, actor, new_temperature, metrics


def test_actor_loss_is_temperature_times_log_prob_minus_value():
    cells, actor, _, metrics = actor_step()
    b = batch()
    action, log_prob = actions(cells["actor"].module, b.obs).sample(KEY)
    value = cells["critic"](b.obs, action)[..., 0].min(axis=0)
    assert float(metrics["actor_loss"]) == pytest.approx(float((math.exp(-0.5) * log_prob - value).mean()), rel=1e-5)
    assert float(metrics["entropy"]) == pytest.approx(-float(log_prob.mean()), rel=1e-5)
    assert float(metrics["ent_coef"]) == pytest.approx(math.exp(-0.5), rel=1e-6)
    assert not same(actor.module, cells["actor"].module)


def test_actor_step_lowers_its_own_loss():
    cells, actor, _, metrics = actor_step()
    b = batch()
    action, log_prob = actions(actor.module, b.obs).sample(KEY)
    value = cells["critic"](b.obs, action)[..., 0].min(axis=0)
    assert float((math.exp(-0.5) * log_prob - value).mean()) < float(metrics["actor_loss"])


@pytest.mark.parametrize(("scale", "direction"), [(-20.0, 1), (20.0, -1)])
def test_temperature_rises_where_entropy_is_too_low_and_falls_where_it_is_high(scale, direction):
    # The entropy aimed at is -scale for each of two actions: +40 is out of reach, -40 always exceeded.
    sac, cells = made(target_entropy_scale=scale)
    (_, log_alpha), metrics = sac.learn_actor(batch(), cells["critic"].module, cells["actor"], cells["log_alpha"], KEY)
    moved = float(log_alpha.module) - float(cells["log_alpha"].module)
    assert moved == pytest.approx(direction * RATE, rel=1e-3)  # the first step of Adam is its learning rate
    expected = -1.0 * (-float(metrics["entropy"]) - scale * 2)
    assert float(metrics["ent_coef_loss"]) == pytest.approx(expected, rel=1e-5)


def test_initial_temperature_is_the_setting():
    _, cells = made(initial_alpha=0.2)
    assert float(jnp.exp(cells["log_alpha"].module)) == pytest.approx(0.2)


def test_acting_is_random_within_bounds_and_play_is_not():
    sac, cells = made()
    actor, obs = cells["actor"].module, batch().obs
    first, again = sac.act(obs, actor, KEY), sac.act(obs, actor, KEY)
    other = sac.act(obs, actor, jax.random.key(8))
    assert first.shape == (6, 2)
    assert bool((jnp.abs(first) <= 1).all())
    assert jnp.array_equal(first, again)
    assert not jnp.array_equal(first, other)
    mean, _ = jnp.split(actor(obs), 2, axis=-1)
    np.testing.assert_allclose(sac.play(obs, actor), jnp.tanh(mean), rtol=1e-6)


def test_deviation_is_kept_between_its_limits():
    one = actions(lambda obs: jnp.asarray([[0.0, 0.0, -50.0, 50.0]]), None)
    assert one.log_std.tolist() == [[-5.0, 2.0]]


def test_refuses_other_actions():
    with pytest.raises(EnvError, match=r"SAC needs continuous \(Box\) actions.*try dqn or ppo"):
        SAC().cells(EnvSpec("CartPole-v1", Box((4,)), Discrete(2), 4), KEY)
