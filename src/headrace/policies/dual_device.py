"""The critic learns on one device, the actor on another, each with the other's latest cells, as in Spreeze and PQL."""

from __future__ import annotations

from headrace.errors import PlanError
from headrace.graph import Fragment, Graph, Plan, cut
from headrace.machine import Machine
from headrace.policies.desktop import STALENESS
from headrace.policies.single_learner_coarse import share


def dual_device(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """`desktop` with the stages that write what acting reads apart from the rest of learning, on two devices."""
    acting = {bound.cell for node in (*graph.where(domain="collect"), graph.play) for bound in node.reads}
    learning = graph.where(domain="learn", role="learning")
    ahead = tuple(node.id for node in learning if any(bound.cell in acting for bound in node.writes))
    rest = tuple(node.id for node in graph.where(domain="learn") if node.id not in ahead)
    if len(ahead) == len(learning) or graph.on_policy:
        raise PlanError(
            f"policy 'dual_device' learns what acts apart from what judges, but {graph.algorithm} learns both in stage "
            f"'{learning[0].id}'; use desktop."
        )
    first, second = halves(machine)
    collect = tuple(node.id for node in graph.where(domain="collect"))
    samplers = share(graph.spec.num_envs, len(second)) if replicas is None else replicas
    devices = machine.devices
    fragments = (
        Fragment("collect", collect, replicas=samplers, device=machine.host, cores=second),
        Fragment("learn_rest", rest, device=devices[0], cores=first),
        Fragment("learn_acting", ahead, device=devices[min(1, len(devices) - 1)], cores=second),
    )
    return cut(graph, "dual_device", fragments, staleness=STALENESS)


def halves(machine: Machine) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two disjoint sets of cores; samplers run on the second, where what acts is learned: it takes less."""
    cores = tuple(range(machine.cores))
    half = (len(cores) + 1) // 2
    return cores[:half], cores[half:] or cores
