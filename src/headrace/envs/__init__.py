"""Environments behind one protocol."""

from headrace.envs.atari import scored
from headrace.envs.base import SUCCESS, Episode, Finished, HostEnv, JaxEnv, Step
from headrace.envs.installed import is_installed_env
from headrace.envs.jax_env import BatchedEnv, HostedJaxEnv, SingleEnv
from headrace.envs.make import EnvLike, describe_env, make, make_host
from headrace.envs.recipe import Recipe, env_id, recipe, recipe_json

__all__ = [
    "SUCCESS",
    "BatchedEnv",
    "EnvLike",
    "Episode",
    "Finished",
    "HostEnv",
    "HostedJaxEnv",
    "JaxEnv",
    "Recipe",
    "SingleEnv",
    "Step",
    "describe_env",
    "env_id",
    "is_installed_env",
    "make",
    "make_host",
    "recipe",
    "recipe_json",
    "scored",
]
