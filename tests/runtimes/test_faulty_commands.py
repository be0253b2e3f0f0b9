"""What goes wrong in a command costs no more than it must: environments, interrupts, a disk that is really full."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from faulty_envs import MARKER, STEP, Checked
from runs import TIMEOUT, TINY, Command, orphans

import headrace
from headrace.cli import main
from headrace.envs.base import REMEDY
from headrace.run import checkpoint

ENV = "faulty_envs:Checked"
ALONE = 2
"""Processes of a command without those that do the work: itself, and the one that the others are copies of."""

FAULTS = {
    "raises": f"(environment 0) raised RuntimeError: the wheel came off at step {STEP}",
    "not_finite": f"(environment 0) returned a reward that is not finite at step {STEP}{REMEDY}",
    "misshapen": f"(environment 0) returned an observation of shape (3,) where its space says (2,) at step {STEP}",
    "hangs": f"does not come back from step {STEP} in sampler 0; it gave no sign of life for 8 s",
    "never_starts": "does not come back from its first reset in sampler 0; it gave no sign of life for 12 s",
}
PATIENCE = {"hangs": "8", "never_starts": "2"}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_bad_environment_is_named_and_ends_the_run(fault: str, tmp_path: Path, capfd) -> None:
    patience = PATIENCE.get(fault, str(TIMEOUT))
    words = ["--no-eval", "--restarts", "0", "--hang-seconds", patience, "--out", str(tmp_path / "run"), *TINY]
    assert main(["train", "sac", f"faulty_envs:{fault}", "--quiet", *words]) == 2
    said = capfd.readouterr()
    why = f"'faulty_envs:{fault}' {FAULTS[fault]}"
    assert (said.out, said.err) == ("", f"headrace: sampler 0 failed 1 time in a minute, at last: {why}.\n")
    assert not (tmp_path / "run").exists()


def test_an_environment_that_fails_once_costs_one_restart(tmp_path: Path, capfd, monkeypatch) -> None:
    monkeypatch.setenv(MARKER, str(tmp_path / "failed"))
    words = ["--no-eval", "--steps", "100", "--out", str(tmp_path / "run"), *TINY]
    assert main(["train", "sac", "faulty_envs:fails_once", *words]) == 0
    said = capfd.readouterr().err
    assert said.count("raised RuntimeError: the wheel came off once at step 5; it is started anew") == 1
    assert checkpoint.newest(tmp_path / "run").name == f"{100:012d}"


def test_a_second_interrupt_ends_at_once(tmp_path: Path) -> None:
    with Command(tmp_path / "run", "sac", ENV, "--no-eval") as run:
        run.until(run.learns)
        os.kill(int(run.processes()[-1]), signal.SIGSTOP)  # so that one cannot end by itself
        run.signal(signal.SIGINT)
        run.until(lambda: len(run.processes()) == ALONE + 1)  # obeyed by the others
        assert run.handle.poll() is None
        run.signal(signal.SIGINT)
        run.until(lambda: run.handle.poll() is not None)
        assert run.handle.returncode == 130
        assert run.processes() == []
        assert "headrace: stopped at once; there was no checkpoint yet (--checkpoint-every), " in run.said
        assert run.said.endswith(f"{run.path} has its metrics alone.\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_while_all_start_is_obeyed(number: int, tmp_path: Path) -> None:
    with Command(tmp_path / "run", "sac", ENV, "--quiet") as run:
        run.until(lambda: len(run.processes()) > ALONE)
        run.signal(signal.SIGINT) if number == signal.SIGINT else run.handle.send_signal(number)
        run.until(lambda: run.handle.poll() is not None)
        assert run.handle.returncode == 130
        assert run.processes() == []
        assert run.said == ""
    assert checkpoint.newest(tmp_path / "run").name == f"{0:012d}"


def test_the_parents_death_ends_every_process(tmp_path: Path) -> None:
    with Command(tmp_path / "run", "sac", ENV) as run:
        run.until(lambda: len(run.processes()) > ALONE)
        run.handle.kill()
        run.handle.wait()
        run.until(lambda: not run.processes())
    assert orphans() == []


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 2 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", path], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", path], check=True)


def test_a_full_disk_costs_checkpoints_and_an_interrupt_saves(small_disk: Path) -> None:
    path, ballast = small_disk / "run", small_disk / "ballast"
    with Command(path, "sac", ENV, "--checkpoint-every", "1") as run:
        run.until(lambda: run.learns() and list((path / "checkpoints").glob("[0-9]*")))
        subprocess.run(["dd", "if=/dev/zero", f"of={ballast}", "bs=4k"], capture_output=True)
        good = checkpoint.newest(path)
        warning = f"headrace: could not write {path}/checkpoints/"
        run.until(lambda: run.said.count(warning) >= 3)
        assert run.said.count("(No space left on device (os error 28)); training goes on.") >= 3
        assert run.handle.poll() is None
        assert checkpoint.newest(path) == good
        assert headrace.Run.load(path, env=Checked).cells["critic"].updates == checkpoint.read_values(good)["learned"]
        ballast.unlink()
        run.until(lambda: checkpoint.newest(path) != good)
        run.signal(signal.SIGINT)
        run.until(lambda: run.handle.poll() is not None)
        assert run.handle.returncode == 130
        assert run.processes() == []
        assert orphans() == []
    # Lines that did not fit are left out, none is torn, and steps went on all the while.
    last, saved = headrace.Run.load(path, env=Checked), checkpoint.read_values(checkpoint.newest(path))
    assert last.metrics[-1]["time/env_steps"] == saved["env_steps"] > int(good.name)
    assert last.cells["critic"].updates == saved["learned"] > 0
