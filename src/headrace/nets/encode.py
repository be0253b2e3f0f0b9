"""Observations and actions of any space, as one vector."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from headrace.types import MASK, Array, Box, Dict, Discrete, MultiDiscrete, Space, Tree


def width(space: Space) -> int:
    """How long the vector of one sample is."""
    match space:
        case Box(shape):
            return math.prod(shape)
        case Discrete(n):
            return n
        case MultiDiscrete(counts):
            return sum(counts)
        case Dict(items):
            return sum(width(part) for name, part in items if name != MASK)


def encode(space: Space, value: Tree) -> Array:
    """Batched samples as vectors: choices one-hot, bytes to [0, 1], parts side by side, masks left out."""
    match space:
        case Box(shape, dtype):
            flat = jnp.reshape(value, (*value.shape[: value.ndim - len(shape)], -1))
            return flat.astype(jnp.float32) / 255 if dtype == "uint8" else flat.astype(jnp.float32)
        case Discrete(n):
            return jax.nn.one_hot(value, n)
        case MultiDiscrete(counts):
            parts = [jax.nn.one_hot(value[..., i], n) for i, n in enumerate(counts)]
            return jnp.concatenate(parts, axis=-1)
        case Dict(items):
            return jnp.concatenate([encode(part, value[name]) for name, part in items if name != MASK], axis=-1)


def action_mask(obs: Tree) -> Array | None:
    """The mask an observation carries, if any."""
    return obs.get(MASK) if isinstance(obs, dict) else None
