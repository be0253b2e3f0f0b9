"""normalise: merged moments are the moments of everything seen."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.nets import Moments, Normaliser
from headrace.types import MASK, Box, Dict, Discrete

numbers = st.lists(st.floats(-1000, 1000, width=16), min_size=4, max_size=4)


@settings(max_examples=30, deadline=None)
@given(numbers, numbers, numbers)
def test_merging_gives_the_moments_of_the_concatenation(first, second, third):
    a, b, c = (np.asarray(x, np.float32) for x in (first, second, third))
    start = Moments(jnp.asarray(a.mean()), jnp.asarray(a.var()), jnp.asarray(float(len(a))))
    merged = start.update(jnp.asarray(b)).update(jnp.asarray(c))
    everything = np.concatenate([a, b, c]).astype(np.float64)
    np.testing.assert_allclose(merged.mean, everything.mean(), rtol=1e-3, atol=1e-2)
    np.testing.assert_allclose(merged.var, everything.var(), rtol=1e-3, atol=1e-1)
    assert merged.count == 12


def test_the_start_weighs_next_to_nothing():
    data = np.random.default_rng(0).normal(3, 2, (16, 8, 5)).astype(np.float32)
    moments = Moments.of((5,)).update(jnp.asarray(data))
    np.testing.assert_allclose(moments.mean, data.reshape(-1, 5).mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(moments.var, data.reshape(-1, 5).var(axis=0), rtol=1e-3)
    np.testing.assert_allclose(moments.count, 128, rtol=1e-5)
    normal = moments.normalise(jnp.asarray(data)).reshape(-1, 5)
    np.testing.assert_allclose(normal.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(normal.std(axis=0), 1, atol=1e-3)


def test_merging_in_parts_equals_merging_at_once_after_a_million():
    rng = np.random.default_rng(1)
    moments = Moments(jnp.asarray(5.0), jnp.asarray(4.0), jnp.asarray(1e6))
    data = rng.normal(5, 2, (10, 1000)).astype(np.float32)
    parts = moments
    for part in data:
        parts = parts.update(jnp.asarray(part))
    whole = moments.update(jnp.asarray(data.ravel()))
    np.testing.assert_allclose(parts.mean, whole.mean, rtol=1e-5)
    np.testing.assert_allclose(parts.var, whole.var, rtol=1e-4)


def test_normalise_clips_and_survives_a_constant():
    moments = Moments.of(()).update(jnp.full(1000, 7.0))
    assert bool(jnp.isfinite(moments.normalise(jnp.asarray(7.0))))
    assert moments.normalise(jnp.asarray(1e9)) == 10.0
    assert moments.normalise(jnp.asarray(-1e9)) == -10.0


SPACE = Dict(
    (
        (MASK, Box((2,), "float32")),
        ("choice", Discrete(3)),
        ("deep", Dict((("real", Box((1,))),))),
        ("pixels", Box((2,), "uint8")),
        ("real", Box((2,))),
    )
)


def observations():
    rng = np.random.default_rng(0)
    return {
        MASK: jnp.asarray(rng.integers(0, 2, (64, 2)), jnp.float32),
        "choice": jnp.asarray(rng.integers(0, 3, 64), jnp.int32),
        "deep": {"real": jnp.asarray(rng.normal(-4, 0.1, (64, 1)), jnp.float32)},
        "pixels": jnp.asarray(rng.integers(0, 256, (64, 2)), jnp.uint8),
        "real": jnp.asarray(rng.normal(9, 3, (64, 2)), jnp.float32),
    }


def test_only_real_numbers_are_normalised():
    obs = observations()
    normaliser = Normaliser(SPACE).update(obs)
    assert len(normaliser.moments) == 2
    found = normaliser(obs)
    for name in (MASK, "choice", "pixels"):
        assert jnp.array_equal(found[name], obs[name])
        assert found[name].dtype == obs[name].dtype
    for part in (found["real"], found["deep"]["real"]):
        np.testing.assert_allclose(part.mean(axis=0), 0, atol=1e-2)
        np.testing.assert_allclose(part.std(axis=0), 1, atol=1e-2)


def test_update_takes_trajectories_and_a_plain_box():
    data = np.random.default_rng(2).normal(2, 5, (6, 4, 3)).astype(np.float32)
    normaliser = Normaliser(Box((3,))).update(jnp.asarray(data[:2])).update(jnp.asarray(data[2:]))
    (moments,) = normaliser.moments.values()
    np.testing.assert_allclose(moments.mean, data.reshape(-1, 3).mean(axis=0), rtol=1e-3)
    np.testing.assert_allclose(moments.var, data.reshape(-1, 3).var(axis=0), rtol=1e-3)


@pytest.mark.parametrize("space", [SPACE, Box((3,))])
def test_disabled_it_changes_nothing(space):
    obs = observations() if space is SPACE else jnp.asarray([[1.0, 2.0, 300.0]])
    normaliser = Normaliser(space, enabled=False).update(obs)
    assert normaliser.moments == {}
    assert str(normaliser(obs)) == str(obs)


def test_before_any_update_observations_pass_nearly_as_they_are():
    np.testing.assert_allclose(Normaliser(Box((2,)))(jnp.asarray([[0.5, -2.0]])), [[0.5, -2.0]], rtol=1e-6)
