"""Runtimes, which run plans."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headrace.graph import Plan
from headrace.runtimes.base import Options, Runtime
from headrace.runtimes.inline import inline
from headrace.runtimes.processes import Processes


@dataclass(frozen=True)
class RuntimeKind:
    """A way to run plans, and what it can do beyond that."""

    start: Callable[..., Runtime]
    spawns: bool = False
    """Whether fragments are processes: they find what they run by its name, leave room to tune, and services have
    processes of their own."""

    def __call__(self, *given: Any) -> Runtime:
        return self.start(*given)


RUNTIMES = {"inline": RuntimeKind(inline), "processes": RuntimeKind(Processes, spawns=True)}


def default_runtime(plan: Plan | None, options: Options) -> str:
    """What runs a plan, or one still to be chosen, unless the user says."""
    alone = plan is not None and plan.alone
    return "inline" if (alone and not options.has_viewer) or options.debug else "processes"


__all__ = ["RUNTIMES", "Options", "Processes", "Runtime", "default_runtime", "inline"]
