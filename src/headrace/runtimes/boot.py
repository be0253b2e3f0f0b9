"""Starts Python processes with their cores and threads set before they import JAX."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import IO, Any, NoReturn

from headrace.runtimes import first
from headrace.runtimes.template import Copy, Template

NOTHING: Mapping[str, str] = MappingProxyType({})

WORKER = "HEADRACE_WORKER"
"""Environment variable set in processes of a run, which must not start runs themselves."""


NICE = 10
"""Nice value of the evaluator and the viewer."""


def lower_priority() -> None:
    """Lower the priority of this process in favour of training."""
    if hasattr(os, "nice"):
        os.nice(NICE)


def end(code: int, words: str) -> NoReturn:
    """End this process at once with `words` as the last line of its output."""
    sys.stdout.flush()
    print(words, file=sys.stderr, flush=True)
    os._exit(code)


def present_cores() -> list[int]:
    """The numbers of the cores that this process may use; a plan counts them from 0."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        number: int = found.getsockname()[1]
        return number


def start(
    module: str,
    cores: Sequence[int],
    threads: int,
    nice: int = 0,
    variables: Mapping[str, str] = NOTHING,
    *,
    out: IO[bytes],
    errors: IO[bytes],
    fds: Sequence[int] = (),
    session: bool = False,
) -> subprocess.Popen[bytes] | Copy:
    """Run `module.main()` in a process of its own, on these cores, with `threads` threads for computations. It inherits
    `fds`, and has a session of its own if asked for."""
    placed = {"HEADRACE_CORES": ",".join(str(core) for core in cores), "HEADRACE_NICE": str(nice)}
    environment = _environment(threads) | placed | dict(variables)

    def plain() -> subprocess.Popen[bytes]:
        return _popen(f"{module}:main", environment, stdout=out, stderr=errors, pass_fds=fds, start_new_session=session)

    if sys.platform != "linux":
        return plain()
    wanted = {"module": module, "environment": environment, "path": _path(), "folder": os.getcwd(), "session": session}
    given = {1: out.fileno(), 2: errors.fileno()} | {fd: fd for fd in fds}
    prepare_template()
    return _templates[0].copy(wanted, given, plain)


_templates: list[Template] = []
"""The template that processes are copied from, once there is one."""


def prepare_template() -> None:
    """Start a template in the background, unless there is one for the current environment."""
    if sys.platform == "linux" and (not _templates or not _templates[0].fits):
        while _templates:
            _templates.pop().close()
        _templates.append(Template(partial(_popen, "headrace.runtimes.template:serve", _environment(1))))


def _environment(threads: int) -> dict[str, str]:
    flags = os.environ.get("XLA_FLAGS", "") + (" --xla_cpu_multi_thread_eigen=false" if threads == 1 else "")
    budgets = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    more = {"PYTHONPATH": os.pathsep.join(_path()), "XLA_FLAGS": flags.strip(), WORKER: "1"}
    return os.environ | budgets | more


def _path() -> list[str]:
    return [path or os.getcwd() for path in sys.path]


def _popen(
    what: str, environment: Mapping[str, str], variables: Mapping[str, str] = NOTHING, **popen: Any
) -> subprocess.Popen[bytes]:
    # -P: modules are found as in this process, not in the current folder first.
    words = [sys.executable, "-P", first.__file__, what, str(os.getpid())]
    # Ctrl-C is blocked: the process inherits that, until it ignores it itself.
    masks = hasattr(signal, "pthread_sigmask")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masks else ()
    try:
        return subprocess.Popen(words, env={**environment, **variables}, stdin=subprocess.DEVNULL, **popen)
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
