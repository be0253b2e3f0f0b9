"""The processes runtime: the same bits as inline when nothing may be stale. What goes wrong is in test_faults.py."""

from __future__ import annotations

import time
from pathlib import Path

import jax
import numpy as np
import pytest

import headrace
from headrace.errors import PlanError
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
    end = time.monotonic() + 600
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


def test_one_program_needs_no_processes(tmp_path: Path) -> None:
    options = {"policy": "single", "runtime": "processes", "steps": 10, "out": tmp_path / "run"}
    with pytest.raises(PlanError, match="nothing to run in processes"):
        headrace.train("ppo", "gymnax:CartPole-v1", **options)
    assert not (tmp_path / "run").exists()


def test_what_was_collected_and_not_learned_from_is_not_counted_when_a_run_goes_on() -> None:
    runtime = Processes(plan("ppo", 1, staleness=0), SMALL["ppo"], "CartPole-v1", seed=3)
    try:
        arrays, _ = runtime.state()
        runtime.restore(arrays, {"env_steps": 192, "passes": 3, "learned": 2, "update_frames": 512})
        assert runtime.progress.counters() == {"env_steps": 128, "passes": 2, "learned": 2, "update_frames": 512}
    finally:
        runtime.close()


def test_a_run_goes_on_in_processes(tmp_path: Path) -> None:
    options = {"policy": "single_learner_coarse", "runtime": "processes"}
    first = headrace.train(SMALL["dqn"], "CartPole-v1", steps=400, out=tmp_path / "run", progress=False, **options)
    before = first.metrics[-1]
    second = headrace.train(resume=first.path, steps=2_000, progress=False)
    after = second.metrics[-1]
    assert after["time/env_steps"] >= 2_000 > before["time/env_steps"]
    assert after["time/updates"] > before["time/updates"] > 0
