"""Environments with the interface of host environments."""

from __future__ import annotations

from typing import Any

from headrace.envs import HostedJaxEnv, HostEnv, JaxEnv, make
from headrace.graph.sections import Sections


def hosted(env: HostEnv | JaxEnv) -> HostEnv:
    """An environment with the interface of host environments."""
    return HostedJaxEnv(env) if isinstance(env, JaxEnv) else env


def replica_envs(env: Any, sections: Sections) -> list[HostEnv]:
    """The environments of one replica of the fragment that steps them, a set for each group."""
    number = sections.graph.spec.num_envs // (sections.groups * sections.plan.collector.replicas)
    return [hosted(make(env, number)) for _ in range(sections.groups)]
