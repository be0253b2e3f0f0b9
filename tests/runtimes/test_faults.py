"""What goes wrong in a run costs what it must and no more: real processes, real signals, a disk that is really full."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from faulty_envs import MARKER, STEP, Breaks, Checked
from runs import TINY, Command, orphans
from torture import ALGORITHM, TIMEOUT, Torture, left_behind

import headrace
from headrace.cli import main
from headrace.envs.base import REMEDY
from headrace.errors import FragmentError
from headrace.run import checkpoint
from headrace.runtimes import Options, Processes

ENV = "faulty_envs:Checked"
ALONE = 2
"""Processes of a command without those that do the work: itself, and the one that the others are copies of."""

LONG = os.environ.get("HEADRACE_LONG") == "1"


def test_kills_cost_nothing_that_was_committed() -> None:
    tortured = Torture("desktop", seed=1)
    tortured.get_on(spectators=False)
    tortured.run(kills=6, pause=0.5, among="learner 0")
    tortured.get_on(spectators=False)
    found = tortured.end()
    del tortured
    assert left_behind() == []
    assert found["kills"] >= 6
    assert "learner 0" in found["killed"]
    assert found["rows checked at the end"] > 64
    assert found["rows compared across kills"] > 64
    for what in (
        "counters that went back",
        "rows lost or changed across kills",
        "rows torn",
        "rows that do not follow the one before",
    ):
        assert found[what] == 0, found
    assert found["optimiser steps at the end"] > found["optimiser steps before the first kill"] > 0


@pytest.fixture
def processes():
    """Makes a runtime, and closes it."""
    made: list[Processes] = []

    def make(policy: str, algorithm=ALGORITHM, env=ENV, replicas=None, **options) -> Processes:
        plan = headrace.plan(algorithm, env, policy, replicas=replicas)
        made.append(
            Processes(plan, algorithm, env, 0, Options(evaluate=False, **({"hang_seconds": TIMEOUT} | options)))
        )
        return made[-1]

    yield make
    for runtime in made:
        runtime.close()


def until(runtime: Processes, condition) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end
        runtime.advance()


def process_of(runtime: Processes, name: str):
    return next(process for process in runtime.processes if process.name == name)


def replaced(runtime: Processes, name: str, number: int) -> None:
    """Signal a process, and wait until another one is started in its place."""
    process = process_of(runtime, name)
    pid = process.handle.pid
    os.kill(pid, number)
    until(runtime, lambda: process.handle.pid != pid)


def test_a_stopped_sampler_is_replaced_and_a_killed_learner_goes_on_from_its_state(processes) -> None:
    runtime = processes("dual_device", restarts=1000)
    ledger, fabric = runtime.ledger, runtime.fabric
    first, second = runtime.sections.learning
    until(runtime, lambda: ledger.learned.min() >= 50)

    patient, began = runtime.options, time.monotonic()
    runtime.options = replace(patient, hang_seconds=2.0)
    replaced(runtime, "sampler 0", signal.SIGSTOP)
    assert time.monotonic() - began > 2.0
    runtime.options = patient  # on a busy machine the others may be as silent
    assert any("in sampler 0; it gave no sign of life for 2 s" in said for said in runtime.progress.notices)
    passes = runtime.progress.passes
    until(runtime, lambda: runtime.progress.passes > passes + 5)

    survivor = process_of(runtime, "learner 0").handle.pid
    runtime._pause_training()  # so that whatever changes is the successor's doing
    channels = [fabric.state(first), fabric.weights(first), fabric.state(second)]
    before, published, written = (
        [channel.read() for channel in channels],
        fabric.weights(second).version,
        ledger.passes.copy(),
    )
    replaced(runtime, "learner 1", signal.SIGKILL)
    until(runtime, lambda: fabric.weights(second).version > published)
    for (version, arrays), channel in zip(before, channels, strict=True):
        # The successor stands still too, and has then kept once more what it began with.
        assert channel.version == version or channel is channels[2]
        for held, array in zip(arrays, channel.read()[1], strict=True):
            np.testing.assert_array_equal(held, array)
    np.testing.assert_array_equal(ledger.passes, written)

    def steps() -> dict[str, int]:
        cells = runtime.cells()
        return {name: int(cells[name].updates) for name in ("critic", "actor")}

    kept, learned = steps(), ledger.learned.copy()
    assert min(kept.values()) >= 50
    until(runtime, lambda: (ledger.learned >= learned + 50).all())
    assert all(number >= kept[name] + 50 for name, number in steps().items())
    assert process_of(runtime, "learner 0").handle.pid == survivor


def test_a_learner_that_died_between_two_queues_goes_on(processes) -> None:
    algorithm = headrace.PPO(num_envs=2, horizon=16, minibatch_size=32, hidden=(16,))
    runtime = processes("desktop", algorithm, "CartPole-v1", replicas=2)
    ((first, second),) = runtime.fabric.store("rollout", 0).queues
    first.restart(3)
    second.restart(2)
    second.commit(version=0)  # learned from, and not given back
    runtime.ledger.learned[0] = 3
    runtime.ledger.begun[:] = runtime.ledger.passes[:] = 3
    until(runtime, lambda: runtime.progress.learned >= 6)
    runtime._pause_training()
    assert first.consumed == second.consumed == runtime.ledger.learned[0]


@pytest.mark.parametrize(
    ("policy", "killed"),
    [("multiple_learners", "loop 1"), ("single_learner_fine", "environment 0"), ("central", "applier 0")][
        : 3 if LONG else 2
    ],
)
def test_whoever_dies_in_a_replicated_loop_is_replaced(processes, policy: str, killed: str) -> None:
    algorithm = headrace.A3C(num_envs=4, horizon=8, hidden=(16,))
    runtime = processes(policy, algorithm, "CartPole-v1", replicas=1 if "fine" in policy else 2)
    until(runtime, lambda: runtime.progress.learned >= 10)
    before = runtime.updates()
    replaced(runtime, killed, signal.SIGKILL)
    learned = runtime.progress.learned
    until(runtime, lambda: runtime.progress.learned >= learned + 20)
    cells = runtime.cells()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(cells) if isinstance(leaf, jax.Array))
    assert int(cells["actor"].updates) > before
    runtime.state()  # those that learn as one still do


def test_too_many_kills_end_the_run(processes) -> None:
    runtime = processes("desktop", deaths=1)
    runtime.advance()
    for process in runtime.processes:
        process.kill()
    with pytest.raises(FragmentError, match=r"killed 2 times in a minute, the last the \w+ 0 by signal 9; look"):
        until(runtime, lambda: False)


def test_a_fragment_that_fails_by_itself_ends_the_run_the_third_time(processes, monkeypatch) -> None:
    monkeypatch.setattr("headrace.runtimes.supervisor.MINUTE", TIMEOUT)  # a busy machine may start fewer in a minute
    runtime = processes("desktop", Breaks(num_envs=2), "CartPole-v1")
    with pytest.raises(FragmentError, match=r"^learner 0 failed 3 times in a minute, at last: .*the learner broke"):
        until(runtime, lambda: False)
    assert sum("learner 0 failed" in said and "started anew" in said for said in runtime.progress.notices) == 2


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
