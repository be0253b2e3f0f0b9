"""returns: against rlax, against numbers worked out by hand, against a plain loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.returns import discounted, gae, vtrace


@pytest.mark.parametrize("decay", [0.0, 0.95, 1.0])
def test_gae_equals_rlax(decay):
    rng = np.random.default_rng(0)
    steps, envs, gamma = 12, 3, 0.9
    rewards, values = rng.normal(size=(steps, envs)), rng.normal(size=(steps + 1, envs))
    terminated = rng.random((steps, envs)) < 0.3
    discounts = gamma * ~terminated
    oracle = jax.vmap(rlax.truncated_generalized_advantage_estimation, in_axes=(1, 1, None, 1), out_axes=1)
    expected = oracle(jnp.asarray(rewards), jnp.asarray(discounts), decay, jnp.asarray(values))
    errors = rewards + discounts * values[1:] - values[:-1]
    np.testing.assert_allclose(
        gae(jnp.asarray(errors), jnp.asarray(terminated), gamma * decay), expected, rtol=1e-5, atol=1e-6
    )


def test_gae_by_hand_bootstraps_through_truncation_and_not_through_termination():
    # gamma = lambda = 0.5, decay 0.25. Step 1 terminates; step 3 is cut short with a value of 8 beyond.
    gamma, decay = 0.5, 0.25
    rewards = jnp.asarray([[1.0], [2.0], [3.0], [4.0], [5.0]])
    values = jnp.asarray([[1.0], [1.0], [1.0], [1.0], [1.0]])
    next_values = jnp.asarray([[1.0], [100.0], [1.0], [8.0], [2.0]])
    terminated = jnp.asarray([[False], [True], [False], [False], [False]])
    truncated = jnp.asarray([[False], [False], [False], [True], [False]])
    errors = rewards + gamma * ~terminated * next_values - values
    np.testing.assert_allclose(errors[:, 0], [0.5, 1.0, 2.5, 7.0, 5.0])
    advantages = gae(errors, terminated | truncated, decay)
    np.testing.assert_allclose(advantages[:, 0], [0.5 + 0.25 * 1.0, 1.0, 2.5 + 0.25 * 7.0, 7.0, 5.0])


def test_discounted_by_hand():
    rewards = jnp.asarray([[1.0, 1.0], [2.0, 1.0], [4.0, 1.0], [8.0, 1.0]])
    done = jnp.asarray([[False, False], [True, False], [False, False], [False, True]])
    np.testing.assert_allclose(discounted(rewards, done, 0.5)[:, 0], [1.0, 2.5, 4.0, 10.0])
    np.testing.assert_allclose(discounted(rewards, done, 0.5)[:, 1], [1.0, 1.5, 1.75, 1.875])


compiled_gae, compiled_discounted = jax.jit(gae), jax.jit(discounted)
trajectories = st.tuples(
    st.lists(st.floats(-5, 5, width=32), min_size=6, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6)
)


@settings(max_examples=30, deadline=None)
@given(trajectories, st.sampled_from([0.0, 0.9]))
def test_both_equal_a_plain_loop(trajectory, decay):
    numbers, ends = trajectory
    forward, past = [], 0.0
    for number, end in zip(numbers, ends, strict=True):
        past = decay * past + number
        forward.append(past)
        past = 0.0 if end else past
    backward, later = [], 0.0
    for number, end in zip(reversed(numbers), reversed(ends), strict=True):
        later = number + (0.0 if end else decay * later)
        backward.insert(0, later)
    column, done = jnp.asarray(numbers, jnp.float32)[:, None], jnp.asarray(ends)[:, None]
    np.testing.assert_allclose(compiled_discounted(column, done, decay)[:, 0], forward, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(compiled_gae(column, done, decay)[:, 0], backward, rtol=1e-4, atol=1e-4)


def off_policy(seed=0, steps=12, envs=3):
    rng = np.random.default_rng(seed)
    rewards, values = rng.normal(size=(steps, envs)), rng.normal(size=(steps + 1, envs))
    return rewards, values, np.exp(rng.normal(size=(steps, envs))), rng.random((steps, envs)) < 0.3


@pytest.mark.parametrize(("lam", "rho_bar"), [(1.0, 1.0), (0.8, 1.0), (1.0, 3.0), (0.0, 0.5)])
def test_vtrace_equals_rlax(lam, rho_bar):
    gamma = 0.9
    rewards, values, ratios, terminated = off_policy()
    discounts = gamma * ~terminated
    oracle = jax.vmap(
        lambda *given: rlax.vtrace_td_error_and_advantage(*given, lam, rho_bar, rho_bar), in_axes=1, out_axes=1
    )
    expected = oracle(*(jnp.asarray(x) for x in (values[:-1], values[1:], rewards, discounts, ratios)))
    errors = rewards + discounts * values[1:] - values[:-1]
    given = (jnp.asarray(x) for x in (errors, ratios, terminated))
    corrections, advantages = vtrace(*given, gamma * lam, rho_bar=rho_bar)
    np.testing.assert_allclose(corrections, expected.errors, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(advantages, expected.pg_advantage, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rho_bar", "c_bar"), [(1.0, 1.0), (2.0, 0.5), (0.5, 2.0)])
def test_vtrace_equals_a_plain_loop(rho_bar, c_bar):
    decay = 0.9
    errors, _, ratios, done = off_policy(1)
    corrections, advantages = np.zeros_like(errors), np.zeros_like(errors)
    for env in range(errors.shape[1]):
        later = 0.0
        for step in reversed(range(len(errors))):
            later = 0.0 if done[step, env] else decay * later
            error, ratio = errors[step, env], ratios[step, env]
            advantages[step, env] = min(rho_bar, ratio) * (error + later)
            later = min(rho_bar, ratio) * error + min(c_bar, ratio) * later
            corrections[step, env] = later
    given = (jnp.asarray(x) for x in (errors, ratios, done))
    for mine, theirs in zip(vtrace(*given, decay, rho_bar, c_bar), (corrections, advantages), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_vtrace_on_policy_is_gae():
    errors, _, _, done = (jnp.asarray(x) for x in off_policy(2))
    expected = gae(errors, done, 0.7)
    for part in vtrace(errors, jnp.ones_like(errors), done, 0.7):
        np.testing.assert_allclose(part, expected, rtol=1e-5, atol=1e-6)
