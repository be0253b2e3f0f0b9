"""The trained actor for use in any environment loop: observations in, actions out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from headrace.core.cells import Cell
from headrace.envs.spaces import PLAIN
from headrace.errors import UsageError
from headrace.graph import Graph, show
from headrace.services.evaluate import Player
from headrace.types import MASK, Box, Dict, Discrete, MultiDiscrete, Tree, from_native_obs, native_action, native_obs


class Actor:
    """Chooses actions for observations, without exploration."""

    def __init__(self, graph: Graph, cells: Mapping[str, Cell]):
        self.cells = dict(cells)
        self.player = Player(graph, cells)
        self.seen, self.space = graph.spec.observation, graph.spec.action

    def acts_for(self, cells: Mapping[str, Cell]) -> bool:
        """Whether it was made from these cells."""
        same = (cells.get(name) is cell for name, cell in self.cells.items())
        return len(self.cells) == len(cells) and all(same)

    def __call__(self, obs: Tree, action_mask: Any = None) -> Any:
        """The action for one observation, or the actions for a batch of them, as the environment itself takes it.

        `action_mask` is the one in the environment's info, where it gives one; without it everything is allowed.
        """
        wanted = native_obs(self.seen)
        given: Tree = _flattened(obs) if isinstance(self.seen, Dict) else _array(obs)
        if isinstance(self.seen, Dict):
            if MASK in wanted and MASK not in given:
                flags = np.ones(wanted[MASK].shape, bool) if action_mask is None else np.asarray(action_mask, bool)
                given = {**given, MASK: flags}
            if given.keys() != wanted.keys():
                raise UsageError(f"the actor takes observations of {_parts(wanted)}, got {_parts(given)}.")
        leaves, like = jax.tree.leaves(given), jax.tree.leaves(wanted)
        shapes, single = [leaf.shape for leaf in leaves], [leaf.shape for leaf in like]
        if shapes != single and [shape[1:] for shape in shapes] != single:
            raise UsageError(f"the actor takes observations of {show(wanted)}, got {show(given)}.")
        lead = (1,) if shapes == single else ()
        if not lead and not shapes[0][0]:
            raise UsageError("the actor takes at least one observation, got none.")
        if not all(np.isfinite(leaf).all() for leaf in leaves if leaf.dtype.kind == "f"):
            raise UsageError("the actor is given an observation that is not finite; see where it comes from.")
        batch = jax.tree.map(lambda leaf, like: leaf.reshape(*lead, *leaf.shape).astype(like.dtype), given, wanted)
        batch = from_native_obs(self.seen, batch)
        _check_choices(self.seen, batch)
        actions = native_action(self.space, self.player(batch))
        if not lead:
            return actions
        return np.asarray(actions[0]) if isinstance(self.space, Box) else actions[0]


def _array(obs: Any) -> Any:
    try:
        array = np.asarray(obs)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise UsageError(f"the actor takes observations that are arrays of numbers, got a {type(obs).__name__}.")
    return array


def _flattened(obs: Any, prefix: str = "") -> dict[str, Any]:
    """The arrays of an observation with several parts, by their names: a/b is b of a, t/0 the first of t."""
    if not isinstance(obs, Mapping | tuple):
        return {prefix.removesuffix("/") or PLAIN: _array(obs)}
    parts = obs.items() if isinstance(obs, Mapping) else enumerate(obs)
    return {name: part for key, value in parts for name, part in _flattened(value, f"{prefix}{key}/").items()}


def _parts(tree: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {show(part)}" for name, part in sorted(tree.items()))


def _check_choices(space: Any, obs: Tree) -> None:
    if isinstance(space, Dict):
        for name, part in space.items:
            _check_choices(part, obs[name])
        return
    most = space.n if isinstance(space, Discrete) else space.counts if isinstance(space, MultiDiscrete) else None
    if most is not None and not np.all((obs >= 0) & (obs < np.asarray(most))):
        raise UsageError(f"the actor is given a choice that {space} does not have; give what the environment shows.")
