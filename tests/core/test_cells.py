"""cells: minimise is one optimiser step, track is one step of the way."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from headrace.core.cells import Learned, Tracked
from headrace.core.replicas import Replicas, capturing_gradients, reducing, standardised
from headrace.nets import Moments


class Line(eqx.Module):
    slope: jax.Array
    offset: jax.Array
    count: jax.Array
    name: str = eqx.field(static=True)
    act: Any = jax.nn.relu

    def __call__(self, x):
        return self.slope * x + self.offset


def line(slope=2.0, offset=-1.0, count=7, name="line"):
    return Line(jnp.asarray(slope), jnp.asarray(offset), jnp.asarray(count), name)


X = jnp.asarray([1.0, 3.0])
Y = jnp.asarray([0.0, 2.0])


def loss(module):
    return jnp.mean((module(X) - Y) ** 2)


def test_minimise_is_the_sgd_step_done_by_hand():
    # Errors are 2*1-1-0 = 1 and 2*3-1-2 = 3: loss 5, d/dslope 1*1 + 3*3 = 10, d/doffset 1 + 3 = 4.
    cell, value = Learned(line(), optax.sgd(0.1)).minimise(loss)
    assert value == 5.0
    np.testing.assert_allclose(cell.module.slope, 2.0 - 0.1 * 10)
    np.testing.assert_allclose(cell.module.offset, -1.0 - 0.1 * 4, rtol=1e-6)
    assert cell.module.count == 7
    assert cell.updates == 1


@pytest.mark.parametrize(
    "optimiser",
    [
        optax.adam(1e-2),
        optax.adamw(1e-2, weight_decay=0.1),
        optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-2)),
    ],
)
def test_minimise_repeated_equals_optax(optimiser):
    cell = Learned(line(), optimiser)
    weights = {"slope": jnp.asarray(2.0), "offset": jnp.asarray(-1.0)}
    state = optimiser.init(weights)
    for _ in range(5):
        cell, value = cell.minimise(loss)
        expected, gradient = jax.value_and_grad(lambda w: jnp.mean((w["slope"] * X + w["offset"] - Y) ** 2))(weights)
        step, state = optimiser.update(gradient, state, weights)
        weights = optax.apply_updates(weights, step)
        np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(cell.module.slope, weights["slope"], rtol=1e-6)
    np.testing.assert_allclose(cell.module.offset, weights["offset"], rtol=1e-6)
    assert cell.updates == 5
    assert cell.updates.dtype == jnp.int32


def test_minimise_with_aux_returns_the_pair():
    cell, (value, aux) = Learned(line(), optax.sgd(0.1)).minimise(
        lambda m: (loss(m), {"twice": 2 * loss(m)}), has_aux=True
    )
    assert (value, aux["twice"]) == (5.0, 10.0)
    np.testing.assert_allclose(cell.module.slope, 1.0)


def test_minimise_leaves_the_cell_it_was_called_on():
    cell = Learned(line(), optax.sgd(0.1))
    cell.minimise(loss)
    assert (float(cell.module.slope), int(cell.updates)) == (2.0, 0)


def test_reducing_passes_every_gradient_through_and_ends_with_the_block():
    seen = []

    def halve(gradient):
        seen.append((float(gradient.slope), float(gradient.offset)))
        return jax.tree.map(lambda g: g / 2, gradient)

    cell = Learned(line(), optax.sgd(0.1))
    with reducing(Replicas(2, halve)):
        halved, value = cell.minimise(loss)
    whole, _ = cell.minimise(loss)
    assert seen == [(10.0, 4.0)]
    assert value == 5.0
    np.testing.assert_allclose(halved.module.slope, 1.5)
    np.testing.assert_allclose(whole.module.slope, 1.0)


def test_reducing_ends_with_an_error_too():
    with pytest.raises(KeyError), reducing(Replicas(2, lambda g: jax.tree.map(jnp.zeros_like, g))):
        raise KeyError
    cell, _ = Learned(line(), optax.sgd(0.1)).minimise(loss)
    np.testing.assert_allclose(cell.module.slope, 1.0)


def test_replicas_that_reduce_equal_one_batch():
    xs, ys = jnp.asarray([[1.0, 3.0], [-2.0, 0.5]]), jnp.asarray([[0.0, 2.0], [1.0, 1.0]])
    cell = Learned(line(), optax.adam(0.1))
    arrays, static = eqx.partition(cell, eqx.is_array)

    def replica(x, y):
        with reducing(Replicas(2, lambda g: jax.lax.pmean(g, "replica"))):
            changed, _ = eqx.combine(arrays, static).minimise(lambda m: jnp.mean((m(x) - y) ** 2))
        return changed.module.slope

    slopes = jax.vmap(replica, axis_name="replica")(xs, ys)
    alone, _ = cell.minimise(lambda m: jnp.mean((m(xs.ravel()) - ys.ravel()) ** 2))
    np.testing.assert_allclose(slopes, [alone.module.slope] * 2, rtol=1e-6)


def test_replicas_pool_their_statistics():
    values = jnp.asarray(np.random.default_rng(0).normal(2.0, 3.0, (2, 40)), jnp.float32)

    def replica(own):
        with reducing(Replicas(2, lambda tree: jax.lax.pmean(tree, "replica"))):
            held = Moments.of(()).update(own)
            return standardised(own), held.mean, held.var, held.count

    scaled, mean, var, count = jax.vmap(replica, axis_name="replica")(values)
    whole = Moments.of(()).update(values.ravel())
    np.testing.assert_allclose(scaled.ravel(), standardised(values.ravel()), rtol=1e-4, atol=1e-6)
    for ours, theirs in ((mean, whole.mean), (var, whole.var), (count, whole.count)):
        np.testing.assert_allclose(ours, [theirs] * 2, rtol=1e-5)


def test_watching_sees_each_gradient_with_its_cell():
    cell, seen = Learned(line(), optax.sgd(0.1)), []
    with capturing_gradients(lambda found, gradient: seen.append((found, float(gradient.slope)))):
        changed, _ = cell.minimise(loss)
    cell.minimise(loss)
    assert len(seen) == 1
    assert seen[0][0] is cell
    np.testing.assert_allclose(changed.module.slope, cell.module.slope - 0.1 * seen[0][1])


@pytest.mark.parametrize("tau", [0.0, 0.25, 1.0])
def test_track_moves_a_share_of_the_way(tau):
    moved = Tracked(line(slope=2.0, offset=0.0, count=1)).track(
        Learned(line(slope=6.0, offset=-4.0, count=9), optax.sgd(1)), tau
    )
    np.testing.assert_allclose(moved.module.slope, 2.0 + 4.0 * tau)
    np.testing.assert_allclose(moved.module.offset, -4.0 * tau)
    assert moved.module.count == 9  # what cannot be moved part of the way is taken over


def test_track_of_a_tracked_cell_and_set():
    moved = Tracked(jnp.asarray(1.0)).track(Tracked(jnp.asarray(3.0)), 0.5)
    assert moved.module == 2.0
    assert moved.set(jnp.asarray(5.0)).module == 5.0


def test_cells_are_called_as_their_module():
    assert jnp.array_equal(Learned(line(), optax.sgd(1))(X), line()(X))
    assert jnp.array_equal(Tracked(line())(X), line()(X))
