"""Where each process of a run is placed, and what of the machine it may see: settled before it imports JAX.

An accelerator is opened by the processes placed on it and by nobody else: each that opens one takes memory there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import jax

from headrace.graph import Plan
from headrace.graph.plan import Fragment
from headrace.runtimes.base import Options

Role = Literal["environment", "sampler", "loop", "learner", "applier", "evaluator", "viewer"]

HOST = "cpu:0"
"""Where those are who watch: they stand back for those who train."""

VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES", "tpu": "TPU_VISIBLE_CHIPS"}
"""The variable by which each kind of accelerator is shown to a process, or hidden from it."""


def training(plan: Plan) -> list[tuple[Role, int]]:
    """The processes that collect and learn."""
    roles: list[tuple[Role, int]] = []
    if plan.remote:
        roles += [("environment", i) for i in range(plan.collector.replicas)]
    if plan.loops:
        roles += [("loop", i) for i in range(plan.parts)]
        return roles + ([("applier", 0)] if plan.gradients == "central" else [])
    roles += [("sampler", i) for i in range(1 if plan.remote else plan.collector.replicas)]
    return [*roles, *(("learner", i) for i in range(len(plan.learners)))]


def spectators(options: Options) -> list[tuple[Role, int]]:
    """Those who watch: there is nothing to see before something was learned, and starting takes a core."""
    roles: list[tuple[Role, int]] = [("evaluator", 0)] if options.evaluate else []
    return roles + ([("viewer", 0)] if options.watched else [])


def fragment_at(plan: Plan, role: Role, replica: int) -> Fragment | None:
    """The fragment that a process runs; None of those who watch."""
    if role in ("evaluator", "viewer"):
        return None
    if role == "environment":
        return plan.collector
    if role == "sampler":
        return plan.filler
    return plan.learners[replica if role == "learner" else 0]


def device_at(plan: Plan, role: Role, replica: int) -> str:
    """The device that a process computes on."""
    fragment = fragment_at(plan, role, replica)
    return HOST if fragment is None else fragment.device


def sight(plan: Plan, role: Role, replica: int, everybody: Sequence[tuple[Role, int]]) -> dict[str, str]:
    """The variables that show a process the device it computes on, and hide all others."""
    device = device_at(plan, role, replica)
    return shown([device], alone=sum(device_at(plan, *other) == device for other in everybody) == 1)


def shown(devices: Iterable[str], alone: bool) -> dict[str, str]:
    """The variables that show a process these devices and hide all others; `alone` if nobody else computes there."""
    devices = list(devices)
    (platform,) = {device.partition(":")[0] for device in devices} - {"cpu"} or {"cpu"}
    if platform not in VISIBLE:
        return {"JAX_PLATFORMS": platform}
    numbers = _numbers(platform, devices)
    # Their numbers count those that this process is shown, which may be some of the machine's.
    known = os.environ.get(VISIBLE[platform], "")
    names = [known.split(",")[number].strip() if known else str(number) for number in numbers]
    return {
        "JAX_PLATFORMS": f"{platform},cpu",
        VISIBLE[platform]: ",".join(names),
        # By itself, JAX takes three quarters of a device's memory when it opens it.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true" if alone else "false",
    }


def jax_device(device: str, among: Iterable[str]) -> Any:
    """A device of a plan as JAX has it, in a process that is shown these."""
    platform = device.partition(":")[0]
    near = jax.local_devices(backend=platform)
    if platform == "cpu":  # all of them, where several are simulated; in a group each process has one
        number = int(device.partition(":")[2])
        return near[number if number < len(near) else 0]
    return near[_numbers(platform, among).index(int(device.partition(":")[2]))]


def _numbers(platform: str, devices: Iterable[str]) -> list[int]:
    return sorted({int(device.partition(":")[2]) for device in devices if device.startswith(f"{platform}:")})
