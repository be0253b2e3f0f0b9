"""EnvPool's C++ environments, reset by hand so that no step is lost to its automatic reset."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from headrace.envs.atari import ATARI, envpool_options, not_atari
from headrace.envs.base import LocalEnv, Step, cannot_make, optional, seeds
from headrace.envs.ids import suggest
from headrace.envs.spaces import Actions, choices, observations
from headrace.envs.stepped import quiet
from headrace.errors import EnvError, sentence
from headrace.types import MASK, Array, EnvSpec, Tree


class EnvPoolEnv(LocalEnv):
    """A pool of `num_envs` environments, stepped by EnvPool's threads, all together.

    EnvPool resets an ended episode on the step after, whose action and reward are ignored. Resetting the ended
    ones explicitly keeps every step real. An episode that terminates at the very step of its time limit is
    truncated in EnvPool's account: its flags do not distinguish the two.
    """

    def __init__(
        self,
        name: str,
        num_envs: int,
        kwargs: dict[str, Any],
        *,
        render: bool = False,
        action_scale: float | None = None,
    ):
        """`kwargs` are EnvPool's own, such as `max_episode_steps`."""
        self._task = task = name.removeprefix("envpool:")
        self._envpool = optional("envpool", "envpool", name)
        known = self._envpool.list_all_envs()
        if task not in known:
            raise EnvError(f"'{name}' is not an environment of EnvPool{suggest(task, known)}")
        if kwargs.get(ATARI):
            if not hasattr(self._envpool.make_spec(task).config, "noop_max"):
                raise not_atari(name)
            kwargs = envpool_options(kwargs)
        # By default it starts a thread for every core of the machine, also where this process may use one.
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._options: dict[str, Any] = {"num_threads": min(threads, num_envs)} | kwargs | {"num_envs": num_envs}
        self._options |= {"render_mode": "rgb_array"} if render else {}
        with quiet():
            try:
                spec = self._envpool.make_spec(task, **kwargs)
                self._pool = self._envpool.make_gymnasium(task, **self._options)
            except Exception as error:
                raise cannot_make(name, error, kwargs) from error
            self._actions = Actions(spec.action_space, name, num_envs, action_scale)
            self._observations = observations(spec.observation_space, self._actions.space, name)
            has_mask = any(leaf.name == MASK for leaf in self._observations.leaves)
            if not has_mask and choices(self._actions.space) and MASK in self._pool.reset()[1]:
                self._observations = self._observations.with_info_mask(self._actions.space)
        super().__init__(EnvSpec(name, self._observations.space, self._actions.space, num_envs))
        self._render = render

    def reset(self, seed: int) -> Tree:
        self._start()
        self._pool.close()
        with quiet():
            # EnvPool takes a seed only when it is made.
            self._pool = self._envpool.make_gymnasium(self._task, **self._options, seed=seeds(seed, self.spec.num_envs))
            obs, info = self._pool.reset()
        first = self._observations.batch(obs, info, self.spec.num_envs)
        self._require_finite(first, "a first observation")
        return first

    def step(self, action: Array) -> Step:
        num_envs = self.spec.num_envs
        rows = self._actions.decode(action)
        self._count += 1
        try:
            seen, gain, terminated, truncated, info = self._pool.step(rows)
        except Exception as error:
            raise EnvError(f"'{self.spec.id}' raised {sentence(error)} at step {self._count}.") from error
        reward = gain.astype(np.float32, copy=False)
        next_obs = self._observations.batch(seen, info, num_envs)
        self._require_finite(reward, "a reward", rows)
        self._require_finite(next_obs, "an observation", rows)
        self._returns += reward
        if not (np.count_nonzero(terminated) or np.count_nonzero(truncated)):
            return Step(next_obs, reward, terminated, truncated, next_obs)
        truncated = truncated & ~terminated
        ended = np.flatnonzero(terminated | truncated).astype(np.int32)
        said = {name: part for name, part in info.items() if np.shape(part) == (num_envs,)}
        self._end(ended.tolist(), {int(i): {name: part[i] for name, part in said.items()} for i in ended})
        fresh, info = self._pool.reset(ended)
        obs = _replace(next_obs, ended, self._observations.batch(fresh, info, ended.size))
        self._require_finite(obs, "a first observation")
        return Step(obs, reward, terminated, truncated, next_obs)

    def render(self) -> np.ndarray[Any, Any] | None:
        if not self._render:
            return None
        try:
            return np.asarray(self._pool.render()[0])
        except Exception as error:
            raise EnvError(f"'{self.spec.id}' cannot be drawn here ({sentence(error)}).") from error

    def close(self) -> None:
        self._pool.close()


def _replace(tree: Tree, rows: Array, values: Tree) -> Tree:
    if isinstance(tree, dict):
        return {name: _replace(part, rows, values[name]) for name, part in tree.items()}
    array = tree.copy()
    array[rows] = values
    return array
