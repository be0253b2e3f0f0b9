"""Running statistics as a module: kept in a cell, they are published together with the actor."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import keystr

from headrace.core.replicas import pooled
from headrace.types import MASK, Array, Space, Tree, struct

CLIP = 10.0


class Moments(eqx.Module):
    """Mean, variance and count of everything seen, merged batch by batch (Chan et al., 1979)."""

    mean: Array
    var: Array
    count: Array

    @staticmethod
    def of(shape: tuple[int, ...]) -> Moments:
        return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.asarray(1e-4))

    def update(self, values: Array) -> Moments:
        """Merge in values with any number of leading batch axes."""
        mean, var, number = pooled(values.reshape(-1, *self.mean.shape))
        gap = mean - self.mean
        total = self.count + number
        square = self.var * self.count + var * number + gap**2 * self.count * number / total
        return Moments(self.mean + gap * number / total, square / total, total)

    def normalise(self, values: Array) -> Array:
        return jnp.clip((values - self.mean) / jnp.sqrt(self.var + 1e-8), -CLIP, CLIP)


class Normaliser(eqx.Module):
    """Normalises the real-valued parts of an observation; choices, bytes and masks are left unchanged."""

    moments: dict[str, Moments]

    def __init__(self, space: Space, enabled: bool = True):
        leaves = jax.tree_util.tree_leaves_with_path(struct(space))
        self.moments = {
            keystr(path): Moments.of(leaf.shape)
            for path, leaf in leaves
            if enabled and MASK not in keystr(path) and jnp.issubdtype(leaf.dtype, jnp.floating)
        }

    def __call__(self, obs: Tree) -> Tree:
        def normalise(path: Any, leaf: Array) -> Array:
            moments = self.moments.get(keystr(path))
            return leaf if moments is None else moments.normalise(leaf)

        return jax.tree_util.tree_map_with_path(normalise, obs)

    def update(self, obs: Tree) -> Normaliser:
        """Merge in a batch of observations."""
        leaves = {keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(obs)}
        moments = {name: held.update(leaves[name]) for name, held in self.moments.items()}
        changed: Normaliser = eqx.tree_at(lambda me: me.moments, self, moments)
        return changed
