"""The cores and devices of each process of a run, set before it imports JAX.

Only processes placed on an accelerator see it: every process that opens one takes memory there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from headrace.graph import Fragment, Plan
from headrace.runtimes.base import Options

VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES", "tpu": "TPU_VISIBLE_CHIPS"}
"""The environment variable that lists the visible devices of each kind of accelerator."""


@dataclass(frozen=True)
class Member:
    """A process of a run: a replica of a fragment, or a service."""

    fragment: str
    """The id of the fragment, or the name of the service."""
    replica: int
    name: str
    """Its name for the user: `sampler 0`."""
    device: str
    service: bool = False


def training_members(plan: Plan) -> list[Member]:
    """The processes that collect and learn."""
    count: Counter[str] = Counter()
    made = []
    for fragment in plan.fragments:
        kind = process_kind(plan, fragment)
        for replica in range(fragment.replicas):
            made.append(Member(fragment.id, replica, f"{kind} {count[kind]}", fragment.device))
            count[kind] += 1
    return made


def service_members(plan: Plan) -> list[Member]:
    """The processes that subscribe to cells: there is nothing to see before something was learned."""
    return [Member(one.id, 0, f"{one.id} 0", one.device, service=True) for one in plan.services]


def asked_services(options: Options) -> list[str]:
    """The services that a person asks for."""
    return ["evaluator"] * options.evaluate + ["viewer"] * options.has_viewer


def process_kind(plan: Plan, fragment: Fragment) -> str:
    """What kind of process a fragment is, for its name."""
    nodes = [plan.graph.by_id[node] for node in fragment.nodes]
    collects, learns = ([node for node in nodes if node.domain == side] for side in ("collect", "learn"))
    if not nodes:
        return "applier"
    if collects and all(node.kind == "store" for node in nodes):
        return "store"
    if collects and learns:
        return "loop"
    if learns:
        return "learner" if any(node.writes for node in learns) else "drawer"
    if all(node.kind == "env" for node in nodes):
        return "environment"
    return "sampler" if any(node.kind != "stage" for node in nodes) else "inference"


def cores_of(plan: Plan, member: Member, present: Sequence[int]) -> tuple[list[int], int]:
    """The cores that a process runs on, of those `present`, and its threads."""
    fragment = next(one for one in (*plan.fragments, *plan.services) if one.id == member.fragment)
    wanted = [present[i] for i in fragment.cores if i < len(present)] or list(present)
    if member.service or not fragment.nodes:
        return wanted, 1
    learns = any(plan.graph.by_id[node].domain == "learn" for node in fragment.nodes)
    if learns and fragment.replicas == 1:
        return wanted, len(wanted)
    own = wanted[member.replica :: fragment.replicas] or [wanted[member.replica % len(wanted)]]
    if learns and plan.gradients == "reduce":
        # A collective's threads spin: on one core they would wait for each other's time slices (4 ms, not 1.2).
        return wanted, len(own)
    return own, len(own) if learns else 1  # acting is too little work for several threads


def device_variables(member: Member, everybody: Sequence[Member]) -> dict[str, str]:
    """Environment variables that make only a process's own device visible to it."""
    return visible_devices([member.device], alone=sum(other.device == member.device for other in everybody) == 1)


def visible_devices(devices: Iterable[str], alone: bool) -> dict[str, str]:
    """Environment variables that make only these devices visible; `alone` if no other process uses them."""
    devices = list(devices)
    (platform,) = {device.partition(":")[0] for device in devices} - {"cpu"} or {"cpu"}
    if platform not in VISIBLE:
        return {"JAX_PLATFORMS": platform}
    numbers = _numbers(platform, devices)
    # Numbers count the devices visible to this process, which may be some of the machine's.
    known = os.environ.get(VISIBLE[platform], "")
    names = [known.split(",")[number].strip() if known else str(number) for number in numbers]
    return {
        "JAX_PLATFORMS": f"{platform},cpu",
        VISIBLE[platform]: ",".join(names),
        # By default JAX takes three quarters of a device's memory when it opens it.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true" if alone else "false",
    }


def jax_device(device: str, among: Iterable[str]) -> Any:
    """A device of a plan as JAX has it, in a process to which these are visible."""
    platform = device.partition(":")[0]
    near = jax.local_devices(backend=platform)
    if platform == "cpu":  # all of them, where several are simulated; in a group each process has one
        number = int(device.partition(":")[2])
        return near[number if number < len(near) else 0]
    return near[_numbers(platform, among).index(int(device.partition(":")[2]))]


def _numbers(platform: str, devices: Iterable[str]) -> list[int]:
    return sorted({int(device.partition(":")[2]) for device in devices if device.startswith(f"{platform}:")})
