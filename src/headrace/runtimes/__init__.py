"""Runtimes, which run plans."""

from collections.abc import Callable

from headrace.runtimes.base import Options, Runtime
from headrace.runtimes.inline import inline
from headrace.runtimes.processes import Processes

RUNTIMES: dict[str, Callable[..., Runtime]] = {"inline": inline, "processes": Processes}

__all__ = ["RUNTIMES", "Options", "Processes", "Runtime", "inline"]
