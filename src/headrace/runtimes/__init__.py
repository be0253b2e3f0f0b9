"""What runs a plan."""

from headrace.runtimes.base import Runtime
from headrace.runtimes.inline import inline

RUNTIMES = {"inline": inline}

__all__ = ["RUNTIMES", "Runtime", "inline"]
