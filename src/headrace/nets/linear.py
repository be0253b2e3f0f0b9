"""The layers of networks."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from headrace.nets.affine import affine
from headrace.types import Array


class Linear(eqx.Module):
    """x @ weight + bias, for any number of leading batch axes."""

    weight: Array
    bias: Array

    def __init__(self, inputs: int, outputs: int, key: Array, gain: float):
        self.weight = jax.nn.initializers.orthogonal(gain)(key, (inputs, outputs))
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Array) -> Array:
        return affine(x, self.weight, self.bias)


class LayerNorm(eqx.Module):
    """Zero mean and unit variance over the last axis, then a learned scale and shift."""

    scale: Array
    shift: Array

    def __init__(self, size: int):
        self.scale = jnp.ones(size)
        self.shift = jnp.zeros(size)

    def __call__(self, x: Array) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        norm = centred * jax.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5)
        return norm * self.scale + self.shift
