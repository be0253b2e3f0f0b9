"""Gymnasium environments, stepped one after the other straight into preallocated arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.envs.base import Step, seeds
from headrace.envs.spaces import Actions, MisfitError, Rows, choices, not_finite, observations
from headrace.envs.stepped import Stepped, quiet, sentence
from headrace.errors import EnvError
from headrace.types import MASK, Array, EnvSpec, Tree


class GymnasiumEnv(Stepped):
    """Gymnasium environments of one kind, side by side; with `render`, the first of them can be drawn."""

    def __init__(self, name: str, envs: Sequence[Any], *, render: bool = False):
        first, num_envs = envs[0], len(envs)
        with quiet():
            self._actions = Actions(first.action_space, name, num_envs)
            action = self._actions.space
            self._observations = observations(first.observation_space, action, name)
            if self._sends_mask(first, name):
                self._observations = self._observations.with_info_mask(action)
        spec = EnvSpec(name, self._observations.space, action, num_envs)
        super().__init__(spec, envs, self._observations, render=render)
        self._steps = [env.step for env in envs]

    def reset(self, seed: int) -> Tree:
        buffers = self._next_buffers()
        self._start()
        with quiet():
            for index, start in enumerate(seeds(seed, self.spec.num_envs)):
                self._reset_one(index, buffers.obs, start)
        if not buffers.obs.finite():
            raise self._blame_row(buffers.obs.tree, "a first observation")
        return buffers.obs.tree

    def step(self, action: Array) -> Step:
        rows = self._actions.decode(action)
        if rows.ndim == 1:
            rows = rows.tolist()  # Gymnasium is quicker to check a Python int
        if len(rows) != self.spec.num_envs:
            raise EnvError(f"'{self.spec.id}' has {self.spec.num_envs} environments but got {len(rows)} actions.")
        self._count += 1
        buffers = self._next_buffers()
        steps, returns, masked = self._steps, self._returns, self._observations.info_mask is not None
        seen: list[Any] = []
        gains: list[float] = []
        infos: list[Any] = []
        ended: list[int] = []
        index = 0
        try:
            for row in rows:
                obs, gain, terminated, truncated, info = steps[index](row)
                if terminated or truncated:
                    ended.append(index)
                    buffers.end(index, terminated, len(ended) == 1)
                if masked:
                    infos.append(info)
                seen.append(obs)
                gain = float(gain)  # NumPy's scalars are slow to add
                gains.append(gain)
                returns[index] += gain
                index += 1
        except Exception as error:
            raise self._blame(index, error) from error
        try:
            buffers.next_obs.gather(seen, self._final_infos(infos, ended))
        except (MisfitError, TypeError, ValueError) as error:
            raise self._blame_obs(seen, self._final_infos(infos, ended), error) from error
        buffers.reward[:] = gains
        if not math.isfinite(sum(gains)):
            raise self._blame_row(buffers.reward, "a reward", rows)
        if not buffers.next_obs.finite():
            raise self._blame_row(buffers.next_obs.tree, "an observation", rows)
        if not ended:
            return Step(buffers.next_obs.tree, buffers.reward, self._none, self._none, buffers.next_obs.tree)
        buffers.obs.copy(buffers.next_obs)
        self._end(ended)
        for index in ended:
            self._reset_one(index, buffers.obs, None)
        if not buffers.obs.finite():
            raise self._blame_row(buffers.obs.tree, "a first observation")
        return Step(buffers.obs.tree, buffers.reward, buffers.terminated, buffers.truncated, buffers.next_obs.tree)

    def _sends_mask(self, env: Any, name: str) -> bool:
        """Whether the info of a reset has a mask, which no space declares."""
        if not choices(self._actions.space) or any(leaf.name == MASK for leaf in self._observations.leaves):
            return False
        try:
            return MASK in env.reset(seed=0)[1]
        except Exception as error:
            raise EnvError(f"'{name}' raised {sentence(error)} in its first reset.") from error

    def _final_infos(self, infos: Sequence[Any], ended: list[int]) -> Sequence[Any]:
        # Nothing is chosen after the end, so environments may leave the last mask out.
        mask = self._observations.info_mask
        if mask is None or not ended:
            return infos
        everything = {MASK: np.ones(mask.given, bool)}
        return [everything if i in ended and MASK not in info else info for i, info in enumerate(infos)]

    def _reset_one(self, index: int, obs: Rows, seed: int | None) -> None:
        try:
            seen, info = self._envs[index].reset(seed=seed)
            obs.write(index, seen, info)
        except Exception as error:
            raise self._blame(index, error) from error

    def _blame_obs(self, seen: list[Any], infos: Sequence[Any], error: Exception) -> EnvError:
        """Find the environment whose observation could not be taken in, by taking them in one by one."""
        scratch = Rows(self._observations, len(seen))
        for index, obs in enumerate(seen):
            try:
                scratch.write(index, obs, infos[index] if infos else None)
            except Exception as reason:
                raise self._blame(index, reason) from reason
        return EnvError(f"'{self.spec.id}' returned what it should not at step {self._count}: {error}.")

    def _blame_row(self, tree: Tree, what: str, rows: Any = None) -> EnvError:
        """Find the environment with a number that is none."""
        index = not_finite(tree, self.spec.num_envs)
        return self._blame_number(index, what, None if rows is None or index is None else rows[index])
