"""An environment as the host steps it."""

from __future__ import annotations

from headrace.envs import HostedJaxEnv, HostEnv, JaxEnv


def hosted(env: HostEnv | JaxEnv) -> HostEnv:
    """An environment as the host steps it."""
    return HostedJaxEnv(env) if isinstance(env, JaxEnv) else env
