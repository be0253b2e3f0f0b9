"""The supervisor: starts processes, replaces those that die, hang or fail, and ends the run after too many failures."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from headrace.errors import FragmentError
from headrace.runtimes.base import Options
from headrace.runtimes.boot import NICE, start
from headrace.runtimes.worker import TASK, WorkerTask

GRACE = 4.0
"""Seconds that processes have to end by themselves when stopping."""

MINUTE = 60.0
BACK_OFF, LONGEST = 0.1, 2.0
"""Seconds before the first replacement of a killed process, doubled with each further one in a minute, and the most."""

SAID = 1 << 24
"""Bytes of output kept of a process."""


class Process:
    """A worker process, which may be restarted."""

    def __init__(
        self, task: WorkerTask, cores: Sequence[int], threads: int, variables: Mapping[str, str], fds: tuple[int, ...]
    ):
        self.task = task
        self.variables = variables
        self.name = task.name
        self.cores, self.threads, self.fds = cores, threads, fds
        self.said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.failures: deque[float] = deque()
        self.start()

    def forget(self) -> None:
        """Delete what it has printed: an environment that prints at every step would fill the disk."""
        self.said.seek(0)  # the process continues at this position: they share the file
        self.said.truncate()

    def start(self) -> None:
        self.forget()
        self.restart_at: float | None = None
        self.started = time.monotonic()
        self.begun = False
        self.handle = start(
            "headrace.runtimes.worker",
            self.cores,
            self.threads,
            NICE if self.task.fragment == "evaluator" else 0,
            {TASK: self.task.to_json(), **self.variables},
            out=self.said,
            errors=self.said,
            fds=self.fds,
        )

    def last_words(self) -> str:
        """The last line it printed."""
        self.said.seek(0)
        lines = self.said.read().decode(errors="replace").strip().splitlines()
        return lines[-1].rstrip(".") if lines else f"exit code {self.handle.returncode}"

    def kill(self) -> None:
        self.handle.kill()
        self.handle.wait()


class Supervisor:
    """Keeps processes running."""

    def __init__(
        self,
        options: Options,
        silent_for: Callable[[Process], float],
        patience: Callable[[Process], float],
        trouble: Callable[[Process], str],
    ):
        """`silent_for` gives the seconds since a process's last heartbeat, `patience` how many are allowed, and
        `trouble` what it was doing."""
        self.options = options
        self.silent_for = silent_for
        self.patience = patience
        self.trouble = trouble
        self.processes: list[Process] = []
        self.deaths: deque[float] = deque()
        self.looked = self.awake = time.monotonic()
        self.notices: list[str] = []
        """Notices for the user."""

    def look(self) -> None:
        """Replace processes that ended or hang; raise if the run must end."""
        now = time.monotonic()
        if now - self.looked > 1.0:
            # This process itself was stopped (Ctrl-Z, a large checkpoint), the others maybe too: start counting again.
            self.awake = now
        self.looked = now
        for process in list(self.processes):
            if process.restart_at is not None:
                if now >= process.restart_at:
                    process.start()
                continue
            code = process.handle.poll()
            if code is not None:
                self._ended(process, code, now)
                continue
            silent = self.silent_for(process)
            process.begun = process.begun or silent > 0
            if min(silent, now - self.awake) > (longest := self.patience(process)):
                what = self.trouble(process)
                process.kill()
                self._failed(process, f"{what}; it gave no sign of life for {longest:g} s", now)
            elif os.fstat(process.said.fileno()).st_size > SAID:
                process.forget()

    def _ended(self, process: Process, code: int, now: float) -> None:
        if code == 2 and process.task.fragment != "viewer":
            raise FragmentError(f"{process.name}: {process.last_words()}.")
        if code >= 0:
            self._failed(process, process.last_words(), now)
            return
        number = _recent(self.deaths, now)
        if number > self.options.deaths:
            raise FragmentError(
                f"processes were killed {number} times in a minute, the last the {process.name} by signal {-code}; "
                "look for what kills them (out of memory?), or raise --deaths."
            )
        process.restart_at = now + min(LONGEST, BACK_OFF * 2 ** min(number - 1, 8))
        self.notices.append(f"{process.name} was killed by signal {-code}; it is replaced.")

    def _failed(self, process: Process, why: str, now: float) -> None:
        number = _recent(process.failures, now)
        if number > self.options.restarts and process.task.fragment == "viewer":
            self.processes.remove(process)
            process.said.close()
            self.notices.append(f"there will be nothing to see: {why}.")
            return
        if number > self.options.restarts:
            raise FragmentError(f"{process.name} failed {number} time{'s' * (number > 1)} in a minute, at last: {why}.")
        process.restart_at = now
        self.notices.append(f"{process.name} failed: {why}; it is started anew.")

    def stop(self, at_once: bool) -> None:
        """End every process: they were asked to end; kill those that do not."""
        until = time.monotonic() + (0 if at_once else GRACE)
        for process in self.processes:
            # One that is still starting has nothing to save, and would not notice in time.
            left = until - time.monotonic() if process.begun else 0.0
            try:
                process.handle.wait(max(0.0, left))
            except subprocess.TimeoutExpired:
                process.kill()
            process.said.close()
        self.processes = []


def _recent(times: deque[float], now: float) -> int:
    """Record an event now; returns the number of events in the last minute."""
    times.append(now)
    while now - times[0] > MINUTE:
        times.popleft()
    return len(times)
