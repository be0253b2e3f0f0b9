"""a3c: losses against plain NumPy, and one gradient of each cell in a pass."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headrace.algorithms import A3C
from headrace.core.replicas import capturing_gradients
from headrace.errors import ConfigError
from headrace.graph import trace
from headrace.types import MASK, Box, Dict, Discrete, EnvSpec, MultiDiscrete, Transition

KEY = jax.random.key(7)
STEPS, ENVS = 6, 4
DISCRETE = EnvSpec("toy", Box((3,)), Discrete(3), ENVS)
CONTINUOUS = EnvSpec("toy", Box((3,)), Box((2,), bounded=True), ENVS)


@cache
def made(spec=DISCRETE, **settings):
    algorithm = A3C(**({"hidden": (8,), "horizon": STEPS, "num_envs": ENVS} | settings))
    return algorithm, algorithm.cells(spec, jax.random.key(0))


@cache
def trajectory(spec=DISCRETE):
    a3c, cells = made(spec)
    keys = jax.random.split(jax.random.key(1), 4)
    obs = jax.random.normal(keys[0], (STEPS, ENVS, 3))
    ends = jax.random.randint(keys[1], (STEPS, ENVS), 0, 6)
    return Transition(
        obs=obs,
        action=a3c.act(obs, cells["actor"].module, KEY),
        reward=2 * jax.random.normal(keys[2], (STEPS, ENVS)),
        terminated=ends == 0,
        truncated=ends == 1,
        next_obs=jax.random.normal(keys[3], (STEPS, ENVS, 3)),
        extra={},
    )


@cache
def learned(spec=DISCRETE, **settings):
    a3c, cells = made(spec, **settings)
    (actor, critic), metrics = eqx.filter_jit(a3c.learn)(trajectory(spec), cells["actor"], cells["critic"])
    return cells, actor, critic, {name: float(value) for name, value in metrics.items()}


def expected_advantages(cells, t, gamma=0.99, gae_lambda=0.98):
    """Step by step, backwards, each environment by itself."""
    values, beyond = (np.asarray(cells["critic"](x))[..., 0] for x in (t.obs, t.next_obs))
    advantages = np.zeros((STEPS, ENVS))
    for env in range(ENVS):
        later = 0.0
        for step in reversed(range(STEPS)):
            if t.terminated[step, env] or t.truncated[step, env]:
                later = 0.0
            goal = t.reward[step, env] + (0.0 if t.terminated[step, env] else gamma * beyond[step, env])
            later = goal - values[step, env] + gamma * gae_lambda * later
            advantages[step, env] = later
    return advantages, values


def log_prob(cells, t):
    logits = np.asarray(cells["actor"].module.body(t.obs), np.float64)
    logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    taken = np.take_along_axis(logs, np.asarray(t.action)[..., None], axis=-1)[..., 0]
    return taken, -(np.exp(logs) * logs).sum(axis=-1)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("gae_lambda", [0.95, 1.0])
def test_losses_are_means_over_the_trajectory_as_numpy_has_them(normalise, gae_lambda):
    cells, _, _, metrics = learned(normalise_advantage=normalise, gae_lambda=gae_lambda)
    t = trajectory()
    advantages, values = expected_advantages(cells, t, gae_lambda=gae_lambda)
    weights = (advantages - advantages.mean()) / advantages.std() if normalise else advantages
    taken, entropy = log_prob(cells, t)
    assert metrics["policy_gradient_loss"] == pytest.approx(-(weights * taken).mean(), abs=1e-5)
    assert metrics["entropy_loss"] == pytest.approx(-entropy.mean(), rel=1e-5)
    assert metrics["value_loss"] == pytest.approx((advantages**2).mean(), rel=1e-4)
    variance = 1 - advantages.var() / (values + advantages).var()
    assert metrics["explained_variance"] == pytest.approx(variance, abs=1e-4)


@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_each_cell_that_was_given_has_one_gradient(spec):
    a3c, cells = made(spec)
    seen = []
    with capturing_gradients(lambda cell, gradient: seen.append((cell, gradient))):
        (actor, critic), _ = a3c.learn(trajectory(spec), cells["actor"], cells["critic"])
    assert [cell is cells[name] for (cell, _), name in zip(seen, ("actor", "critic"), strict=True)] == [True, True]
    assert actor.updates == critic.updates == 1
    for (cell, gradient), after in zip(seen, (actor, critic), strict=True):
        step, _ = cell.optimiser.update(gradient, cell.state, eqx.filter(cell.module, eqx.is_inexact_array))
        assert eqx.tree_equal(eqx.apply_updates(cell.module, step), after.module, rtol=1e-5, atol=1e-6)


def test_the_actor_moves_towards_what_was_better_than_expected():
    cells, actor, _, _ = learned(ent_coef=0.0)
    t = trajectory()
    advantages, _ = expected_advantages(cells, t)
    weights = (advantages - advantages.mean()) / advantages.std()
    before, after = (np.asarray(cell(t.obs).log_prob(t.action)) for cell in (cells["actor"], actor))
    assert (weights * after).mean() > (weights * before).mean()


def test_the_entropy_bonus_raises_entropy():
    a3c, cells = made(ent_coef=100.0)
    peaked = eqx.tree_at(lambda c: c.module.body.layers[-1].bias, cells["actor"], jnp.asarray([2.0, 0.0, 0.0]))
    (actor, _), _ = a3c.learn(trajectory(), peaked, cells["critic"])
    obs = trajectory().obs
    assert float(actor(obs).entropy().mean()) > float(peaked(obs).entropy().mean())


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
    a3c, cells = made(spec)
    obs, actor = jnp.ones((5, 3)), cells["actor"].module
    for action in (a3c.act(obs, actor, KEY), a3c.play(obs, actor)):
        assert (action.shape, str(action.dtype)) == (shape, dtype)
    assert jnp.array_equal(a3c.play(obs, actor), actor(obs).mode())
    assert not jnp.array_equal(a3c.act(obs, actor, KEY), a3c.act(obs, actor, jax.random.key(8)))


def test_a_mask_binds_acting_and_playing():
    space = Dict(((MASK, Box((3,), "bool")), ("x", Box((3,)))))
    a3c, cells = made(EnvSpec("toy", space, Discrete(3), ENVS))
    obs = {"x": jnp.ones((50, 3)), MASK: jnp.tile(jnp.asarray([[True, False, False]]), (50, 1))}
    assert set(a3c.act(obs, cells["actor"].module, KEY).tolist()) == {0}
    assert set(a3c.play(obs, cells["actor"].module).tolist()) == {0}


def test_a_pass_is_one_trajectory_learned_from_once():
    graph = trace(A3C(hidden=(8,), num_envs=ENVS, horizon=5), DISCRETE)
    assert [node.id for node in graph.nodes] == [
        "env.observe", "act", "env.step", "rollout.put", "rollout.take", "learn",
    ]  # fmt: skip
    assert [bound.cell for bound in graph.only("learn").writes] == ["actor", "critic"]
    assert (graph.domains[0].draws[0].epochs, graph.domains[0].draws[0].staleness) == (1, 0)
    assert graph.only("env.step").times == 5


def test_contradictory_settings_are_refused():
    for settings, sentence in (
        ({"horizon": 0}, "horizon=0 must be at least 1"),
        ({"gae_lambda": 1.5}, "gae_lambda=1.5 must lie between 0 and 1"),
        ({"max_grad_norm": 0.0}, "max_grad_norm=0.0 must be above 0"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            A3C(**settings)
