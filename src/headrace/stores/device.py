"""The replay table as a value on a device, for loops that are one XLA program."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from headrace.stores.replay import require_table
from headrace.types import Array, Batch, Transition, Tree, empty_like


class DeviceTable(NamedTuple):
    """A ring of steps, `[steps, num_envs, ...]`, and how many were ever written."""

    rows: Transition
    written: Array


def make_table(handed: Transition, capacity: int) -> DeviceTable:
    """An empty table for what is inserted at once: `[num_envs, ...]`, or `[steps, num_envs, ...]`."""
    lead, envs = len(handed.reward.shape), handed.reward.shape[-1]
    steps = max(1, capacity // envs)
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[lead:], leaf.dtype), handed)
    require_table(row, steps * envs)
    return DeviceTable(empty_like(row, steps, envs, make=jnp.zeros), jnp.zeros((), jnp.int32))


def insert(table: DeviceTable, handed: Transition) -> DeviceTable:
    """The table with one more step, or with the steps of a trajectory."""
    ring = table.rows.reward.shape[0]
    if handed.reward.ndim == 1:
        at, steps = table.written % ring, 1
    else:
        steps = handed.reward.shape[0]
        kept = min(steps, ring)  # of a longer trajectory the last steps stay
        handed = jax.tree.map(lambda leaf: leaf[-kept:], handed)
        at = (table.written + steps - kept + jnp.arange(kept)) % ring
    rows = jax.tree.map(lambda held, new: held.at[at].set(new), table.rows, handed)
    return DeviceTable(rows, table.written + steps)


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
