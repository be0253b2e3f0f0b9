"""Encoding observations and actions of any space as one vector."""

from __future__ import annotations

import math
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp

from headrace.nets.pictures import PictureEncoder, picture
from headrace.types import MASK, Array, Box, Dict, Discrete, MultiDiscrete, Space, Tree


def width(space: Space) -> int:
    """Length of the vector that encodes one sample."""
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
    """Batched samples as vectors: choices one-hot, bytes scaled to [0, 1], parts concatenated, masks left out."""
    match space:
        case Box(shape, dtype):
            flat = jnp.reshape(value, (*value.shape[: value.ndim - len(shape)], -1))
            return flat.astype(jnp.float32) / 255 if dtype == "uint8" else flat.astype(jnp.float32)
        case Discrete(n):
            return jax.nn.one_hot(value, n)
        case MultiDiscrete(counts):
            return jnp.concatenate([jax.nn.one_hot(value[..., i], n) for i, n in enumerate(counts)], axis=-1)
        case Dict(items):
            return jnp.concatenate([encode(part, value[name]) for name, part in items if name != MASK], axis=-1)


class Encoder(eqx.Module):
    """Batched values of some spaces as one vector: images by convolutions, the rest by `encode`."""

    pictures: dict[str, PictureEncoder]
    inputs: tuple[Space, ...] = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(self, inputs: tuple[Space, ...], kind: str, key: Array):
        """`kind` is one of `headrace.nets.pictures.ENCODERS`; with `flat` there are no convolutions."""
        self.inputs, self.pictures, self.width = inputs, {}, 0
        leaves = [leaf for i, given in enumerate(inputs) for leaf in _leaves(str(i), given)]
        for path, space, _ in leaves:
            if kind != "flat" and isinstance(space, Box) and picture(space) is not None:
                self.pictures[path] = PictureEncoder(space, kind, jax.random.fold_in(key, len(self.pictures)))
            self.width += self.pictures[path].width if path in self.pictures else width(space)

    def __call__(self, *values: Tree) -> Array:
        given = enumerate(zip(self.inputs, values, strict=True))
        leaves = [leaf for i, (space, value) in given for leaf in _leaves(str(i), space, value)]
        made = self.pictures
        vectors = [made[path](part) if path in made else encode(space, part) for path, space, part in leaves]
        return jnp.concatenate(vectors, axis=-1)


def _leaves(path: str, space: Space, value: Tree = None) -> Iterator[tuple[str, Space, Tree]]:
    """The leaf spaces, each with its path and, where values are given, its value; masks left out."""
    if not isinstance(space, Dict):
        yield path, space, value
        return
    for name, part in space.items:
        if name != MASK:
            yield from _leaves(f"{path}/{name}", part, None if value is None else value[name])


def action_mask(obs: Tree) -> Array | None:
    """The mask an observation carries, if any."""
    return obs.get(MASK) if isinstance(obs, dict) else None
