"""Processes are copies of one that has imported everything: as if they had been started, and in no time."""

from __future__ import annotations

import json
import os
import signal
import sys
import weakref
from pathlib import Path

import pytest

from headrace.runtimes import boot

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
TIMEOUT = 600.0


class Started:
    """A copy that does what `copied.main` does."""

    def __init__(self, variable: str = "", fds: tuple[int, ...] = (), session: bool = False, nice: int = 0):
        self.out = open(os.memfd_create("said"), "wb")  # noqa: SIM115 - closed with what it says
        variables = {"COPIED": variable, "JAX_PLATFORMS": "cuda,cpu"} | ({"PASSED": str(fds[0])} if fds else {})
        core = boot.present_cores()[:1]
        self.handle = boot.start(
            "copied", core, 1, nice, variables, out=self.out, errors=self.out, fds=fds, session=session
        )
        weakref.finalize(self, self.out.close)

    def said(self) -> dict:
        self.handle.wait(TIMEOUT)
        return json.loads(os.pread(self.out.fileno(), 1 << 16, 0))


def template() -> boot.Template:
    boot.prepare_template()
    return boot._templates[0]


def test_a_copy_is_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template()  # made before the folder was changed
    monkeypatch.chdir(tmp_path)
    (tmp_path / "passed").write_text("a message")
    fd = os.open(tmp_path / "passed", os.O_RDONLY)
    first, second = Started("plain", (fd,), session=True, nice=3), Started()
    os.close(fd)
    said, other = first.said(), second.said()
    assert first.handle.returncode == 3
    assert said["parent"] == os.getpid()
    assert said["folder"] == str(tmp_path)
    assert said["variable"] == "plain"
    assert said["cores"] == boot.present_cores()[:1]
    assert said["nice"] == os.nice(0) + 3
    assert (said["session"], other["session"]) == (True, False)
    assert (said["passed"], other["passed"]) == ("a message", None)
    assert said["path"] == boot._path()[0]
    assert said["drawn"] != other["drawn"]
    assert said["platforms"] == "cuda,cpu"  # though JAX was imported before that was known


def test_a_killed_copy_says_by_what() -> None:
    waiting = Started("waits")
    os.kill(waiting.handle.pid, signal.SIGTERM)
    assert waiting.handle.wait(TIMEOUT) == -signal.SIGTERM
    other = Started("waits")
    assert other.handle.poll() is None
    other.handle.kill()
    assert other.handle.wait(TIMEOUT) == -signal.SIGKILL


def test_what_is_killed_before_it_was_made_never_runs() -> None:
    template().close()
    boot._templates.clear()
    early, late = Started("waits"), Started()  # the template is only importing
    early.handle.kill()
    assert early.handle.poll() == -signal.SIGKILL
    assert late.said()["variable"] == ""
    assert early.handle.pid > 0
    with pytest.raises(ProcessLookupError):
        os.kill(early.handle.pid, 0)


def test_without_the_template_all_goes_on() -> None:
    waiting = Started("waits")
    assert waiting.handle.pid > 0
    spare = template()
    os.kill(spare.process.pid, signal.SIGKILL)
    unmade = Started()  # asked of one that is gone, or is replaced
    assert unmade.said()["parent"] == os.getpid()
    assert waiting.handle.poll() is None
    waiting.handle.kill()
    assert waiting.handle.wait(TIMEOUT) == -signal.SIGKILL


def test_at_the_end_nothing_is_left_half_made() -> None:
    template().close()
    boot._templates.clear()
    never = Started("waits")
    boot._templates.pop().leave()
    assert never.handle.wait(TIMEOUT) == -signal.SIGKILL
    assert os.pread(never.out.fileno(), 9, 0) == b""


def test_other_circumstances_need_another_template(monkeypatch: pytest.MonkeyPatch) -> None:
    before = template()
    assert template() is before
    monkeypatch.setenv("JAX_DEBUG_NANS", "0")  # which JAX reads as it is imported
    assert template() is not before
    assert before.process.poll() is not None
