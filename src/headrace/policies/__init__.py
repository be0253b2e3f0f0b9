"""Distribution policies: (graph, machine) -> plan. Each is a small file."""

from collections.abc import Callable

from headrace.graph import Plan
from headrace.policies.desktop import desktop
from headrace.policies.dual_device import dual_device
from headrace.policies.single import single
from headrace.policies.single_learner_coarse import single_learner_coarse

POLICIES: dict[str, Callable[..., Plan]] = {
    "single": single,
    "single_learner_coarse": single_learner_coarse,
    "desktop": desktop,
    "dual_device": dual_device,
}

__all__ = ["POLICIES", "desktop", "dual_device", "single", "single_learner_coarse"]
