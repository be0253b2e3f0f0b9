"""Distribution policies: (graph, machine) -> plan. Each is a small file."""

from collections.abc import Callable

from headrace.graph import Plan
from headrace.policies.single import single
from headrace.policies.single_learner_coarse import single_learner_coarse

POLICIES: dict[str, Callable[..., Plan]] = {
    "single": single,
    "single_learner_coarse": single_learner_coarse,
}

__all__ = ["POLICIES", "single", "single_learner_coarse"]
