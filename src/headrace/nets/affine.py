"""x @ weight + bias with a gradient written for speed on the CPU.

XLA's CPU back end hands `x @ w` to its fast kernel, but `x.T @ g`, the gradient of the weight with the transpose
folded into the product, to one that is a quarter slower. So the transpose is made a buffer of its own, in a call that
XLA may not inline; the gradient of a narrow layer is computed lying on its side, and of a single output as a row.
Without it PPO on gymnax:CartPole-v1 as one program has 0.925 of the update frames a second, and DQN on CartPole-v1
under `desktop` 0.946 (24 pairs each, bench/before.py, two cores, 2026-11-18). Elsewhere the plain product is used.
"""

from __future__ import annotations

import jax
from jax.experimental.xla_metadata import set_xla_metadata

from headrace.types import Array


@jax.custom_vjp
def affine(x: Array, weight: Array, bias: Array) -> Array:
    """x @ weight + bias, for any number of leading batch axes."""
    return x @ weight + bias


def _forward(x: Array, weight: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight + bias, (x, weight)


def _backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    x, weight = saved
    rows, errors = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
    return gradient @ weight.T, _of_weight(rows, errors), errors.sum(axis=0)


affine.defvjp(_forward, _backward)


def _of_weight(rows: Array, errors: Array) -> Array:
    """rows.T @ errors."""
    inputs, outputs = rows.shape[1], errors.shape[1]
    if jax.default_backend() != "cpu":
        return rows.T @ errors
    if outputs == 1:
        return (errors.T @ rows).reshape(inputs, 1)
    if outputs < inputs:
        return _transposed(errors.T @ rows)
    return jax.lax.optimization_barrier(_transposed(rows)) @ errors


def _transposed(x: Array) -> Array:
    """x.T as a buffer."""
    with set_xla_metadata(inlineable="false"):
        return _transpose(x)


@jax.jit
def _transpose(x: Array) -> Array:
    return x.T
