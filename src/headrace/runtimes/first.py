"""The entry script of a process of a run, before it imports JAX: `python first.py MODULE:MAIN PARENT`.

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
    """Set the CPU affinity and priority given in environment variables."""
    cores = os.environ.pop("HEADRACE_CORES", "")
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    nice = int(os.environ.pop("HEADRACE_NICE", "0"))
    if nice and hasattr(os, "nice"):
        os.nice(nice)


def main(what: str, parent: str) -> int:
    """Run a function of a module, as a child that never outlives its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process, but only the parent handles it
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)  # however the parent ends
        if os.getppid() != int(parent):
            return 1  # the parent ended before that
    set_cores_and_priority()
    module, _, function = what.partition(":")
    code: int = getattr(importlib.import_module(module), function)()
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
