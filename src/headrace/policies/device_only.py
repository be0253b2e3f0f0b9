"""Loop, environment and store as one program on each device, as in Anakin and WarpDrive."""

from __future__ import annotations

from headrace.errors import PlanError
from headrace.graph import Fragment, Graph, Plan, cut
from headrace.machine import Machine
from headrace.policies.single_learner_coarse import loops


def device_only(graph: Graph, machine: Machine, replicas: int | None = None) -> Plan:
    """{everything, environment included} on each device: only gradients cross, reduced."""
    if not graph.spec.pure:
        raise PlanError(
            f"policy 'device_only' compiles the environment into the loop, but '{graph.spec.id}' runs on the host; "
            "use a JAX environment (gymnax:, brax:) or multiple_learners."
        )
    devices = machine.devices
    number = loops(graph, len(devices), batches=True) if replicas is None else replicas
    if number > len(devices):
        raise PlanError(
            f"policy 'device_only' is asked for {number} replicas, one for each device, but this machine has "
            f"{', '.join(devices)}; use at most {len(devices)}, or multiple_learners."
        )
    everything = tuple(node.id for node in graph.nodes)
    whole = Fragment("loop", everything, replicas=number, device=devices[0])
    return cut(graph, "device_only", (whole,), staleness=0, gradients="reduce" if number > 1 else None)
