"""affine: a gradient written for speed is still the gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headrace.nets.affine import affine


@pytest.mark.parametrize("lead", [(), (5,), (3, 5)])
@pytest.mark.parametrize(("inputs", "outputs"), [(4, 1), (4, 3), (3, 4), (1, 1), (1, 6)])
def test_values_and_gradients_are_those_of_the_plain_product(lead, inputs, outputs):
    keys = jax.random.split(jax.random.key(0), 4)
    x = jax.random.normal(keys[0], (*lead, inputs))
    weight = jax.random.normal(keys[1], (inputs, outputs))
    bias = jax.random.normal(keys[2], (outputs,))
    weigh = jax.random.normal(keys[3], (*lead, outputs))
    plain, fast = (jax.value_and_grad(lambda *a, f=f: (weigh * jnp.sin(f(*a))).sum(), argnums=(0, 1, 2))
                   for f in (lambda x, w, b: x @ w + b, affine))  # fmt: skip
    expected, gradients = plain(x, weight, bias)
    found, mine = fast(x, weight, bias)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    for a, b in zip(mine, gradients, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_gradients_under_vmap_and_jit():
    x, weight, bias = jnp.ones((2, 5, 4)), jnp.ones((2, 4, 3)), jnp.zeros((2, 3))
    gradient = jax.jit(jax.vmap(jax.grad(lambda w, x, b: affine(x, w, b).sum())))(weight, x, bias)
    np.testing.assert_allclose(gradient, np.full((2, 4, 3), 5.0))
