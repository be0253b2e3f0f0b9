"""Plain values used everywhere: spaces, environment specs, transitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
"""A JAX or NumPy array."""

Tree = Any
"""A pytree of arrays."""

MASK = "action_mask"
"""The observation key that says which discrete actions are allowed."""


@dataclass(frozen=True)
class Box:
    """An array of numbers. A `bounded` action lives in [-1, 1]; the environment rescales it.

    Of an action that is not, [-1, 1] stands for the bounds where there are two, and for a unit where one or both are
    missing; see `affine`.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    bounded: bool = False
    low: tuple[float, ...] = field(default=(), compare=False, repr=False)
    high: tuple[float, ...] = field(default=(), compare=False, repr=False)
    """The environment's own bounds of an action, flat, infinite where there is none; empty where it states none."""
    own: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    """The environment's own shape of an action, where that is not flat."""


@dataclass(frozen=True)
class Discrete:
    """One of `n` choices."""

    n: int
    start: int = field(default=0, compare=False, repr=False)
    """The environment's own number for the first choice."""


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once, `counts[i]` for the i-th."""

    counts: tuple[int, ...]
    start: tuple[int, ...] = field(default=(), compare=False, repr=False)
    """The environment's own number for the first choice of each part, where that is not 0."""
    own: tuple[int, ...] | None = field(default=None, compare=False, repr=False)
    """The environment's own shape of it, where that is not flat."""


@dataclass(frozen=True)
class Dict:
    """Named spaces, in the order of their names."""

    items: tuple[tuple[str, Space], ...]


Space = Box | Discrete | MultiDiscrete | Dict


@dataclass(frozen=True)
class EnvSpec:
    """What an algorithm may know about an environment."""

    id: str
    observation: Space
    action: Space
    num_envs: int
    pure: bool = False
    """True for an environment written in JAX, whose step can be compiled into the loop."""
    agents: int = 1
    """Number of agents, each with its row of the observation and its part of the action."""

    def with_envs(self, num_envs: int) -> EnvSpec:
        """The same environment, `num_envs` times."""
        return replace(self, num_envs=num_envs)

    def to_json(self) -> dict[str, Any]:
        """The description as plain JSON values."""
        return vars(self) | {"observation": _space_json(self.observation), "action": _space_json(self.action)}

    @staticmethod
    def from_json(values: dict[str, Any]) -> EnvSpec:
        """The description that `to_json` wrote."""
        spaces = {name: _space_from_json(values[name]) for name in ("observation", "action")}
        return EnvSpec(**values | spaces)


def _space_json(space: Space) -> list[Any]:
    values = vars(space)
    if isinstance(space, Dict):
        values = {"items": [[name, _space_json(part)] for name, part in space.items]}
    return [type(space).__name__, values]


def _space_from_json(written: list[Any]) -> Space:
    kind, values = written
    if kind == "Dict":
        return Dict(tuple((name, _space_from_json(part)) for name, part in values["items"]))
    kinds: dict[str, Any] = {"Box": Box, "Discrete": Discrete, "MultiDiscrete": MultiDiscrete}
    space: Space = kinds[kind](**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})
    return space


class Transition(NamedTuple):
    """One step of every environment, `[num_envs, ...]`, or a trajectory, `[steps, num_envs, ...]`.

    `next_obs` is what the action led to, before any reset, also where the episode was truncated.
    """

    obs: Tree
    action: Tree
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Tree
    extra: dict[str, Array]
    """What the acting stage returned with the action."""


class Outcome(NamedTuple):
    """The result of a step: the part of a transition that the environments make."""

    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Tree


class Batch(NamedTuple):
    """Transitions drawn from a replay store, folded over n steps: target = reward + discount * value(next_obs)."""

    obs: Tree
    action: Tree
    reward: Array
    """Discounted sum of the rewards of up to n steps."""
    discount: Array
    """gamma to the number of steps summed, and 0 where the episode terminated."""
    next_obs: Tree
    extra: dict[str, Array]


