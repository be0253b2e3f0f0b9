"""Multi-layer perceptrons over batched inputs, and the default `network` of every algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from headrace.config import NetConfig
from headrace.errors import ConfigError, nearest
from headrace.nets.affine import affine
from headrace.nets.encode import encode, width
from headrace.types import Array, Space, Tree

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}


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


class MLP(eqx.Module):
    """Layers of `hidden` sizes over the encoded inputs, batched: `mlp(obs)` or `mlp(obs, action)`."""

    layers: list[Linear]
    norms: list[LayerNorm]
    inputs: tuple[Space, ...] = eqx.field(static=True)
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        inputs: tuple[Space, ...],
        outputs: int,
        key: Array,
        *,
        hidden: tuple[int, ...] = (256, 256),
        activation: str = "relu",
        layer_norm: bool = False,
        last_gain: float = 1.0,
    ):
        sizes = (sum(width(space) for space in inputs), *hidden, outputs)
        keys = jax.random.split(key, len(sizes) - 1)
        gains = [math.sqrt(2)] * len(hidden) + [last_gain]
        self.layers = [Linear(*ends, k, g) for ends, k, g in zip(pairwise(sizes), keys, gains, strict=True)]
        self.norms = [LayerNorm(size) for size in hidden] if layer_norm else []
        self.inputs = inputs
        self.activation = activation

    def __call__(self, *values: Tree) -> Array:
        x = jnp.concatenate([encode(space, value) for space, value in zip(self.inputs, values, strict=True)], axis=-1)
        for i, layer in enumerate(self.layers[:-1]):
            x = layer(x)
            if self.norms:
                x = self.norms[i](x)
            x = ACTIVATIONS[self.activation](x)
        return self.layers[-1](x)


def build(config: NetConfig, inputs: tuple[Space, ...], outputs: int, key: Array, **hints: Any) -> Any:
    """A network as the config wants it: the user's function, or an `MLP`.

    `inputs` are the spaces it will be called with, batched; `outputs` is how many numbers it returns for each
    sample; the hints are the keyword arguments of `MLP`.
    """
    check_activation(config.activation)
    make = config.network or MLP
    return make(inputs, outputs, key, hidden=config.hidden, activation=config.activation, **hints)


def check_activation(name: str) -> None:
    """Refuse an activation that is not known."""
    if name not in ACTIVATIONS:
        raise ConfigError(
            f"activation='{name}' is not known{nearest(name, ACTIVATIONS)} (valid: {', '.join(ACTIVATIONS)})."
        )


class Ensemble(eqx.Module):
    """Several modules called alike; outputs stacked in front: twin critics."""

    members: list[Any]

    def __call__(self, *values: Tree) -> Array:
        return jnp.stack([member(*values) for member in self.members])
