"""A process that has imported everything and is forked to start the processes of a run.

Importing JAX takes a core two seconds, and every process of a run, every successor of one that died and every probe of
the tuner would spend them again. A copy starts in a hundredth of that. The template has one thread and no device: it
is copied before anything is computed. A copy is a child of the process that asked for it, as if that had started it
itself: whoever copies ends at once, and orphans go to the nearest ancestor that takes them in (a subreaper). On Linux.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from headrace.runtimes.first import DEATH_SIGNAL, set_cores_and_priority

STAYS = 60.0
"""Idle seconds after which it ends."""

HIGH = 900
"""The file descriptors that the copies are given keep their numbers; the template's own are from here on."""

SUBREAPER = 36
"""Linux's PR_SET_CHILD_SUBREAPER."""

READ_AT_IMPORT = ("JAX_", "XLA_PYTHON", "PYTHON", "TF_")
"""Prefixes of environment variables that JAX or Python read only once."""

LENGTH = struct.Struct("q")
Plain = Callable[[], "subprocess.Popen[bytes]"]


class Template:
    """The template process, for the process that requests copies."""

    def __init__(self, start: Callable[..., subprocess.Popen[bytes]]):
        """`start` runs `serve` in a process that inherits the given file descriptors."""
        self.settled = _settled()
        _prctl(SUBREAPER, 1)
        self.line, other = socket.socketpair()
        with other:
            self.process = start(variables={"HEADRACE_LINE": str(other.fileno())}, pass_fds=(other.fileno(),))
        self.asked: list[Copy] = []
        atexit.register(self.leave)

    @property
    def fits(self) -> bool:
        """Whether a copy would be the same as a process started now."""
        return self.process.poll() is None and self.settled == _settled()

    def copy(self, wanted: dict[str, Any], fds: dict[int, int], otherwise: Plain) -> Copy:
        """A copy, which the template will make once it has imported everything.

        `fds` are the file descriptors it inherits, by their number in the copy; `otherwise` starts a process without
        the template, should that be gone.
        """
        made = Copy(self, otherwise)
        text = json.dumps(wanted | {"fds": list(fds)}).encode()
        try:
            socket.send_fds(self.line, [LENGTH.pack(len(text))], list(fds.values()))
            self.line.sendall(text)
        except OSError:
            made.plain = otherwise()
        else:
            self.asked.append(made)
        return made

    def hear(self, seconds: float | None) -> None:
        """Receive the pid of the oldest copy requested, if it arrives in time."""
        if not select.select([self.line], [], [], seconds)[0]:
            return
        try:
            said = self.line.recv(LENGTH.size, socket.MSG_WAITALL)
        except OSError:
            said = b""
        if said:
            self.asked.pop(0).known_as(*LENGTH.unpack(said))
            return
        for copy in self.asked:  # it is gone
            if copy.returncode is None:
                copy.plain = copy.otherwise()
        self.asked.clear()

    def close(self) -> None:
        """End it once all requested copies are made; the copies go on."""
        while self.asked:
            self.hear(None)
        self._end()

    def leave(self) -> None:
        """End it at once; copies not yet made are lost."""
        for copy in list(self.asked):
            copy.kill()
        self.process.kill()
        while self.asked:  # one of them may be half made
            self.hear(None)
        self._end()

    def _end(self) -> None:
        atexit.unregister(self.leave)
        self.process.kill()
        self.process.wait()
        self.line.close()


class Copy:
    """A process of the run, with the interface of `subprocess.Popen`."""

    def __init__(self, template: Template, otherwise: Plain):
        self.template = template
        self.otherwise = otherwise
        self.plain: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._code: int | None = None

    def known_as(self, pid: int) -> None:
        self._pid = pid
        if self._code is not None:  # killed before it was made
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    @property
    def pid(self) -> int:
        while self._pid is None and self.plain is None:
            self.template.hear(None)
        return self._pid if self.plain is None else self.plain.pid  # type: ignore[return-value]

    @property
    def returncode(self) -> int | None:
        return self._code if self.plain is None else self.plain.returncode

    def poll(self) -> int | None:
        """Its exit code once it has ended, negative if by a signal."""
        if self._pid is None and self.plain is None and self._code is None:
            self.template.hear(0)
        if self.plain is not None:
            return self.plain.poll()
        if self._pid is not None and self._code is None:
            ended, status = os.waitpid(self._pid, os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        end, pause = None if timeout is None else time.monotonic() + timeout, 0.0005
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired(f"process {self._pid}", timeout or 0.0)
            time.sleep(pause)
            pause = min(0.02, pause * 2)
        return code

    def kill(self) -> None:
        if self.poll() is not None:
            return
        if self.plain is not None:
            self.plain.kill()
        elif self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
        else:
            self._code = -signal.SIGKILL


def serve() -> int:
    """Run as the template; returns only in copies, with the exit code of their main function."""
    import headrace.runtimes.worker  # noqa: F401 - so that copies have it

    line = socket.socket(fileno=_raised(int(os.environ.pop("HEADRACE_LINE"))))
    parent = os.getppid()
    if len(os.listdir("/proc/self/task")) > 1 or _open() - {0, 1, 2, line.fileno()}:
        return 0  # a copy would lack the threads, or share the file descriptors
    while select.select([line], [], [], STAYS)[0]:
        head, fds, _, _ = socket.recv_fds(line, LENGTH.size, 64)
        if not head:
            return 0
        wanted = json.loads(_read(line, LENGTH.unpack(head)[0]))
        between = os.fork()
        if between:
            for fd in fds:
                os.close(fd)
            os.waitpid(between, 0)
            continue
        between = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.0002)
        _prctl(DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # it died before that
        if wanted["session"]:
            os.setsid()
        line.sendall(LENGTH.pack(os.getpid()))
        line.close()
        return _become(wanted, fds)
    return 0


def _become(wanted: dict[str, Any], fds: Sequence[int]) -> int:
    """Run as a process started with these settings."""
    import importlib

    import jax
    import numpy as np

    for number, fd in zip(wanted["fds"], [_raised(fd) for fd in fds], strict=True):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.path[:] = wanted["path"]
    importlib.invalidate_caches()
    if "JAX_PLATFORMS" in wanted["environment"]:  # JAX read it when it was imported
        jax.config.update("jax_platforms", wanted["environment"]["JAX_PLATFORMS"])
    np.random.seed()  # or all copies would draw the same numbers in environments that use it
    set_cores_and_priority()
    code: int = importlib.import_module(wanted["module"]).main()
    return code


def _settled() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(READ_AT_IMPORT)}


def _raised(fd: int) -> int:
    """The same file under a number that no copy uses."""
    import fcntl

    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH)
    os.close(fd)
    return high


def _open() -> set[int]:
    there = set(map(int, os.listdir("/proc/self/fd")))
    return {fd for fd in there if os.path.exists(f"/proc/self/fd/{fd}")}


def _read(line: socket.socket, length: int) -> bytes:
    text = b""
    while len(text) < length and (more := line.recv(length - len(text))):
        text += more
    return text


def _prctl(what: int, value: int) -> None:
    ctypes.CDLL(None).prctl(what, value)
