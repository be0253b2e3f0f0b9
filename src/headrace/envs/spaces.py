"""Translates Gymnasium's spaces and observations to headrace's, and actions back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from headrace.errors import EnvError
from headrace.types import MASK, Array, Box, Dict, Discrete, MultiDiscrete, Space, Tree, affine, empty_like, struct

PLAIN = "observation"
"""The name of an unnamed observation when a mask comes with it."""

UNBOUNDED = 1e30
"""Some environments write infinite bounds as numbers beyond this."""


class MisfitError(Exception):
    """A value outside its space; the message completes a sentence that starts with the environment."""


@dataclass(frozen=True)
class Leaf:
    """One array of an observation: its path in the environment's observation, and its space here."""

    name: str
    """Empty when it is the whole observation."""
    path: tuple[Any, ...]
    space: Space
    given: tuple[int, ...]
    """The shape the environment gives it."""
    start: Any = None
    """What the environment calls choice 0, where that is not 0."""
    counts: tuple[int, ...] = ()
    """Of an action mask: how many choices each part of the action has."""

    @property
    def as_it_is(self) -> bool:
        """Whether its values are arrays that need only a cast."""
        return isinstance(self.space, Box) and self.given != () and not self.counts

    def find(self, value: Any) -> Any:
        """Its part of an observation."""
        try:
            for key in self.path:
                value = value[key]
        except (KeyError, IndexError, TypeError):
            raise MisfitError(f"returned nothing for '{self.name}'") from None
        return value

    def write(self, array: Array, row: int, value: Any) -> None:
        """Write one environment's value into its row."""
        if getattr(value, "shape", None) != self.given:
            value = self._fit(value)
        if self.start is not None:
            value = value - self.start
        if self.counts:
            value = permitted(value, self.counts)
        # Only a MultiDiscrete or a mask changes shape, and only by being flattened.
        array[row] = value if value.shape == array.shape[1:] else value.reshape(array.shape[1:])

    def batch(self, value: Any, num_envs: int) -> Array:
        """The values of all environments at once."""
        if self.as_it_is and value.shape == (num_envs, *self.given) and value.dtype == self.space.dtype:  # type: ignore[union-attr]
            return value
        spec = struct(self.space, num_envs)
        array = np.asarray(value).reshape(spec.shape)
        if self.start is not None:
            array = array - np.reshape(self.start, -1 if np.ndim(self.start) else ())
        if self.counts:
            array = permitted(array, self.counts)
        return array.astype(spec.dtype, copy=False)

    def _fit(self, value: Any) -> Any:
        if self.counts and isinstance(value, tuple | list):  # Gymnasium masks a MultiDiscrete by a tuple of arrays
            value = np.concatenate([np.ravel(part) for part in value])
        array = np.asarray(value)
        if array.shape != self.given:
            what = f"observation '{self.name}'" if self.name else "observation"
            raise MisfitError(f"returned an {what} of shape {array.shape} where its space says {self.given}")
        return array


class Observations:
    """How one environment's observations become arrays."""

    def __init__(self, leaves: Sequence[Leaf], info_mask: Leaf | None = None):
        self.leaves = tuple(leaves)
        self.info_mask = info_mask
        """Set where the mask comes with the info, not with the observation."""
        self.plain = not self.leaves[0].name
        named = [*self.leaves, *([info_mask] if info_mask else [])]
        self.space: Space = (
            self.leaves[0].space
            if self.plain
            else Dict(tuple((leaf.name, leaf.space) for leaf in sorted(named, key=lambda leaf: leaf.name)))
        )

    def with_info_mask(self, action: Space) -> Observations:
        """The same, with the action mask from the info added to the observation."""
        counts = choices(action)
        size = sum(counts)
        leaves = [replace(leaf, name=leaf.name or PLAIN) for leaf in self.leaves]
        return Observations(leaves, Leaf(MASK, (MASK,), Box((size,), "bool"), (size,), counts=counts))

    def batch(self, obs: Any, info: Any, num_envs: int) -> Tree:
        """The observations of environments that already come as arrays."""
        if self.plain:
            return self.leaves[0].batch(obs, num_envs)
        tree = {leaf.name: leaf.batch(leaf.find(obs), num_envs) for leaf in self.leaves}
        if self.info_mask is not None:
            tree[MASK] = self.info_mask.batch(info[MASK], num_envs)
        return tree


