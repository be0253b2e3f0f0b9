"""Starting a Python process with its cores and threads settled before it imports JAX."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

BOOT = """
import ctypes, importlib, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; what it means, the parent decides
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: never outlive the parent, whatever it died of
    if os.getppid() != int(sys.argv[2]):
        sys.exit(1)  # it died before that
cores = os.environ.pop("HEADRACE_CORES", "")
if cores and hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
nice = int(os.environ.pop("HEADRACE_NICE", "0"))
if nice and hasattr(os, "nice"):
    os.nice(nice)
sys.exit(importlib.import_module(sys.argv[1]).main())
"""
"""What a process runs first: importing JAX takes seconds, in which the parent may die, and starts a thread for every
core that the process may use."""


WORKER = "HEADRACE_WORKER"
"""Set in processes that are part of a run: they start none themselves."""


NICE = 10
"""How much those who watch stand back for those who train."""


def stand_back() -> None:
    """Have this process stand back from here on for those who train."""
    if hasattr(os, "nice"):
        os.nice(NICE)


def end(code: int, words: str) -> NoReturn:
    """End this process at once with these as its last words: what it printed comes before, and nothing after."""
    sys.stdout.flush()
    print(words, file=sys.stderr, flush=True)
    os._exit(code)


def present_cores() -> list[int]:
    """The numbers of the cores that this process may use; a plan counts them from 0."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def start(
    module: str,
    cores: Sequence[int],
    threads: int,
    nice: int = 0,
    variables: dict[str, str] | None = None,
    **popen: Any,
) -> subprocess.Popen[bytes]:
    """Run `module.main()` in a process of its own, on these cores, with so many threads for a computation."""
    flags = os.environ.get("XLA_FLAGS", "") + (" --xla_cpu_multi_thread_eigen=false" if threads == 1 else "")
    budgets = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    environment = os.environ | budgets | (variables or {})
    environment |= {
        "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        "XLA_FLAGS": flags.strip(),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "HEADRACE_CORES": ",".join(str(core) for core in cores),
        "HEADRACE_NICE": str(nice),
        WORKER: "1",
    }
    # -P: it looks for modules where this process does, not in the current folder before all else.
    words = [sys.executable, "-P", "-c", BOOT, module, str(os.getpid())]
    with _uninterrupted():
        return subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, **popen)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back: what is started meanwhile does so too, until it has the time to ignore it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
