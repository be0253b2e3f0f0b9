"""The critic learns on one device, the actor on another, each with the other's latest cells, as in Spreeze and PQL."""

from __future__ import annotations

from itertools import product

from headrace.errors import PlanError
from headrace.graph import Fragment, Graph, Plan, cut, with_computed
from headrace.machine import Machine
from headrace.policies.desktop import STALENESS
from headrace.policies.single_learner_coarse import share


def dual_device(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """`desktop` with the learning stages whose cells acting reads apart from the other ones, on two devices."""
    acting = {bound.cell for node in (*graph.where(domain="collect"), *graph.play.nodes) for bound in node.reads}
    learning = graph.where(domain="learn", role="learning")
    first = [node for node in learning if all(bound.cell not in acting for bound in node.writes)]
    second = [node for node in learning if node not in first]
    if not first or graph.staleness is not None:
        raise PlanError(
            f"policy 'dual_device' learns what acts apart from what judges, but {graph.algorithm} learns both in stage "
            f"'{learning[0].id}'; use desktop."
        )
    # Both compute what both need of a batch before they learn from it.
    ahead, behind = with_computed(graph, second), with_computed(graph, first)
    measured = [edge for edge in graph.edges if edge.kind == "data" and graph.by_id[edge.source].writes]
    for own, edge in product((ahead, behind), measured):
        if edge.target in own and edge.source not in own:
            raise PlanError(
                f"policy 'dual_device' learns what acts apart from what judges, but stage '{edge.target}' of "
                f"{graph.algorithm} takes what stage '{edge.source}' measures; use desktop."
            )
    rest = tuple(node.id for node in graph.where(domain="learn") if node.id in behind or node.id not in ahead)
    judging, choosing, sampling = thirds(machine)
    collect = tuple(node.id for node in graph.where(domain="collect"))
    spare = machine.cores - len({*judging, *choosing})
    samplers = share(graph.spec.num_envs, max(1, spare)) if replicas is None else replicas
    devices = machine.devices
    fragments = (
        Fragment("collect", collect, replicas=samplers, device=machine.host, cores=sampling),
        Fragment("learn_rest", rest, device=devices[0], cores=judging),
        Fragment("learn_acting", ahead, device=devices[min(1, len(devices) - 1)], cores=choosing),
    )
    return cut(graph, "dual_device", fragments, staleness=STALENESS)


def thirds(machine: Machine) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Cores of the critic's learner, of the actor's learner, and of the samplers, disjoint where there are enough.

    On few cores a sampler runs beside both learners: whichever waits for the other leaves it a core (1.13 times as
    fast as a sampler that keeps to one of the two; bench/desktop.py's SAC on 2 cores, 2026-11-16).
    """
    cores = tuple(range(machine.cores))
    learning = cores[: max(2, 3 * len(cores) // 4)]
    half = (len(learning) + 1) // 2
    first, second = learning[:half], learning[half:] or learning
    return first, second, cores[len(learning) :] or learning