class ObsBuffer:
    """Preallocated arrays for the observations of environments that are stepped one by one."""

    def __init__(self, layout: Observations, num_envs: int):
        self.tree = empty_like(struct(layout.space, num_envs))
        arrays = {"": self.tree} if layout.plain else self.tree
        self._arrays = list(arrays.values())
        self._parts = [(leaf, arrays[leaf.name], leaf.as_it_is) for leaf in layout.leaves]
        self._mask = None if layout.info_mask is None else (layout.info_mask, arrays[MASK])
        # Arrays that need no translation are joined end to end by one call, several times faster than row by row.
        self._joined = [(leaf, array.reshape(-1, *leaf.given[1:])) for leaf, array, same in self._parts if same]
        self._others = [(leaf, array) for leaf, array, same in self._parts if not same]

    def write(self, row: int, obs: Any, info: Any) -> None:
        """Put the observation of one environment into its row."""
        for leaf, array, same in self._parts:
            value = leaf.find(obs) if leaf.path else obs
            if same and getattr(value, "shape", None) == leaf.given:
                array[row] = value
            else:
                leaf.write(array, row, value)
        self._write_mask(row, info)

    def gather(self, obs: Sequence[Any], infos: Sequence[Any]) -> None:
        """Put the observations of all environments into theirs."""
        for leaf, array in self._joined:
            parts = [leaf.find(seen) for seen in obs] if leaf.path else obs
            if set(map(len, parts)) != {leaf.given[0]}:  # one too long and one too short may add up
                raise MisfitError(f"returned observations whose lengths are not all {leaf.given[0]}")
            np.concatenate(parts, out=array, casting="unsafe")
        for leaf, array in self._others:
            for row, seen in enumerate(obs):
                leaf.write(array, row, leaf.find(seen))
        for row, info in enumerate(infos):
            self._write_mask(row, info)

    def copy(self, other: ObsBuffer) -> None:
        """Copy the arrays of another."""
        for mine, theirs in zip(self._arrays, other._arrays, strict=True):
            np.copyto(mine, theirs)

    def _write_mask(self, row: int, info: Any) -> None:
        if self._mask is not None:
            leaf, array = self._mask
            leaf.write(array, row, leaf.find(info))


class Actions:
    """How an algorithm's batched actions become the environment's."""

    def __init__(self, space: Any, env: str, num_envs: int = 1, scale: float | None = None):
        """`scale` bounds unbounded actions to [-scale, scale], or to 2 * scale from the only bound there is."""
        if scale is not None and (not isinstance(space, gym.spaces.Box) or np.isfinite(_bounds(space, None)).all()):
            raise EnvError(f"'{env}' has no actions without bounds, {space}; leave --action-scale away.")
        match space:
            case gym.spaces.Discrete():
                self.space: Space = Discrete(int(space.n), int(space.start))
                self._shape: tuple[int, ...] = ()
                self._start: Any = int(space.start)
                self._dtype: Any = np.dtype(np.int64)
            case gym.spaces.MultiDiscrete():
                self.space = _multi_discrete(space)
                self._shape = space.nvec.shape
                self._start = np.asarray(space.start) if np.any(space.start) else 0
                self._dtype = space.dtype
            case gym.spaces.Box() if np.issubdtype(space.dtype, np.floating):
                low, high = _bounds(space, scale)
                bounded = bool(np.isfinite(low).all() and np.isfinite(high).all())
                self._bounds = bool(np.isfinite(low).any() or np.isfinite(high).any())
                if not math.prod(space.shape):
                    raise EnvError(f"'{env}' has an empty action space, {space}; there is nothing to do.")
                own = None if len(space.shape) == 1 else space.shape
                lows, highs = tuple(low.ravel().tolist()), tuple(high.ravel().tolist())
                self.space = Box((math.prod(space.shape),), "float32", bounded, lows, highs, own)
                self._shape = space.shape
                self._dtype = space.dtype
                middle, half = affine(low, high)
                # Arrays of one shape are combined in half the time that broadcasting takes.
                spread = (num_envs, *space.shape)
                self._low, self._high, self._half, self._middle = (
                    np.ascontiguousarray(np.broadcast_to(bound, spread), space.dtype)
                    for bound in (low, high, half, middle)
                )
                self._scales = bool(np.any(self._half != 1) or np.any(self._middle != 0))
            case _:
                raise EnvError(
                    f"'{env}' has actions of {space}; headrace acts in Discrete, MultiDiscrete and real-valued Box."
                )

    def decode(self, action: Array) -> Array:
        """NumPy actions, a row for each environment."""
        given = np.asarray(action, self._dtype)
        match self.space:
            case Box(own=own):
                given = given if own is None else given.reshape(-1, *own)
                if not self._bounds:
                    return given
                # Bounded after the affine map, so that rounding cannot leave the bounds either.
                scaled = np.maximum(given * self._half + self._middle if self._scales else given, self._low)
                return np.minimum(scaled, self._high, out=scaled)
            case MultiDiscrete():
                return given.reshape(-1, *self._shape) + self._start
            case _:
                return given + self._start if self._start else given


def _bounds(space: Any, scale: float | None) -> tuple[Array, Array]:
    """The bounds of a Box, infinite where it has none; all finite where `scale` is given."""
    low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
    low, high = np.where(low <= -UNBOUNDED, -np.inf, low), np.where(high >= UNBOUNDED, np.inf, high)
    if scale is None:
        return low, high
    below, above = np.isfinite(low), np.isfinite(high)
    least, most = np.where(above, high - 2 * scale, -scale), np.where(below, low + 2 * scale, scale)
    return np.where(below, low, least), np.where(above, high, most)


