"""The processes runtime: the same bits as inline when nothing may be stale, and a run that survives its processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import headrace
from headrace.errors import UsageError
from headrace.graph import Fragment, Plan, cut, fuse
from headrace.runtimes import Processes, inline

SMALL = {
    "ppo": headrace.PPO(num_envs=4, horizon=16, minibatch_size=32, hidden=(16,)),
    "dqn": headrace.DQN(num_envs=4, warmup=64, batch_size=32, hidden=(16,), replay_capacity=500),
}


def plan(name: str, replicas: int, staleness: int) -> Plan:
    graph = headrace.trace(SMALL[name], "CartPole-v1")
    fragments = (
        Fragment("collect", tuple(node.id for node in graph.where(domain="collect")), replicas=replicas),
        Fragment("learn", tuple(node.id for node in graph.where(domain="learn"))),
    )
    return fuse(cut(graph, "mine", fragments, staleness))


def until(runtime, learned: int) -> None:
    end = time.monotonic() + 120
    while runtime.progress.learned < learned:
        assert time.monotonic() < end
        runtime.advance()


@pytest.mark.parametrize(("name", "replicas"), [("ppo", 2), ("dqn", 1), ("dqn", 2)])
def test_with_nothing_stale_the_bits_are_those_of_the_inline_runtime(name: str, replicas: int) -> None:
    whole = plan(name, replicas, staleness=0)
    apart = Processes(whole, SMALL[name], "CartPole-v1", seed=3)
    try:
        until(apart, 24)
        theirs = apart.cells()
        learned = apart.progress.learned
    finally:
        apart.close()
    together = inline(whole, SMALL[name], "CartPole-v1", seed=3)
    until(together, learned)
    assert together.progress.learned == learned
    ours = together.cells()
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        if isinstance(a, jax.Array):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_killed_process_is_replaced_and_the_run_goes_on() -> None:
    runtime = Processes(plan("dqn", 2, staleness=1), SMALL["dqn"], "CartPole-v1", seed=3)
    try:
        until(runtime, 16)
        for process in runtime.processes:
            before = process.handle.pid
            os.kill(before, signal.SIGKILL)
            while process.handle.pid == before:
                runtime.advance()
            until(runtime, runtime.progress.learned + 16)
    finally:
        runtime.close()
    assert all(process.handle.returncode is not None for process in runtime.processes)


def test_an_interrupt_saves_and_leaves_nothing_behind(tmp_path: Path) -> None:
    words = ["train", "dqn", "CartPole-v1", "--policy", "single_learner_coarse", "--runtime", "processes", "--quiet"]
    words += ["--out", str(tmp_path / "run"), "--set", "num_envs=4", "warmup=64", "batch_size=32", "hidden=16"]
    started = subprocess.Popen([sys.executable, "-m", "headrace", *words], start_new_session=True)
    end = time.monotonic() + 90
    while "time/updates" not in _read(tmp_path / "run" / "metrics.jsonl") and time.monotonic() < end:
        time.sleep(0.2)
    time.sleep(2)
    os.killpg(started.pid, signal.SIGINT)
    assert started.wait(20) == 130
    assert list((tmp_path / "run" / "checkpoints").glob("[0-9]*"))
    left = subprocess.run(["pgrep", "-g", str(started.pid)], capture_output=True, text=True).stdout
    assert left == ""


def test_the_parents_death_ends_every_process(tmp_path: Path) -> None:
    words = ["train", "dqn", "CartPole-v1", "--policy", "single_learner_coarse", "--runtime", "processes", "--quiet"]
    words += ["--out", str(tmp_path / "run"), "--set", "num_envs=4", "warmup=64", "batch_size=32", "hidden=16"]
    started = subprocess.Popen([sys.executable, "-m", "headrace", *words], start_new_session=True)
    end = time.monotonic() + 90
    while "time/updates" not in _read(tmp_path / "run" / "metrics.jsonl") and time.monotonic() < end:
        time.sleep(0.2)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    end = time.monotonic() + 5
    while (left := subprocess.run(["pgrep", "-g", str(started.pid)], capture_output=True, text=True).stdout) != "":
        assert time.monotonic() < end, left
        time.sleep(0.1)


def test_one_fragment_needs_no_processes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to run in processes"):
        headrace.train("ppo", "CartPole-v1", policy="single", runtime="processes", steps=10, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_goes_on_in_processes(tmp_path: Path) -> None:
    options = {"policy": "single_learner_coarse", "runtime": "processes"}
    first = headrace.train(SMALL["dqn"], "CartPole-v1", steps=400, out=tmp_path / "run", progress=False, **options)
    before = first.metrics[-1]
    second = headrace.train(resume=first.path, steps=2_000, progress=False)
    after = second.metrics[-1]
    assert after["time/env_steps"] >= 2_000 > before["time/env_steps"]
    assert after["time/updates"] > before["time/updates"] > 0


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