def struct(space: Space, *batch: int) -> Tree:
    """The shapes and dtypes of `batch` samples of a space."""
    match space:
        case Box(shape, dtype):
            return jax.ShapeDtypeStruct((*batch, *shape), jnp.dtype(dtype))
        case Discrete():
            return jax.ShapeDtypeStruct(batch, jnp.dtype("int32"))
        case MultiDiscrete(counts):
            return jax.ShapeDtypeStruct((*batch, len(counts)), jnp.dtype("int32"))
        case Dict(items):
            return {name: struct(part, *batch) for name, part in items}


def native_action(space: Space, action: Array, xp: Any = np) -> Array:
    """A batch of actions in the environment's own space; `xp` is `jax.numpy` inside a program."""
    match space:
        case Box(shape, _, _, low, high) if low:
            lows, highs = np.reshape(low, shape), np.reshape(high, shape)
            middle, half = affine(lows, highs)
            action = xp.clip((middle + action * half).astype(np.float32), *inside(lows, highs))
        case Discrete(_, start):
            return action + start
        case MultiDiscrete(_, start) if start:
            action = action + np.asarray(start, np.int32)
    own = getattr(space, "own", None)
    return action if own is None else action.reshape(-1, *own)


def native_obs(space: Space) -> Tree:
    """The shapes and dtypes of one observation in the environment's own space."""
    match space:
        case MultiDiscrete(counts, _, own):
            return jax.ShapeDtypeStruct((len(counts),) if own is None else own, jnp.dtype("int32"))
        case Dict(items):
            return {name: native_obs(part) for name, part in items}
        case _:
            return struct(space)


def from_native_obs(space: Space, obs: Tree) -> Tree:
    """A batch of observations in the environment's own space, converted for the actor."""
    match space:
        case Discrete(_, start) if start:
            return obs - start
        case MultiDiscrete(counts, start, _):
            return obs.reshape(-1, len(counts)) - np.asarray(start or 0, np.int32)
        case Dict(items):
            return {name: from_native_obs(part, obs[name]) for name, part in items}
        case _:
            return obs


def affine(low: Array, high: Array) -> tuple[Array, Array]:
    """Centre and scale of the map from an action in [-1, 1] to the environment's, for each dimension.

    -1 and 1 are the bounds where there are two. Without bounds an action means itself; where there is one, -1 (or 1) is
    that bound and the unit is 1.
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    below, above = np.isfinite(low), np.isfinite(high)
    floor, ceiling = np.where(below, low, 0.0), np.where(above, high, 0.0)
    one_sided = np.where(below, floor + 1, np.where(above, ceiling - 1, 0.0))
    both = below & above
    return np.where(both, floor / 2 + ceiling / 2, one_sided), np.where(both, ceiling / 2 - floor / 2, 1.0)


def inside(low: Array, high: Array) -> tuple[Array, Array]:
    """Bounds as float32, rounded inwards."""
    with np.errstate(over="ignore"):
        least, most = np.asarray(low).astype(np.float32), np.asarray(high).astype(np.float32)
    least = np.where(least < low, np.nextafter(least, np.float32(np.inf)), least)
    return least, np.where(most > high, np.nextafter(most, np.float32(-np.inf)), most)


def transition_struct(spec: EnvSpec, action: Tree, extra: dict[str, Any]) -> Transition:
    """The shapes of what one step of `spec.num_envs` environments yields."""
    obs = struct(spec.observation, spec.num_envs)
    flag = jax.ShapeDtypeStruct((spec.num_envs,), jnp.dtype("bool"))
    reward = jax.ShapeDtypeStruct((spec.num_envs,), jnp.dtype("float32"))
    return Transition(obs, action, reward, flag, flag, obs, extra)


def tree_bytes(tree: Tree) -> int:
    """How many bytes the arrays (or shapes) of a tree hold."""
    return sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))


def empty_like(struct: Tree, *lead: int, make: Callable[..., Any] = np.zeros) -> Tree:
    """Arrays of a tree of shapes, each with `lead` axes in front."""
    return jax.tree.map(lambda s: make((*lead, *s.shape), s.dtype), struct)
