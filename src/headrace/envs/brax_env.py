"""Brax environments."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from headrace.envs.base import cannot_make, optional
from headrace.envs.ids import suggest
from headrace.envs.jax_env import BatchedEnv, SingleEnv
from headrace.envs.spaces import observed, tidy
from headrace.envs.stepped import quiet
from headrace.errors import EnvError, sentence
from headrace.types import Array, Box, Tree


class BraxState(NamedTuple):
    """Brax's state, and the steps of the episode so far."""

    physics: Tree
    time: Array


class BraxEnv(SingleEnv):
    """A Brax environment with a time limit, without Brax's wrappers, which reset to the same few states."""

    def __init__(self, env: Any, episode_steps: int):
        self._env = env
        self._episode_steps = episode_steps
        self.action = Box((env.action_size,), bounded=True)
        self.observation = observed(jax.eval_shape(env.reset, jax.random.key(0)).obs)

    def reset(self, key: Array) -> tuple[BraxState, Tree]:
        physics = jax.tree.map(jnp.asarray, self._env.reset(key))
        return BraxState(physics, jnp.zeros((), jnp.int32)), tidy(physics.obs)

    def step(self, state: BraxState, action: Array, key: Array) -> tuple[BraxState, Tree, Array, Array, Array]:
        physics = jax.tree.map(jnp.asarray, self._env.step(state.physics, action))
        time = state.time + 1
        truncated = time >= self._episode_steps
        return BraxState(physics, time), tidy(physics.obs), physics.reward, physics.done > 0, truncated

    def render(self, state: BraxState) -> np.ndarray[Any, Any] | None:
        try:
            return np.asarray(self._env.render([state.physics.pipeline_state])[0])
        except Exception as error:
            raise EnvError(
                f"this Brax environment cannot be drawn here ({sentence(error)}); "
                f"on a machine without a screen, MuJoCo needs MUJOCO_GL=egl or MUJOCO_GL=osmesa."
            ) from error


def make_brax(name: str, num_envs: int, episode_length: int = 1000, **kwargs: Any) -> BatchedEnv:
    """The environments of `brax:ID`, with Brax's own default time limit; `kwargs` are those of its class."""
    with quiet(), redirect_stdout(StringIO()):  # importing Brax prints which optional packages it lacks
        envs = optional("brax.envs", "jaxenvs", name)
    task = name.removeprefix("brax:")
    if task not in envs._envs:  # Brax lists its environments nowhere else
        raise EnvError(f"'{name}' is not an environment of Brax{suggest(task, envs._envs)}")
    with quiet():
        try:
            single = BraxEnv(envs.get_environment(task, **kwargs), episode_length)
        except Exception as error:
            raise cannot_make(name, error, kwargs, envs._envs[task]) from error
    return BatchedEnv(name, single, num_envs, cheap_reset=False)
