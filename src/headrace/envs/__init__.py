"""Environments behind one protocol."""

from headrace.envs.base import Episode, Finished, HostEnv, JaxEnv, Step
from headrace.envs.jax_env import BatchedEnv, HostedJaxEnv, SingleEnv
from headrace.envs.make import EnvLike, env_id, make

__all__ = [
    "BatchedEnv",
    "EnvLike",
    "Episode",
    "Finished",
    "HostEnv",
    "HostedJaxEnv",
    "JaxEnv",
    "SingleEnv",
    "Step",
    "env_id",
    "make",
]
