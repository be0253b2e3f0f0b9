"""impala: V-trace losses against plain NumPy, on-policy and off."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headrace.algorithms import A3C, IMPALA
from headrace.core.replicas import capturing_gradients
from headrace.errors import ConfigError
from headrace.graph import trace
from headrace.types import Box, Discrete, EnvSpec, MultiDiscrete, Transition

KEY = jax.random.key(7)
STEPS, ENVS = 6, 4
DISCRETE = EnvSpec("toy", Box((3,)), Discrete(3), ENVS)
CONTINUOUS = EnvSpec("toy", Box((3,)), Box((2,), bounded=True), ENVS)


@cache
def made(spec=DISCRETE, **settings):
    algorithm = IMPALA(**({"hidden": (8,), "horizon": STEPS, "num_envs": ENVS} | settings))
    return algorithm, algorithm.cells(spec, jax.random.key(0))


@cache
def trajectory(spec=DISCRETE, spread=0.0):
    """Acted by the actor itself, or by one with other probabilities: ratios of exp(spread * normal)."""
    impala, cells = made(spec)
    keys = jax.random.split(jax.random.key(1), 5)
    obs = jax.random.normal(keys[0], (STEPS, ENVS, 3))
    action, extra = impala.act(obs, cells["actor"].module, KEY)
    shift = spread * jax.random.normal(keys[4], (STEPS, ENVS))
    ends = jax.random.randint(keys[1], (STEPS, ENVS), 0, 6)
    return Transition(
        obs=obs,
        action=action,
        reward=2 * jax.random.normal(keys[2], (STEPS, ENVS)),
        terminated=ends == 0,
        truncated=ends == 1,
        next_obs=jax.random.normal(keys[3], (STEPS, ENVS, 3)),
        extra={"log_prob": extra["log_prob"] - shift},
    )


@cache
def learned(spec=DISCRETE, spread=0.0, **settings):
    impala, cells = made(spec, **settings)
    learn = eqx.filter_jit(impala.learn)
    (actor, critic), metrics = learn(trajectory(spec, spread), cells["actor"], cells["critic"])
    return cells, actor, critic, {name: float(value) for name, value in metrics.items()}


def expected(cells, t, rho_bar, c_bar, lam, gamma=0.99):
    """Corrections and advantages step by step, backwards, each environment by itself; and the ratios."""
    values, beyond = (np.asarray(cells["critic"](x))[..., 0] for x in (t.obs, t.next_obs))
    ratios = np.exp(np.asarray(cells["actor"](t.obs).log_prob(t.action) - t.extra["log_prob"]))
    corrections, advantages = np.zeros((STEPS, ENVS)), np.zeros((STEPS, ENVS))
    for env in range(ENVS):
        later = 0.0
        for step in reversed(range(STEPS)):
            if t.terminated[step, env] or t.truncated[step, env]:
                later = 0.0
            goal = t.reward[step, env] + (0.0 if t.terminated[step, env] else gamma * beyond[step, env])
            error, rho = goal - values[step, env], min(rho_bar, ratios[step, env])
            advantages[step, env] = rho * (error + gamma * lam * later)
            later = rho * error + min(c_bar, ratios[step, env]) * gamma * lam * later
            corrections[step, env] = later
    return corrections, advantages, ratios


@pytest.mark.parametrize(
    ("spread", "rho_bar", "c_bar", "lam", "normalise"),
    [(0.0, 1.0, 1.0, 1.0, True), (1.0, 1.0, 1.0, 0.95, True), (1.0, 2.0, 0.5, 1.0, False)],
)
def test_losses_are_means_of_vtrace_as_numpy_has_it(spread, rho_bar, c_bar, lam, normalise):
    settings = {"rho_bar": rho_bar, "c_bar": c_bar, "vtrace_lambda": lam, "normalise_advantage": normalise}
    cells, _, _, metrics = learned(spread=spread, **settings)
    t = trajectory(spread=spread)
    corrections, advantages, ratios = expected(cells, t, rho_bar, c_bar, lam)
    weights = (advantages - advantages.mean()) / advantages.std() if normalise else advantages
    choice = cells["actor"](t.obs)
    assert metrics["policy_gradient_loss"] == pytest.approx(
        -(weights * np.asarray(choice.log_prob(t.action))).mean(), abs=1e-5
    )
    assert metrics["value_loss"] == pytest.approx((corrections**2).mean(), rel=1e-4)
    assert metrics["entropy_loss"] == pytest.approx(-float(choice.entropy().mean()), rel=1e-5)
    assert metrics["approx_kl"] == pytest.approx((ratios - 1 - np.log(ratios)).mean(), rel=1e-3, abs=1e-6)
    # Rounding may put a ratio of one on either side of it.
    if spread:
        assert metrics["clip_fraction"] == pytest.approx((ratios > rho_bar).mean(), abs=1e-6)


def test_on_policy_it_is_a3c():
    _, actor, critic, _ = learned(vtrace_lambda=0.9)
    a3c = A3C(hidden=(8,), horizon=STEPS, num_envs=ENVS, learning_rate=made()[0].config.learning_rate,
              ent_coef=made()[0].config.ent_coef, gae_lambda=0.9)  # fmt: skip
    cells = made()[1]
    (other, judge), _ = a3c.learn(trajectory(), cells["actor"], cells["critic"])
    for mine, theirs in zip(jax.tree.leaves((actor, critic)), jax.tree.leaves((other, judge)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_each_cell_that_was_given_has_one_gradient(spec):
    impala, cells = made(spec)
    seen = []
    with capturing_gradients(lambda cell, gradient: seen.append(cell)):
        (actor, critic), _ = impala.learn(trajectory(spec, 0.5), cells["actor"], cells["critic"])
    assert len(seen) == 2
    assert seen[0] is cells["actor"]
    assert seen[1] is cells["critic"]
    assert actor.updates == critic.updates == 1


@pytest.mark.parametrize(
    ("spec", "shape", "dtype"),
    [
        (DISCRETE, (5,), "int32"),
        (CONTINUOUS, (5, 2), "float32"),
        (EnvSpec("toy", Box((3,)), MultiDiscrete((2, 3)), ENVS), (5, 2), "int32"),
    ],
    ids=["discrete", "continuous", "several"],
)
def test_acting_keeps_how_likely_it_was(spec, shape, dtype):
    impala, cells = made(spec)
    obs, actor = jnp.ones((5, 3)), cells["actor"].module
    action, extra = impala.act(obs, actor, KEY)
    assert (action.shape, str(action.dtype)) == (shape, dtype)
    np.testing.assert_allclose(extra["log_prob"], actor(obs).log_prob(action), rtol=1e-6)
    assert jnp.array_equal(impala.play(obs, actor), actor(obs).mode())


def test_the_store_says_how_stale_its_trajectories_may_be():
    graph = trace(IMPALA(hidden=(8,), num_envs=ENVS, staleness=3), DISCRETE)
    assert (graph.domains[0].draws[0].epochs, graph.domains[0].draws[0].staleness) == (1, 3)
    assert graph.stores["rollout"].struct.extra.keys() == {"log_prob"}
    assert trace(IMPALA(hidden=(8,), num_envs=ENVS), DISCRETE).domains[0].staleness == 4


def test_contradictory_settings_are_refused():
    for settings, sentence in (
        ({"staleness": -1}, "staleness=-1 must be at least 0"),
        ({"rho_bar": 0.0}, "rho_bar=0.0 must be above 0"),
        ({"c_bar": 0.0}, "c_bar=0.0 must be above 0"),
        ({"vtrace_lambda": 2.0}, "vtrace_lambda=2.0 must lie between 0 and 1"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            IMPALA(**settings)
