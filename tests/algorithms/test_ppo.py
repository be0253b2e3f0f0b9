"""ppo: surrogate against rlax, advantages by hand, cells that travel with the actor."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from headrace.algorithms import PPO
from headrace.core.returns import discounted, gae
from headrace.types import Box, Discrete, EnvSpec, MultiDiscrete, Transition

KEY = jax.random.key(7)
STEPS, ENVS = 8, 4
DISCRETE = EnvSpec("toy", Box((3,)), Discrete(3), ENVS)
CONTINUOUS = EnvSpec("toy", Box((3,)), Box((2,), bounded=True), ENVS)


@cache
def made(spec=DISCRETE, **settings):
    defaults = {"hidden": (8,), "horizon": STEPS, "num_envs": ENVS, "minibatch_size": STEPS * ENVS, "epochs": 1}
    algorithm = PPO(**(defaults | settings))
    return algorithm, algorithm.cells(spec, jax.random.key(0))


@cache
def trajectory(spec=DISCRETE):
    ppo, cells = made(spec)
    keys = jax.random.split(jax.random.key(1), 5)
    obs = 2 + 3 * jax.random.normal(keys[0], (STEPS, ENVS, 3))
    action, extra = ppo.act(obs, cells["actor"].module, cells["normaliser"].module, KEY)
    ends = jax.random.randint(keys[1], (STEPS, ENVS), 0, 6)
    return Transition(
        obs=obs,
        action=action,
        reward=5 * jax.random.normal(keys[2], (STEPS, ENVS)),
        terminated=ends == 0,
        truncated=ends == 1,
        next_obs=2 + 3 * jax.random.normal(keys[3], (STEPS, ENVS, 3)),
        extra=extra,
    )


ORDER = ("actor", "critic", "normaliser", "returns")


@cache
def compiled(spec=DISCRETE, **settings):
    ppo, _ = made(spec, **settings)
    return eqx.filter_jit(lambda trajectory, *cells: ppo.learn(trajectory, *cells, KEY))


def learn(trajectory, cells, spec=DISCRETE, **settings):
    after, metrics = compiled(spec, **settings)(trajectory, *(cells[name] for name in ORDER))
    return dict(zip(ORDER, after, strict=True)), {name: float(value) for name, value in metrics.items()}


@cache
def learned(spec=DISCRETE, **settings):
    _, cells = made(spec, **settings)
    return cells, *learn(trajectory(spec), cells, spec, **settings)


def expected_advantages(cells, t, gamma=0.99, gae_lambda=0.95, scaled=True):
    done = t.terminated | t.truncated
    sums = discounted(t.reward, done, gamma)
    scale = cells["returns"].module.update(sums).var if scaled else 1.0
    values, beyond = (cells["critic"](cells["normaliser"](x))[..., 0] for x in (t.obs, t.next_obs))
    errors = t.reward / jnp.sqrt(scale + 1e-8) + gamma * ~t.terminated * beyond - values
    return gae(errors, done, gamma * gae_lambda), values


@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_in_the_first_update_every_ratio_is_one(spec):
    _, _, metrics = learned(spec)
    # Minus the mean of advantages that were just centred.
    assert metrics["policy_gradient_loss"] == pytest.approx(0, abs=1e-5)
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-5)
    assert metrics["clip_fraction"] == 0


@pytest.mark.parametrize("normalise_reward", [True, False])
def test_value_loss_is_the_square_of_the_advantages_at_first(normalise_reward):
    cells, after, metrics = learned(normalise_reward=normalise_reward)
    advantages, values = expected_advantages(cells, trajectory(), scaled=normalise_reward)
    assert metrics["value_loss"] == pytest.approx(float((advantages**2).mean()), rel=1e-4)
    variance = 1 - float(advantages.var()) / float((values + advantages).var())
    assert metrics["explained_variance"] == pytest.approx(variance, abs=1e-4)
    assert after["critic"].updates == 1


def off_policy(shift):
    """The trajectory as if other probabilities had chosen it: ratios of exp(shift)."""
    t = trajectory()
    return t._replace(extra={"log_prob": t.extra["log_prob"] - shift})


@pytest.mark.parametrize("spread", [0.1, 1.0])
def test_surrogate_equals_rlax_where_ratios_are_spread(spread):
    shift = spread * jax.random.normal(KEY, (STEPS, ENVS))
    _, cells = made()
    _, metrics = learn(off_policy(shift), cells)
    advantages, _ = expected_advantages(cells, trajectory())
    advantages = ((advantages - advantages.mean()) / advantages.std()).ravel()
    ratios = jnp.exp(shift).ravel()
    loss = rlax.clipped_surrogate_pg_loss(ratios, advantages, 0.2)
    assert float(metrics["policy_gradient_loss"]) == pytest.approx(float(loss), rel=1e-3, abs=1e-5)
    assert float(metrics["clip_fraction"]) == pytest.approx(float((jnp.abs(ratios - 1) > 0.2).mean()), abs=1e-6)
    assert float(metrics["approx_kl"]) == pytest.approx(float((ratios - 1 - jnp.log(ratios)).mean()), rel=1e-3)


def test_clipping_stops_the_gradient():
    # A ratio of e where the advantage is positive and of 1/e where it is negative: nothing left to gain anywhere.
    advantages, _ = expected_advantages(made()[1], trajectory())
    centred = advantages - advantages.mean()
    _, cells = made()
    after, metrics = learn(off_policy(jnp.sign(centred)), cells)
    assert metrics["clip_fraction"] == 1
    assert eqx.tree_equal(after["actor"].module, cells["actor"].module)
    assert not eqx.tree_equal(after["critic"].module, cells["critic"].module)
    after, _ = learn(off_policy(-jnp.sign(centred)), cells)
    assert not eqx.tree_equal(after["actor"].module, cells["actor"].module)


def test_entropy_is_reported_and_its_bonus_raises_it():
    cells, _, metrics = learned()
    t = trajectory()
    entropy = float(cells["actor"](cells["normaliser"](t.obs)).entropy().mean())
    assert metrics["entropy_loss"] == pytest.approx(-entropy, rel=1e-5)
    peaked = eqx.tree_at(lambda c: c.module.body.layers[-1].bias, cells["actor"], jnp.asarray([2.0, 0.0, 0.0]))
    after, _ = learn(t, cells | {"actor": peaked}, ent_coef=100.0)
    obs = cells["normaliser"](t.obs)
    assert float(after["actor"](obs).entropy().mean()) > float(peaked(obs).entropy().mean())


def test_every_epoch_goes_over_every_minibatch():
    _, after, _ = learned(epochs=3, minibatch_size=8)
    assert after["actor"].updates == after["critic"].updates == 3 * 4


def test_normaliser_and_returns_take_in_the_trajectory():
    cells, after, _ = learned()
    t = trajectory()
    (moments,) = after["normaliser"].module.moments.values()
    np.testing.assert_allclose(moments.mean, t.obs.reshape(-1, 3).mean(axis=0), rtol=1e-3)
    np.testing.assert_allclose(moments.var, t.obs.reshape(-1, 3).var(axis=0), rtol=1e-3)
    sums = discounted(t.reward, t.terminated | t.truncated, 0.99)
    np.testing.assert_allclose(after["returns"].module.var, sums.var(), rtol=1e-3)
    np.testing.assert_allclose(after["returns"].module.count, STEPS * ENVS, rtol=1e-4)
    assert cells["returns"].module.count < 1


def test_switched_off_they_stay_as_they_are():
    cells, after, _ = learned(normalise_obs=False, normalise_reward=False)
    assert after["normaliser"].module.moments == {}
    assert eqx.tree_equal(after["returns"], cells["returns"])


@pytest.mark.parametrize(
    ("spec", "shape", "dtype"),
    [
        (DISCRETE, (5,), "int32"),
        (CONTINUOUS, (5, 2), "float32"),
        (EnvSpec("toy", Box((3,)), MultiDiscrete((2, 3)), ENVS), (5, 2), "int32"),
    ],
    ids=["discrete", "continuous", "several"],
)
def test_acting_and_playing_over_every_action_space(spec, shape, dtype):
    ppo, cells = made(spec)
    obs = jnp.ones((5, 3))
    action, extra = ppo.act(obs, cells["actor"].module, cells["normaliser"].module, KEY)
    assert (action.shape, str(action.dtype)) == (shape, dtype)
    choice = cells["actor"](cells["normaliser"](obs))
    np.testing.assert_allclose(extra["log_prob"], choice.log_prob(action), rtol=1e-6)
    calm = ppo.play(obs, cells["actor"].module, cells["normaliser"].module)
    assert (calm.shape, str(calm.dtype)) == (shape, dtype)
    assert jnp.array_equal(calm, choice.mode())


def test_the_actor_starts_near_indifference():
    _, cells = made()
    probability = np.exp([np.asarray(cells["actor"](jnp.ones((1, 3))).log_prob(jnp.asarray([i]))) for i in range(3)])
    np.testing.assert_allclose(probability, 1 / 3, atol=0.02)


def test_the_clip_follows_its_schedule_over_the_actor_s_updates():
    # Wide open in the first of eight updates, shut in the others: there every ratio that is not 1 counts as clipped.
    settings = {"clip_range": "linear:10:0:1", "epochs": 2, "minibatch_size": 8}
    _, after, metrics = learned(**settings)
    assert metrics["clip_fraction"] == pytest.approx(7 / 8)
    assert learn(trajectory(), after, **settings)[1]["clip_fraction"] == pytest.approx(1.0)
