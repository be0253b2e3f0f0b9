"""Distribution policies: (graph, machine, replicas) -> plan. Each is a small file."""

from collections.abc import Callable

from headrace.graph import Plan
from headrace.policies.central import central
from headrace.policies.desktop import desktop
from headrace.policies.device_only import device_only
from headrace.policies.dual_device import dual_device
from headrace.policies.environments import environments
from headrace.policies.multiple_learners import multiple_learners
from headrace.policies.single import single
from headrace.policies.single_learner_coarse import single_learner_coarse
from headrace.policies.single_learner_fine import single_learner_fine

_ALL: list[Callable[..., Plan]] = [single, desktop, dual_device, single_learner_coarse, single_learner_fine]
_ALL += [multiple_learners, device_only, environments, central]

POLICIES: dict[str, Callable[..., Plan]] = {policy.__name__: policy for policy in _ALL}

__all__ = [
    "POLICIES",
    "central",
    "desktop",
    "device_only",
    "dual_device",
    "environments",
    "multiple_learners",
    "single",
    "single_learner_coarse",
    "single_learner_fine",
]
