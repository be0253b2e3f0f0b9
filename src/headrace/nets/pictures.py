"""Convolutional encoders: an image in, a vector out.

`nature` is that of Mnih et al., 2015 (Nature 518); `small` that of their first paper (2013, arXiv:1312.5602), or for
small images that of MinAtar (Young & Tian, 2019, arXiv:1903.03176); `impala` the residual one of Espeholt et
al., 2018 (arXiv:1802.01561).
"""

from __future__ import annotations

import math
from functools import reduce
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from headrace.errors import ConfigError
from headrace.nets.linear import Linear
from headrace.types import Array, Box, Space

ENCODERS = ("auto", "nature", "impala", "small", "flat")

LAYERS = {
    "nature": (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
    "small": (((16, 8, 4), (32, 4, 2)), 256),
    "tiny": (((16, 3, 1),), 128),
}
"""Channels, size and stride of each convolution, and the width of the dense layer after them."""

SMALLEST = 7
"""Side length in pixels below which a three-dimensional array is not treated as an image, but as a board or table."""


def picture(space: Space) -> tuple[int, int, int] | None:
    """Height, width and channels of a space of images, and None for other spaces.

    An image has three axes, channels first or last, whichever is shorter; a stack of such frames has four.
    """
    if not isinstance(space, Box) or len(space.shape) not in (3, 4) or space.dtype == "int32":
        return None
    frames, shape = math.prod(space.shape[:-3]), space.shape[-3:]
    height, width, channels = (*shape[1:], shape[0]) if _channels_first(shape) else shape
    return (height, width, channels * frames) if min(height, width) >= SMALLEST else None


def _channels_first(shape: tuple[int, ...]) -> bool:
    return shape[0] < min(shape[1:])


def pixels(space: Box, value: Array) -> Array:
    """Batched images as `float32[..., height, width, channels]`, bytes scaled to [0, 1]."""
    if _channels_first(space.shape[-3:]):
        value = jnp.moveaxis(value, -3, -1)
    if len(space.shape) == 4:
        value = jnp.moveaxis(value, -4, -2)
        value = value.reshape(*value.shape[:-2], -1)
    numbers = value.astype(jnp.float32)
    return numbers / 255 if space.dtype == "uint8" else numbers


def padded(x: Array, edge: int, value: float) -> Array:
    """`[batch, height, width, channels]` padded by `edge` rows and columns of a constant."""
    return jnp.pad(x, ((0, 0), (edge, edge), (edge, edge), (0, 0)), constant_values=value) if edge else x


def windows(x: Array, size: int, stride: int) -> list[Array]:
    """For each offset in a sliding window over `[batch, height, width, channels]`, the values there, row by row."""
    rows, columns = ((side - size) // stride * stride + 1 for side in x.shape[1:3])
    return [x[:, i : i + rows : stride, j : j + columns : stride] for i in range(size) for j in range(size)]


def convolve(x: Array, weight: Array, stride: int) -> Array:
    """The convolution of `[batch, height, width, channels]` with `[size, size, channels, outputs]`, without padding.

    On a CPU it is computed as one matrix product. XLA's fast CPU convolution is not used inside a loop, where all
    learning happens: in a scan, the gradient of `nature` for 32 images took 579 ms of one core by XLA's convolution
    and takes 63 ms like this (65 and 68 outside of a scan; an EPYC with AVX-512, JAX 0.10.2, 2026-11-17).
    """
    if jax.default_backend() != "cpu":
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, weight, (stride, stride), "VALID", dimension_numbers=layout)
    size, _, channels, outputs = weight.shape
    if stride > 1 and size % stride == 0:
        # Each block of stride x stride pixels becomes one with more channels: fewer and longer slices to concatenate.
        height, width = ((side - size) // stride + size // stride for side in x.shape[1:3])
        x = x[:, : height * stride, : width * stride].reshape(-1, height, stride, width, stride, channels)
        x = x.transpose(0, 1, 3, 2, 4, 5).reshape(-1, height, width, stride * stride * channels)
        size //= stride
        weight = weight.reshape(size, stride, size, stride, channels, outputs).transpose(0, 2, 1, 3, 4, 5)
        stride = 1
    return jnp.concatenate(windows(x, size, stride), axis=-1) @ weight.reshape(-1, outputs)


class Conv(eqx.Module):
    """A convolution over `[batch, height, width, channels]`, initialised orthogonally."""

    weight: Array
    bias: Array
    stride: int = eqx.field(static=True)
    edge: int = eqx.field(static=True)
    """Zero padding, in pixels."""

    def __init__(self, inputs: int, outputs: int, size: int, key: Array, *, stride: int = 1, edge: int = 0):
        flat = jax.nn.initializers.orthogonal(math.sqrt(2))(key, (size * size * inputs, outputs))
        self.weight = flat.reshape(size, size, inputs, outputs)
        self.bias = jnp.zeros(outputs)
        self.stride, self.edge = stride, edge

    def __call__(self, x: Array) -> Array:
        return convolve(padded(x, self.edge, 0.0), self.weight, self.stride) + self.bias


class Residual(eqx.Module):
    """One of IMPALA's sections: a convolution, pooling to half the size, and two residual blocks."""

    first: Conv
    blocks: list[tuple[Conv, Conv]]

    def __init__(self, inputs: int, outputs: int, key: Array):
        keys = jax.random.split(key, 5)
        self.first = Conv(inputs, outputs, 3, keys[0], edge=1)
        each = [Conv(outputs, outputs, 3, k, edge=1) for k in keys[1:]]
        self.blocks = [(each[0], each[1]), (each[2], each[3])]

    def __call__(self, x: Array) -> Array:
        x = reduce(jnp.maximum, windows(padded(self.first(x), 1, -jnp.inf), 3, 2))
        for one, two in self.blocks:
            x = x + two(jax.nn.relu(one(jax.nn.relu(x))))
        return x


class PictureEncoder(eqx.Module):
    """Convolutions and a dense layer over images of a space: a vector of `width`, for any leading batch axes."""

    sections: list[Any]
    dense: Linear
    space: Box = eqx.field(static=True)
    width: int = eqx.field(static=True)

    def __init__(self, space: Box, kind: str, key: Array):
        size = picture(space)
        assert size is not None
        *keys, last = jax.random.split(key, 4)
        self.space = space
        sections: list[Any]
        if kind == "impala":
            self.width = 256
            channels = pairwise((size[2], 16, 32, 32))
            sections = [Residual(*ends, k) for ends, k in zip(channels, keys, strict=True)]
        else:
            layers, self.width = LAYERS[fitting(kind, size)]
            channels = pairwise((size[2], *(layer[0] for layer in layers)))
            each = zip(channels, layers, keys, strict=False)
            sections = [Conv(*ends, kernel, k, stride=stride) for ends, (_, kernel, stride), k in each]
        self.sections = sections
        flat = jax.eval_shape(lambda x: features(sections, x), jax.ShapeDtypeStruct((1, *size), jnp.float32))
        self.dense = Linear(flat.shape[-1], self.width, last, math.sqrt(2))

    def __call__(self, value: Array) -> Array:
        x = pixels(self.space, value)
        rows = features(self.sections, x.reshape(-1, *x.shape[-3:]))
        return jax.nn.relu(self.dense(rows)).reshape(*x.shape[:-3], self.width)


def features(sections: list[Any], x: Array) -> Array:
    """The flattened output of the convolutions for `[batch, height, width, channels]`."""
    for section in sections:
        x = section(x) if isinstance(section, Residual) else jax.nn.relu(section(x))
    return jax.nn.relu(x).reshape(x.shape[0], -1)


def fitting(kind: str, size: tuple[int, int, int]) -> str:
    """Which of `LAYERS` an encoder uses for images of a size; refuses images too small for it."""
    side = min(size[:2])
    if kind == "auto":
        return "nature" if side >= 36 else "tiny"
    if kind == "small":
        return "small" if side >= 20 else "tiny"
    if side < 36:
        raise ConfigError(f"encoder='nature' needs pictures of at least 36 x 36, got {size[0]} x {size[1]}; try small.")
    return kind
