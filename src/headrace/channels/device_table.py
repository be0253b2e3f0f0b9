"""The replay table as a value on a device, for loops that are one XLA program."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from headrace.channels.table import require_table
from headrace.types import Array, Batch, Transition, Tree, empty_like


class DeviceTable(NamedTuple):
    """A ring of steps, `[steps, num_envs, ...]`, and how many were ever written."""

    rows: Transition
    written: Array


def make_table(step: Transition, capacity: int) -> DeviceTable:
    """An empty table for steps of this shape."""
    envs = step.reward.shape[0]
    steps = max(1, capacity // envs)
    require_table(jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), step), steps * envs)
    return DeviceTable(empty_like(step, steps, make=jnp.zeros), jnp.zeros((), jnp.int32))


def insert(table: DeviceTable, step: Transition) -> DeviceTable:
    """The table with one more step."""
    at = table.written % table.rows.reward.shape[0]
    rows = jax.tree.map(lambda held, new: held.at[at].set(new), table.rows, step)
    return DeviceTable(rows, table.written + 1)


def sample(table: DeviceTable, key: Array, size: int, gamma: float, steps: int) -> Batch:
    """`size` rows drawn with replacement, each folded over up to `steps` steps."""
    capacity, envs = table.rows.reward.shape
    held = jnp.minimum(table.written, capacity)
    when, who = jax.random.split(key)
    start = jax.random.randint(when, (size,), 0, jnp.maximum(held - (steps - 1), 1))
    env = jax.random.randint(who, (size,), 0, envs)
    first = last = (table.written - held + start) % capacity
    newest = (table.written - 1) % capacity
    rows = table.rows

    def ended(step: Array) -> Array:
        return rows.terminated[step, env] | rows.truncated[step, env]

    reward = rows.reward[first, env]
    power = jnp.full((size,), gamma, jnp.float32)
    going = ~ended(first)
    for _ in range(steps - 1):
        going &= last != newest
        last = jnp.where(going, (last + 1) % capacity, last)
        reward += power * going * rows.reward[last, env]
        power = jnp.where(going, power * gamma, power)
        going &= ~ended(last)

    def take(tree: Tree, step: Array) -> Tree:
        return jax.tree.map(lambda leaf: leaf[step, env], tree)

    return Batch(
        obs=take(rows.obs, first),
        action=take(rows.action, first),
        reward=reward,
        discount=power * ~rows.terminated[last, env],
        next_obs=take(rows.next_obs, last),
        extra=take(rows.extra, first),
    )