def observations(space: Any, action: Space, env: str) -> Observations:
    """The translation of observations of a Gymnasium space, given the action space."""
    leaves = list(_leaves(space, (), env))
    if not leaves or not all(math.prod(leaf.given) for leaf in leaves):
        raise EnvError(f"'{env}' has an empty observation space, {space}; there is nothing to act on.")
    names = [leaf.name for leaf in leaves]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise EnvError(f"'{env}' has two observations that would be called '{twice}'; rename one of them.")
    counts = choices(action)
    return Observations([_as_mask(leaf, counts, env) if leaf.name == MASK and counts else leaf for leaf in leaves])


def choices(action: Space) -> tuple[int, ...]:
    """How many choices each part of an action has; none where it is continuous."""
    if isinstance(action, Discrete):
        return (action.n,)
    return action.counts if isinstance(action, MultiDiscrete) else ()


def permitted(mask: Any, counts: tuple[int, ...]) -> Array:
    """A mask as booleans, `[..., sum(counts)]`, with everything allowed where a mask allows nothing.

    Final observations often come with an all-zero mask, under which no value is defined.
    """
    allowed = np.array(mask, bool)
    first = 0
    for count in counts:
        part = allowed[..., first : first + count]
        part[~part.any(axis=-1)] = True
        first += count
    return allowed


def not_finite(tree: Tree, num_envs: int) -> int | None:
    """The first environment with a number that is infinite or NaN."""
    for array in tree.values() if isinstance(tree, dict) else (tree,):
        # As `StepBuffers.surely_finite`.
        if array.dtype == np.float32 and not math.isfinite(np.vdot(array, array)):
            bad = ~np.isfinite(array.reshape(num_envs, -1)).all(axis=1)
            if bad.any():
                return int(np.flatnonzero(bad)[0])
    return None


def observed(shape: Tree) -> Space:
    """The space of a JAX environment's observations, from their shapes, after `tidy`."""
    if isinstance(shape, dict):
        return Dict(tuple((name, observed(part)) for name, part in sorted(_flat(shape))))
    return Box(tuple(shape.shape), _dtype(np.dtype(shape.dtype)))


def tidy(obs: Tree) -> Tree:
    """A JAX environment's observation with flat names and headrace's dtypes."""
    if isinstance(obs, dict):
        return {name: tidy(part) for name, part in sorted(_flat(obs))}
    array = jnp.asarray(obs)
    return jax.lax.convert_element_type(array, _dtype(np.dtype(array.dtype)))


def _flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, part in tree.items():
        if isinstance(part, dict):
            yield from _flat(part, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", part


def _leaves(space: Any, path: tuple[Any, ...], env: str) -> Iterator[Leaf]:
    name = "/".join(str(key) for key in path)
    match space:
        case gym.spaces.Dict():
            for key in sorted(space.spaces):
                yield from _leaves(space.spaces[key], (*path, key), env)
        case gym.spaces.Tuple():
            for index, part in enumerate(space.spaces):
                yield from _leaves(part, (*path, index), env)
        case gym.spaces.Box():
            yield Leaf(name, path, Box(space.shape, _dtype(space.dtype)), space.shape)
        case gym.spaces.Discrete():
            yield Leaf(name, path, Discrete(int(space.n), int(space.start)), (), int(space.start) or None)
        case gym.spaces.MultiDiscrete():
            start = np.asarray(space.start) if np.any(space.start) else None
            yield Leaf(name, path, _multi_discrete(space), space.nvec.shape, start)
        case gym.spaces.MultiBinary():
            yield Leaf(name, path, Box(space.shape, "float32"), space.shape)
        case _:
            raise EnvError(
                f"'{env}' has observations of {space}; headrace observes Box, Discrete, MultiDiscrete, MultiBinary "
                f"and Dict or Tuple of those."
            )


def _multi_discrete(space: Any) -> MultiDiscrete:
    start = tuple(int(n) for n in np.ravel(space.start)) if np.any(space.start) else ()
    own = None if space.nvec.ndim == 1 else space.nvec.shape
    return MultiDiscrete(tuple(int(n) for n in space.nvec.ravel()), start, own)


def _as_mask(leaf: Leaf, counts: tuple[int, ...], env: str) -> Leaf:
    size = sum(counts)
    if int(np.prod(leaf.given)) != size:
        raise EnvError(f"'{env}' has an '{MASK}' of shape {leaf.given} for {size} choices; it must have one flag each.")
    return replace(leaf, space=Box((size,), "bool"), counts=counts)


def _dtype(dtype: Any) -> str:
    if dtype == np.uint8 or dtype == np.bool_:
        return str(dtype)
    return "float32" if np.issubdtype(dtype, np.floating) else "int32"
