"""A custom network: a function that builds a module, here Equinox's own layers with a residual connection.

python examples/custom_network.py
headrace train sac Pendulum-v1 --set network=examples.custom_network:residual   (from the project's folder)
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

import headrace
from headrace.nets import encode, width
from headrace.types import Space


class Residual(eqx.Module):
    """in -> hidden, then blocks that add to what they are given, -> out; called with batches."""

    first: eqx.nn.Linear
    blocks: list[eqx.nn.Linear]
    last: eqx.nn.Linear
    inputs: tuple[Space, ...] = eqx.field(static=True)

    def __call__(self, *values):
        x = jnp.concatenate([encode(space, v) for space, v in zip(self.inputs, values, strict=True)], axis=-1)
        rows = jax.vmap(self.one)(x.reshape(-1, x.shape[-1]))
        return rows.reshape(*x.shape[:-1], -1)

    def one(self, x):
        x = jax.nn.silu(self.first(x))
        for block in self.blocks:
            x = x + jax.nn.silu(block(x))
        return self.last(x)


def residual(inputs, outputs, key, hidden=(128, 128), **hints):
    """What `network=` takes: the spaces it will be called with, the number of outputs, a key, and hints."""
    keys = jax.random.split(key, len(hidden) + 1)
    size = hidden[0]
    return Residual(
        first=eqx.nn.Linear(sum(width(space) for space in inputs), size, key=keys[0]),
        blocks=[eqx.nn.Linear(size, size, key=k) for k in keys[1:-1]],
        last=eqx.nn.Linear(size, outputs, key=keys[-1]),
        inputs=inputs,
    )


if __name__ == "__main__":
    run = headrace.train(headrace.SAC(network=residual), "Pendulum-v1", until=-250, seconds=90, seed=1)
    print(f"return {run.evaluate().mean_reward:.1f}, run in {run.path}")
