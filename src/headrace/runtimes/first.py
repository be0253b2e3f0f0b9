"""What a process of a run does first, as a script, before it imports JAX: `python first.py MODULE:MAIN PARENT`.

Importing JAX takes seconds, in which the parent may die, and starts a thread for every core that the process may use.
So this file imports nothing of headrace.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys

DEATH_SIGNAL = 1
"""Linux's PR_SET_PDEATHSIG."""


def set_cores_and_priority() -> None:
    """Take the cores and the priority that the environment asks for."""
    cores = os.environ.pop("HEADRACE_CORES", "")
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    nice = int(os.environ.pop("HEADRACE_NICE", "0"))
    if nice and hasattr(os, "nice"):
        os.nice(nice)


def main(what: str, parent: str) -> int:
    """Run a function of a module, as a child that never outlives its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; what it means, the parent decides
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)  # whatever it dies of
        if os.getppid() != int(parent):
            return 1  # it died before that
    set_cores_and_priority()
    module, _, function = what.partition(":")
    code: int = getattr(importlib.import_module(module), function)()
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
