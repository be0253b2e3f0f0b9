"""gymnax environments."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from headrace.envs.base import optional, unknown_argument
from headrace.envs.ids import suggest
from headrace.envs.jax_env import BatchedEnv, SingleEnv
from headrace.envs.spaces import Actions, observed, tidy
from headrace.envs.stepped import quiet
from headrace.errors import EnvError, sentence
from headrace.types import Array, Discrete, Tree, native_action


class GymnaxEnv(SingleEnv):
    """A gymnax environment, stepped without gymnax's own reset so that the last observation is kept."""

    def __init__(self, name: str, env: Any, params: Any, action_scale: float | None = None):
        spaces = optional("gymnax.environments.spaces", "jaxenvs", name)
        base = optional("gymnax.environments.environment", "jaxenvs", name).Environment
        self._env, self._params = env, params
        # An environment may still count its time limit as an end in `is_terminal`, as gymnax did before 1.0.
        self._merges_limit = type(env).is_terminal is not base.is_terminal
        with quiet():
            acted = spaces.gymnax_space_to_gym_space(env.action_space(params))
            self.action = Actions(acted, name, scale=action_scale).space
        declared = env.observation_space(params)
        # The shapes are the truth: several gymnax environments declare another dtype than they return.
        shapes, _ = jax.eval_shape(env.reset_env, jax.random.key(0), params)
        self.observation = Discrete(int(declared.n)) if isinstance(declared, spaces.Discrete) else observed(shapes)

    def reset(self, key: Array) -> tuple[Tree, Tree]:
        obs, state = self._env.reset_env(key, self._params)
        return state, tidy(obs)

    def step(self, state: Tree, action: Array, key: Array) -> tuple[Tree, Tree, Array, Array, Array]:
        params, chosen = self._params, native_action(self.action, action[None], jnp)[0]
        obs, state, reward, done, _ = self._env.step_env(key, state, chosen, params)
        if self._merges_limit:
            done = self._env.is_terminal(state, params.replace(max_steps_in_episode=2**31 - 1))
        truncated = self._env.is_truncated(state, params)
        return state, tidy(obs), jnp.reshape(reward, ()), jnp.asarray(done), jnp.asarray(truncated)


def make_gymnax(name: str, num_envs: int, kwargs: dict[str, Any], *, action_scale: float | None = None) -> BatchedEnv:
    """The environments of `gymnax:ID`; `kwargs` are those of its class, and fields of its parameters."""
    gymnax = optional("gymnax", "jaxenvs", name)
    task = name.removeprefix("gymnax:")
    if task not in gymnax.registered_envs:
        raise EnvError(f"'{name}' is not an environment of gymnax{suggest(task, gymnax.registered_envs)}")
    try:
        _, params = gymnax.make(task)
        fields = {field.name for field in dataclasses.fields(params)}
        own = {key: value for key, value in kwargs.items() if key not in fields}
        env, params = gymnax.make(task, **own)
        params = params.replace(**{key: value for key, value in kwargs.items() if key in fields})
    except Exception as error:
        if isinstance(error, TypeError) and own:
            raise unknown_argument(name, next(iter(own)), sorted(fields)) from error
        raise EnvError(f"'{name}' cannot be made: {sentence(error)}.") from error
    return BatchedEnv(name, GymnaxEnv(name, env, params, action_scale), num_envs)
