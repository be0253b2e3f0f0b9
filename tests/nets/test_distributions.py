"""distributions: densities that integrate to one, entropies by definition, masks that hold."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import EnvError
from headrace.nets import ActorNet, TanhNormal, box_size, distribution, masked, outputs_for
from headrace.nets.distributions import Categorical, MultiCategorical, Normal
from headrace.types import MASK, Box, Dict, Discrete, MultiDiscrete


def tanh_normal_density(action, mean, std):
    """By change of variables, in float64."""
    raw = np.arctanh(action)
    normal = np.exp(-0.5 * ((raw - mean) / std) ** 2) / (std * math.sqrt(2 * math.pi))
    return normal / (1 - action**2)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.0), (-1.5, 0.3)])
def test_tanh_normal_density_integrates_to_one_and_samples_report_it(mean, log_std):
    raw = np.linspace(-12, 12, 200_001)
    actions = np.tanh(raw)
    inner = np.abs(actions) < 1
    total = np.trapezoid(tanh_normal_density(actions[inner], mean, math.exp(log_std)), actions[inner])
    assert total == pytest.approx(1.0, abs=1e-3)
    many = TanhNormal(jnp.full((512, 1), mean), jnp.full((512, 1), log_std))
    action, log_prob = many.sample(jax.random.key(0))
    action = np.asarray(action, np.float64)[:, 0]
    tame = np.abs(action) < 0.999  # beyond, float32 does not tell the actions apart
    assert tame.mean() > 0.9
    expected = np.log(tanh_normal_density(action[tame], mean, math.exp(log_std)))
    np.testing.assert_allclose(np.asarray(log_prob)[tame], expected, atol=2e-3)


def test_tanh_normal_samples_follow_the_density():
    action, log_prob = TanhNormal(jnp.full((20_000, 1), 0.4), jnp.full((20_000, 1), -0.5)).sample(jax.random.key(1))
    grid = np.linspace(-0.9999, 0.9999, 100_001)
    density = tanh_normal_density(grid, 0.4, math.exp(-0.5))
    assert float(action.mean()) == pytest.approx(np.trapezoid(grid * density, grid), abs=0.01)
    entropy = -np.trapezoid(density * np.log(density), grid)
    assert -float(log_prob.mean()) == pytest.approx(entropy, abs=0.02)


def test_tanh_normal_is_finite_far_out_and_sums_over_the_last_axis():
    far = TanhNormal(jnp.asarray([[40.0, -40.0]]), jnp.asarray([[2.0, -5.0]]))
    action, log_prob = far.sample(jax.random.key(0))
    assert log_prob.shape == (1,)
    assert bool(jnp.isfinite(log_prob).all())
    assert bool((jnp.abs(action) <= 1).all())
    gradient = jax.grad(lambda mean: TanhNormal(mean, far.log_std).sample(jax.random.key(0))[1].sum())(far.mean)
    assert bool(jnp.isfinite(gradient).all())
    one = TanhNormal(jnp.asarray([[0.3, -0.2]]), jnp.asarray([[0.1, 0.2]]))
    key = jax.random.key(3)
    action, log_prob = one.sample(key)
    parts = [
        np.log(tanh_normal_density(float(action[0, i]), m, math.exp(s)))
        for i, (m, s) in enumerate(((0.3, 0.1), (-0.2, 0.2)))
    ]
    assert float(log_prob[0]) == pytest.approx(sum(parts), abs=1e-4)
    np.testing.assert_allclose(one.mode(), np.tanh([[0.3, -0.2]]), rtol=1e-6)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (1.5, -1.0), (-2.0, 0.7)])
def test_normal_log_prob_and_entropy_by_integration(mean, log_std):
    grid = np.linspace(mean - 20, mean + 20, 20_001)
    one = Normal(jnp.full((len(grid), 1), mean), jnp.asarray([log_std]))
    log_prob = np.asarray(one.log_prob(jnp.asarray(grid, jnp.float32)[:, None]), np.float64)
    density = np.exp(log_prob)
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)
    assert np.trapezoid(grid * density, grid) == pytest.approx(mean, abs=1e-3)
    assert float(one.entropy()[0]) == pytest.approx(-np.trapezoid(density * log_prob, grid), abs=1e-3)


def test_normal_shares_its_deviation_over_the_batch_and_sums_over_actions():
    both = Normal(jnp.zeros((3, 2)), jnp.asarray([0.0, 1.0]))
    assert both.log_prob(jnp.zeros((3, 2))).shape == (3,)
    np.testing.assert_allclose(both.log_prob(jnp.zeros((3, 2))), -math.log(2 * math.pi) - 1, rtol=1e-6)
    np.testing.assert_allclose(both.entropy(), [math.log(2 * math.pi * math.e) + 1] * 3, rtol=1e-6)
    sample = Normal(jnp.full((40_000, 2), 5.0), jnp.asarray([0.0, 1.0])).sample(jax.random.key(0))
    np.testing.assert_allclose(sample.mean(axis=0), [5, 5], atol=0.05)
    np.testing.assert_allclose(sample.std(axis=0), [1, math.e], rtol=0.02)


LOGITS = np.asarray([[0.0, 1.0, -2.0], [3.0, 3.0, 3.0]], np.float32)


def test_categorical_by_definition():
    p = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=-1, keepdims=True)
    one = Categorical(jnp.asarray(LOGITS))
    for action in range(3):
        np.testing.assert_allclose(one.log_prob(jnp.full(2, action)), np.log(p[:, action]), rtol=1e-5)
    np.testing.assert_allclose(one.entropy(), -(p * np.log(p)).sum(axis=-1), rtol=1e-5)
    assert one.mode().tolist() == [1, 0]
    assert one.mode().dtype == one.sample(jax.random.key(0)).dtype == jnp.int32
    drawn = Categorical(jnp.broadcast_to(LOGITS[0], (20_000, 3))).sample(jax.random.key(0))
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 20_000, p[0], atol=0.01)


def test_multi_categorical_is_the_product_of_its_parts():
    both = MultiCategorical(jnp.asarray([[0.0, 1.0, 2.0, -1.0, 0.5]]), (2, 3))
    first, second = Categorical(jnp.asarray([[0.0, 1.0]])), Categorical(jnp.asarray([[2.0, -1.0, 0.5]]))
    total = 0.0
    for i in range(2):
        for j in range(3):
            log_prob = both.log_prob(jnp.asarray([[i, j]]))
            np.testing.assert_allclose(
                log_prob, first.log_prob(jnp.asarray([i])) + second.log_prob(jnp.asarray([j])), rtol=1e-5
            )
            total += float(jnp.exp(log_prob)[0])
    assert total == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(both.entropy(), first.entropy() + second.entropy(), rtol=1e-5)
    assert both.mode().tolist() == [[1, 0]]
    sample = MultiCategorical(jnp.zeros((5_000, 5)), (2, 3)).sample(jax.random.key(0))
    assert (sample.shape, sample.dtype) == ((5_000, 2), jnp.int32)
    joint = np.bincount(np.asarray(sample[:, 0] * 3 + sample[:, 1]), minlength=6) / 5_000
    np.testing.assert_allclose(joint, 1 / 6, atol=0.03)  # uniform, so the parts are independent too


masks = st.lists(st.booleans(), min_size=4, max_size=4).filter(any)


@settings(max_examples=25, deadline=None)
@given(masks, st.lists(st.floats(-20, 20, width=32), min_size=4, max_size=4), st.integers(0, 2**31))
def test_forbidden_choices_are_never_sampled_and_gradients_stay_finite(mask, logits, seed):
    mask, logits = np.asarray(mask), jnp.asarray(logits, jnp.float32)

    def entropy_and_log_prob(logits):
        one = distribution(Discrete(4), jnp.broadcast_to(logits, (64, 4)), jnp.broadcast_to(mask, (64, 4)))
        action = one.sample(jax.random.key(seed))
        return (one.entropy() + one.log_prob(action)).mean(), action

    (value, action), gradient = jax.value_and_grad(entropy_and_log_prob, has_aux=True)(logits)
    assert mask[np.asarray(action)].all()
    assert bool(jnp.isfinite(value))
    assert bool(jnp.isfinite(gradient).all())
    assert np.asarray(gradient)[~mask].tolist() == [0.0] * int((~mask).sum())
    one = distribution(Discrete(4), logits[None], mask[None])
    p = np.exp([float(one.log_prob(jnp.asarray([i]))[0]) for i in range(4)])
    assert (p[~mask] == 0).all()
    assert p.sum() == pytest.approx(1, abs=1e-5)
    assert mask[int(one.mode()[0])]


def test_masks_of_several_choices_and_of_integers():
    mask = jnp.asarray([[1, 0, 0, 0, 1]], jnp.int8)
    both = distribution(MultiDiscrete((2, 3)), jnp.zeros((1, 5)), mask)
    assert both.sample(jax.random.key(0)).tolist() == [[0, 2]]
    np.testing.assert_allclose(both.entropy(), 0, atol=1e-6)
    assert masked(jnp.ones(2), None).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("space", "outputs"), [(Box((3,)), 3), (Box((2, 3)), 6), (Discrete(4), 4), (MultiDiscrete((2, 3)), 5)]
)
def test_outputs_for_every_action_space(space, outputs):
    assert outputs_for(space) == outputs


def test_spaces_without_a_distribution_are_refused():
    with pytest.raises((TypeError, EnvError)):
        outputs_for(Dict((("a", Discrete(2)),)))
    assert box_size(Box((2, 3), bounded=True), "SAC") == 6
    with pytest.raises(EnvError, match=r"TD3 squashes .* action 1 of 2 has not both; set --action-scale .* or try ppo"):
        box_size(Box((2,), low=(0.0, 0.0), high=(1.0, np.inf)), "TD3")
    with pytest.raises(
        EnvError, match=r"SAC needs continuous \(Box\) actions, this environment has Discrete\(n=2\); try dqn or ppo"
    ):
        box_size(Discrete(2), "SAC")


def test_actor_is_a_distribution_and_obeys_the_mask_in_its_observation():
    actor = ActorNet(lambda obs: obs["x"], jnp.zeros(3), Discrete(3))
    obs = {"x": jnp.asarray([[5.0, 1.0, 0.0]]), MASK: jnp.asarray([[False, True, True]])}
    assert actor(obs).mode().tolist() == [1]
    continuous = ActorNet(lambda obs: 2 * obs, jnp.asarray([0.5]), Box((1,)))(jnp.asarray([[3.0]]))
    assert (continuous.mode().tolist(), continuous.log_std.tolist()) == ([[6.0]], [0.5])
