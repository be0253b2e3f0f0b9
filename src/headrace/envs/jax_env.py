"""JAX environments: one environment as pure functions, many of them with resets, and the host's view of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from headrace.envs.base import Episode, Finished, JaxEnv, LocalEnv, Step
from headrace.types import Array, Box, EnvSpec, Space, Tree


class SingleEnv(ABC):
    """One environment as pure functions, without batch axes and without resets of its own."""

    observation: Space
    action: Space
    agents: int = 1

    @abstractmethod
    def reset(self, key: Array) -> tuple[Tree, Tree]:
        """An initial state and its observation."""

    @abstractmethod
    def step(self, state: Tree, action: Array, key: Array) -> tuple[Tree, Tree, Array, Array, Array]:
        """The next state, its observation, the reward, terminated and truncated."""

    def render(self, state: Tree) -> np.ndarray[Any, Any] | None:
        """An RGB frame of a state, where it supports rendering."""
        return None


class BatchState(NamedTuple):
    """The environments' own states, and the return and length of each episode so far."""

    inner: Tree
    reward: Array
    length: Array


class BatchedEnv(JaxEnv):
    """`num_envs` single environments side by side, each reset when its episode ends.

    With `cheap_reset` a reset is computed at every step and used where needed; without, only at steps at
    which an episode ended.
    """

    def __init__(self, name: str, single: SingleEnv, num_envs: int, *, cheap_reset: bool = True):
        self.spec = EnvSpec(name, single.observation, single.action, num_envs, pure=True, agents=single.agents)
        self._single = single
        self._cheap_reset = cheap_reset

    def reset(self, key: Array) -> tuple[BatchState, Tree]:
        num_envs = self.spec.num_envs
        inner, obs = self._start(jax.random.split(key, num_envs))
        return BatchState(inner, jnp.zeros(num_envs), jnp.zeros(num_envs, jnp.int32)), obs

    def step(self, state: BatchState, action: Array, key: Array) -> tuple[BatchState, Step, Finished]:
        num_envs = self.spec.num_envs
        keys = jax.random.split(key, 2 * num_envs)
        step_keys, reset_keys = keys[:num_envs], keys[num_envs:]
        if isinstance(self.spec.action, Box) and self.spec.action.bounded:
            action = jnp.clip(action, -1.0, 1.0)
        inner, next_obs, reward, terminated, truncated = jax.vmap(self._single.step)(state.inner, action, step_keys)
        inner = _like(inner, state.inner)
        reward = reward.astype(jnp.float32)
        terminated = terminated.astype(bool)
        truncated = truncated.astype(bool) & ~terminated
        done = terminated | truncated

        def choose(new: Array, kept: Array) -> Array:
            return jnp.where(done.reshape(-1, *[1] * (new.ndim - 1)), new, kept)

        def fresh(_: None) -> Tree:
            return jax.tree.map(choose, self._start(reset_keys), (inner, next_obs))

        if self._cheap_reset:
            after, obs = fresh(None)
        else:
            after, obs = jax.lax.cond(done.any(), fresh, lambda _: (inner, next_obs), None)

        returns, length = state.reward + reward, state.length + 1
        finished = Finished(done, jnp.where(done, returns, 0.0), jnp.where(done, length, 0))
        counted = BatchState(after, jnp.where(done, 0.0, returns), jnp.where(done, 0, length))
        return counted, Step(obs, reward, terminated, truncated, next_obs), finished

    def render(self, state: BatchState) -> np.ndarray[Any, Any] | None:
        return self._single.render(jax.tree.map(lambda leaf: leaf[0], state.inner))

    def _start(self, keys: Array) -> tuple[Tree, Tree]:
        inner, obs = jax.vmap(self._single.reset)(keys)
        return _like(inner, inner), obs


class HostedJaxEnv(LocalEnv):
    """A JAX environment stepped from the host."""

    def __init__(self, env: JaxEnv):
        super().__init__(replace(env.spec, pure=False))
        self._env = env
        self._reset = jax.jit(env.reset)
        self._step = jax.jit(lambda state, action, key, count: env.step(state, action, jax.random.fold_in(key, count)))
        self._key: Array = None
        self._state: Tree = None

    def reset(self, seed: int) -> Tree:
        start, self._key = jax.random.split(jax.random.key(seed % 2**32))
        self._count = 0
        self._state, obs = self._reset(start)
        return jax.device_get(obs)

    def step(self, action: Array) -> Step:
        self._state, step, finished = self._step(self._state, action, self._key, self._count)
        self._count += 1
        step, finished = jax.device_get((step, finished))
        self._require_finite(step.reward, "a reward", action)
        self._require_finite(step.next_obs, "an observation", action)
        for index in np.flatnonzero(finished.done):
            self._finished.append(Episode(float(finished.reward[index]), int(finished.length[index])))
        return Step(*step)

    def render(self) -> np.ndarray[Any, Any] | None:
        return None if self._state is None else self._env.render(self._state)

    def close(self) -> None:
        self._state = None


def _like(tree: Tree, model: Tree) -> Tree:
    """The tree with the dtypes of another, none of them weak: a scan's carry must not change type."""
    return jax.tree.map(lambda leaf, like: jnp.asarray(leaf, jnp.asarray(like).dtype), tree, model)
