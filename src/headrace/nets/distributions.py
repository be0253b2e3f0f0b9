"""Distributions over actions: sample, log_prob, entropy, mode."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from headrace.errors import EnvError
from headrace.nets.encode import width
from headrace.types import Array, Box, Dict, Discrete, MultiDiscrete, Space

FORBIDDEN = -1e9
"""The logit of a masked action: finite, so that gradients stay finite."""


class Normal(eqx.Module):
    """Independent normals over the last axis."""

    mean: Array
    log_std: Array

    def sample(self, key: Array) -> Array:
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def log_prob(self, action: Array) -> Array:
        scaled = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * scaled**2 - self.log_std - 0.5 * math.log(2 * math.pi), axis=-1)

    def entropy(self) -> Array:
        each = self.log_std + 0.5 * math.log(2 * math.pi * math.e)
        return jnp.sum(jnp.broadcast_to(each, self.mean.shape), axis=-1)

    def mode(self) -> Array:
        return self.mean


class TanhNormal(eqx.Module):
    """A normal squashed into (-1, 1). `sample` also returns the log-probability, which is exact only there."""

    mean: Array
    log_std: Array

    def sample(self, key: Array) -> tuple[Array, Array]:
        # On one long axis: XLA's CPU back end does not vectorise over the few actions of each row.
        shape, log_std = self.mean.shape, self.log_std.reshape(-1)
        noise = jax.random.normal(key, log_std.shape)
        raw = self.mean.reshape(-1) + jnp.exp(log_std) * noise
        # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2x)), which does not lose its digits for large x.
        squash = 2 * (math.log(2) - raw - jax.nn.softplus(-2 * raw))
        log_prob = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi) - squash
        return jnp.tanh(raw).reshape(shape), jnp.sum(log_prob.reshape(shape), axis=-1)

    def mode(self) -> Array:
        return jnp.tanh(self.mean)


class Categorical(eqx.Module):
    """One choice, from logits over the last axis."""

    logits: Array

    def sample(self, key: Array) -> Array:
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def log_prob(self, action: Array) -> Array:
        log_p = jax.nn.log_softmax(self.logits)
        return jnp.take_along_axis(log_p, action[..., None], axis=-1)[..., 0]

    def entropy(self) -> Array:
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)

    def mode(self) -> Array:
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)


class MultiCategorical(eqx.Module):
    """Several independent choices, their logits side by side."""

    logits: Array
    counts: tuple[int, ...] = eqx.field(static=True)

    def parts(self) -> list[Categorical]:
        return [Categorical(part) for part in jnp.split(self.logits, np.cumsum(self.counts)[:-1], axis=-1)]

    def sample(self, key: Array) -> Array:
        keys = jax.random.split(key, len(self.counts))
        return jnp.stack([part.sample(k) for part, k in zip(self.parts(), keys, strict=True)], axis=-1)

    def log_prob(self, action: Array) -> Array:
        return sum((part.log_prob(action[..., i]) for i, part in enumerate(self.parts())), start=jnp.zeros(()))

    def entropy(self) -> Array:
        return sum((part.entropy() for part in self.parts()), start=jnp.zeros(()))

    def mode(self) -> Array:
        return jnp.stack([part.mode() for part in self.parts()], axis=-1)


def masked(logits: Array, mask: Array | None) -> Array:
    """Logits, or values, with those of masked actions set to a very low number."""
    return logits if mask is None else jnp.where(mask.astype(bool), logits, FORBIDDEN)


def outputs_for(space: Space) -> int:
    """Number of network outputs that `distribution` needs for a space."""
    if isinstance(space, Dict):
        raise TypeError(f"no distribution over {space}")
    return width(space)


def distribution(space: Space, outputs: Array, mask: Array | None, log_std: Array | None = None) -> Any:
    """The distribution over a space that a network's outputs parameterise."""
    match space:
        case Discrete():
            return Categorical(masked(outputs, mask))
        case MultiDiscrete(counts):
            return MultiCategorical(masked(outputs, mask), counts)
        case _:
            return Normal(outputs, jnp.zeros(()) if log_std is None else log_std)


def box_size(space: Space, who: str) -> int:
    """Number of action dimensions for an algorithm that squashes actions into [-1, 1]; refuses other spaces."""
    match space:
        case Box(shape, _, True):
            return math.prod(shape)
        case Box(shape, _, _, low, high):
            wide = [i for i, ends in enumerate(zip(low, high, strict=True)) if not all(map(math.isfinite, ends))]
            which = f"action {wide[0]} of {math.prod(shape)} has" if wide else "they have"
            raise EnvError(
                f"{who} squashes actions into bounds, and in this environment {which} not both; "
                "set --action-scale to how far actions may reach, or try ppo."
            )
        case _:
            raise EnvError(f"{who} needs continuous (Box) actions, this environment has {space}; try dqn or ppo.")
