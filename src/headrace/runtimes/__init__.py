"""What runs a plan."""

from headrace.runtimes.base import Progress, Runtime
from headrace.runtimes.inline import inline

RUNTIMES = {"inline": inline}

__all__ = ["RUNTIMES", "Progress", "Runtime", "inline"]
