"""Collectors fill the store, one learner empties it, as in Acme and Sebulba."""

from __future__ import annotations

from headrace.errors import ConfigError
from headrace.graph import Fragment, Graph, Plan, cut
from headrace.machine import Machine

REPLAY_STALENESS = 1
"""Weight versions a collector may be behind, for off-policy learning."""


def single_learner_coarse(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """{env, act, insert} in replicas and {sample, learn}: trajectories cross, weights come back."""
    number = replicas if replicas is not None else share(graph.spec.num_envs, machine.cores - 1)
    collect, learn = (tuple(node.id for node in graph.where(domain=domain)) for domain in ("collect", "learn"))
    fragments = (
        Fragment("collect", collect, replicas=number, device=machine.devices[0]),
        Fragment("learn", learn, device=machine.devices[0]),
    )
    return cut(graph, "single_learner_coarse", fragments, staleness=REPLAY_STALENESS if graph.staleness is None else 0)


def loops(graph: Graph, most: int, batches: bool) -> int:
    """The largest number of replicas of the whole loop, up to `most`, that its settings can be divided among."""
    config = graph.where(kind="stage")[0].function.algorithm.config

    def fits(number: int) -> bool:
        try:
            config.share(number, batches)
        except ConfigError:
            return False
        return graph.spec.num_envs % number == 0

    return max(number for number in range(1, max(1, most) + 1) if number == 1 or fits(number))


def share(num_envs: int, most: int) -> int:
    """The largest number of replicas, up to `most`, that `num_envs` environments can be divided among."""
    return max(n for n in range(1, max(1, most) + 1) if num_envs % n == 0)
