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

POLICIES: dict[str, Callable[..., Plan]] = {
    "single": single,
    "desktop": desktop,
    "dual_device": dual_device,
    "single_learner_coarse": single_learner_coarse,
    "single_learner_fine": single_learner_fine,
    "multiple_learners": multiple_learners,
    "device_only": device_only,
    "environments": environments,
    "central": central,
}

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
