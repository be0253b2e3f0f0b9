"""An environment with the interface of host environments."""

from __future__ import annotations

from headrace.envs import HostedJaxEnv, HostEnv, JaxEnv


def hosted(env: HostEnv | JaxEnv) -> HostEnv:
    """An environment with the interface of host environments."""
    return HostedJaxEnv(env) if isinstance(env, JaxEnv) else env
