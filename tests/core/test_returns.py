"""returns: against rlax, against numbers worked out by hand, against a plain loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.returns import discounted, gae


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
