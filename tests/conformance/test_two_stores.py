"""One loop, two stores: each domain learns at its own rate, under any policy."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import matrix
import numpy as np
import pytest

import headrace
from headrace.core.algorithm import Algorithm
from headrace.graph import Plan

ROOT = Path(__file__).parents[2]
ENV, PURE = "CartPole-v1", "gymnax:CartPole-v1"
POLICIES = ("single", "desktop", "single_learner_coarse", "multiple_learners")
SETTINGS = {
    "num_envs": 4,
    "horizon": 8,
    "hidden": (16,),
    "warmup": 64,
    "batch_size": 32,
    "samples_per_insert": 6.0,  # 6 passes for each trajectory, in programs of 8: the two domains keep changing step
    "replay_capacity": 500,
}
STEPS = 4_864
"""Enough for 900 passes of the one domain and 152 of the other: one program is less than 1 % of that."""


def two_trainers(**settings: Any) -> Algorithm[Any]:
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    return importlib.import_module("examples.two_trainers").TwoTrainers(**SETTINGS | settings)


def placed(policy: str) -> Plan:
    return headrace.plan(two_trainers(), ENV, policy, replicas=None if policy == "single" else 2, staleness=0)


@cache
def trained(policy: str, runtime: str) -> tuple[dict[str, Any], list[np.ndarray], int]:
    """The counters after `STEPS`, the cells, and how many processes there were."""
    running = matrix.make(placed(policy), two_trainers(), ENV, runtime, STEPS)
    try:
        matrix.go(running, 0, STEPS if runtime == "processes" else None)
        while running.progress.env_steps < STEPS:
            running.advance()
        return running.progress.counters(), matrix.arrays(running), len(running.pids())
    finally:
        running.close()


def inline_elsewhere(policy: str, folder: Path) -> list[np.ndarray]:
    """As `matrix.Elsewhere`: on two devices, computed as in processes that have one core each."""
    out = folder / "cells.npz"
    flags = os.environ.get("XLA_FLAGS", "")
    flags += " --xla_cpu_multi_thread_eigen=false --xla_force_host_platform_device_count=2"
    path = os.pathsep.join([str(ROOT / "src"), str(Path(__file__).parent)])
    code = f"import numpy, test_two_stores as t; numpy.savez({str(out)!r}, *t.trained({policy!r}, 'inline')[1])"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"XLA_FLAGS": flags, "PYTHONPATH": path})
    with np.load(out) as held:
        return [held[f"arr_{i}"] for i in range(len(held.files))]


def compiled_as_for_users(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes with a core each are compared with what is computed elsewhere, as tests/conformance does it."""
    if policy == "multiple_learners":
        monkeypatch.setenv("XLA_FLAGS", matrix.compiled_as_for_users())


def test_the_loop_has_two_domains_that_read_each_other() -> None:
    graph = headrace.trace(two_trainers(), ENV)
    assert [store.fill.id for store in graph.stores.values()] == ["replay.insert", "rollout.put"]
    assert [domain.rate * domain.frames for domain in graph.domains] == [6, 1]
    q, policy = graph.only("learn_q"), graph.only("learn_policy")
    assert {bound.cell for bound in q.reads} == {bound.cell for bound in policy.writes} == {"actor"}
    assert {bound.cell for bound in policy.reads} < {bound.cell for bound in q.writes}


@pytest.mark.parametrize("runtime", matrix.RUNTIMES)
@pytest.mark.parametrize("policy", POLICIES)
def test_each_domain_is_at_its_own_rate(policy: str, runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if runtime == "processes":
        compiled_as_for_users(policy, monkeypatch)
    counters, _, processes = trained(policy, runtime)
    plan = placed(policy)
    assert processes == (1 if runtime == "inline" else sum(fragment.replicas for fragment in plan.fragments))
    replayed, taken = counters["learned_in"]
    assert counters["env_steps"] == STEPS
    assert replayed * 32 / (STEPS - 64) == pytest.approx(6, rel=0.01)
    assert taken * plan.graph.collected / STEPS == pytest.approx(1, rel=0.01)
    assert counters["learned"] == replayed + taken
    assert counters["update_frames"] == replayed * 32 + taken * plan.graph.collected


@pytest.mark.parametrize("policy", POLICIES)
def test_processes_give_the_bits_of_inline(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_as_for_users(policy, monkeypatch)
    counters, theirs, _ = trained(policy, "processes")
    ours = inline_elsewhere(policy, tmp_path) if policy == "multiple_learners" else trained(policy, "inline")[1]
    assert counters == trained(policy, "inline")[0]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
