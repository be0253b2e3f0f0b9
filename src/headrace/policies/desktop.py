"""One machine, every core busy: samplers, learner, evaluator and viewer side by side, as in Spreeze."""

from __future__ import annotations

from headrace.graph import Fragment, Graph, Plan, cut
from headrace.machine import Machine
from headrace.policies.single_learner_coarse import share

STALENESS = 2
"""Weight versions a sampler may be behind: enough that neither side waits for the other."""


def desktop(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """{env, act, insert} in replicas beside {sample, learn}, each on cores of its own, over shared memory."""
    collecting, learning = split(graph, machine)
    number = share(graph.spec.num_envs, len(collecting)) if replicas is None else replicas
    collect, learn = (tuple(node.id for node in graph.where(domain=domain)) for domain in ("collect", "learn"))
    fragments = (
        Fragment("collect", collect, replicas=number, device=machine.host, cores=collecting),
        Fragment("learn", learn, device=machine.devices[0], cores=learning),
    )
    return cut(graph, "desktop", fragments, staleness=STALENESS if graph.staleness is None else 0)


def split(graph: Graph, machine: Machine) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cores to collect with, and to learn with.

    Where one side waits while the other works, both have all of them. A learner on an accelerator needs one to feed it.
    On the processor learning takes far more than collecting, at the rates replay loops ask for.
    """
    cores = tuple(range(machine.cores))
    if len(cores) == 1 or graph.staleness == 0:
        return cores, cores
    learning = 1 if machine.devices[0] != machine.host else max(1, 3 * len(cores) // 4)
    return cores[learning:], cores[:learning]
