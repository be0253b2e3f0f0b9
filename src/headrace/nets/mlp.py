"""Multi-layer perceptrons over batched inputs, and the default `network` of every algorithm."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from headrace.errors import ConfigError, nearest
from headrace.nets.encode import Encoder
from headrace.nets.linear import LayerNorm, Linear
from headrace.nets.pictures import ENCODERS
from headrace.settings.config import NetConfig
from headrace.types import Array, Space, Tree

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    name: getattr(jax.nn, name) for name in ("relu", "tanh", "elu", "silu", "gelu")
}


class MLP(eqx.Module):
    """Layers of `hidden` sizes over the encoded inputs, batched: `mlp(obs)` or `mlp(obs, action)`.

    Images go through the convolutions named by `encoder` first.
    """

    layers: list[Linear]
    norms: list[LayerNorm]
    encoder: Encoder
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
        encoder: str = "auto",
    ):
        self.encoder = Encoder(inputs, encoder, key)
        sizes = (self.encoder.width, *hidden, outputs)
        keys = jax.random.split(key, len(sizes) - 1)
        gains = [math.sqrt(2)] * len(hidden) + [last_gain]
        self.layers = [Linear(*ends, k, g) for ends, k, g in zip(pairwise(sizes), keys, gains, strict=True)]
        self.norms = [LayerNorm(size) for size in hidden] if layer_norm else []
        self.activation = activation

    def __call__(self, *values: Tree) -> Array:
        x = self.encoder(*values)
        for i, layer in enumerate(self.layers[:-1]):
            x = layer(x)
            if self.norms:
                x = self.norms[i](x)
            x = ACTIVATIONS[self.activation](x)
        return self.layers[-1](x)


def build(config: NetConfig, inputs: tuple[Space, ...], outputs: int, key: Array, **hints: Any) -> Any:
    """The network the config asks for: made by the user's function, or an `MLP`.

    `inputs` are the spaces of its batched arguments, `outputs` is the size of its output, and `hints` are keyword
    arguments of `MLP`.
    """
    _known("activation", config.activation, ACTIVATIONS)
    _known("encoder", config.encoder, ENCODERS)
    hints |= {"hidden": config.hidden, "activation": config.activation, "encoder": config.encoder}
    return (config.network or MLP)(inputs, outputs, key, **hints)


def _known(setting: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ConfigError(f"{setting}='{name}' is not known{nearest(name, known)} (valid: {', '.join(known)}).")


class Ensemble(eqx.Module):
    """Modules called with the same inputs, outputs stacked along a first axis: twin critics."""

    members: list[Any]

    def __call__(self, *values: Tree) -> Array:
        return jnp.stack([member(*values) for member in self.members])
