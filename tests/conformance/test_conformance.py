"""One unchanged algorithm under every policy: it runs, or is refused in a sentence before anything starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import matrix
import numpy as np
import pytest
from matrix import CASES, RUNTIMES, Elsewhere, learned, placed

from headrace.errors import PlanError
from headrace.policies import POLICIES

LONG = os.environ.get("HEADRACE_LONG") == "1"
"""Run every pair, as docs/conformance.md has it; otherwise each policy and each algorithm at least once."""

REFUSED = {
    ("ppo", "dual_device"): "learns what acts apart from what judges",
    ("a3c", "dual_device"): "learns what acts apart from what judges",
    ("impala", "dual_device"): "learns what acts apart from what judges",
    ("mappo", "dual_device"): "learns what acts apart from what judges",
    ("dqn", "dual_device"): "learns what acts apart from what judges",
    ("ppo", "central"): "takes several steps in a pass",
    ("mappo", "central"): "takes several steps in a pass",
    ("mappo", "device_only"): "runs on the host",
}
"""Everything else runs."""

ONE_CORE_EACH = {"multiple_learners", "central", "dual_device"}
"""Policies whose processes have a core each, here."""


def expected(name: str, policy: str, runtime: str) -> str:
    if (name, policy) in REFUSED:
        return REFUSED[name, policy]
    return "nothing to run in processes" if (policy, runtime) == ("device_only", "processes") else "runs"


@pytest.mark.parametrize("name", CASES)
def test_every_pair_is_planned_or_refused(name: str) -> None:
    for policy in POLICIES:
        try:
            found = f"runs with {len(placed(name, policy).fragments)} fragments"
        except PlanError as error:
            found = str(error)
        assert expected(name, policy, "inline") in found, policy


def test_the_matrix_in_the_docs_says_the_same() -> None:
    lines = (Path(__file__).parents[2] / "docs" / "conformance.md").read_text().splitlines()
    rows = {row[1].strip(): row[2:-1] for row in (line.split("|") for line in lines) if len(row) > 5}
    for name in CASES:
        for policy, cell in zip(POLICIES, rows[name], strict=True):
            ran = [runtime for runtime in RUNTIMES if expected(name, policy, runtime) == "runs"]
            assert [mark for mark in "ip" if mark in cell] == [runtime[0] for runtime in ran], (name, policy, cell)


INLINE = [("td3", "environments"), ("sac", "device_only"), ("impala", "single_learner_coarse"), ("dqn", "central")]
ALL_INLINE = [(name, policy) for name in CASES for policy in POLICIES]


@pytest.mark.parametrize(("name", "policy"), ALL_INLINE if LONG else INLINE)
def test_inline(name: str, policy: str) -> None:
    assert expected(name, policy, "inline") in matrix.runs(name, policy, "inline")


BITS = [
    ("ppo", "single"),
    ("ppo", "single_learner_fine"),
    ("ppo", "environments"),
    ("sac", "single_learner_fine"),
    ("mappo", "environments"),
    ("ppo", "multiple_learners"),
    ("sac", "multiple_learners"),
    ("sac", "dual_device"),
    ("a3c", "central"),
    ("td3", "central"),
]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    """Started when it is first asked for."""
    computing = Elsewhere(tmp_path_factory.mktemp("elsewhere"))
    yield computing
    computing.close()


@pytest.mark.parametrize(("name", "policy"), BITS)
def test_processes_give_the_bits_of_inline_with_nothing_stale(
    name: str, policy: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = placed(name, policy, staleness=0)
    if policy in ONE_CORE_EACH:  # both elsewhere, compiled alike
        elsewhere = request.getfixturevalue("elsewhere")
        monkeypatch.setenv("XLA_FLAGS", matrix.compiled_as_for_users())
    number, theirs = learned(name, plan, policy, "processes")
    assert number > 0
    if policy in ONE_CORE_EACH:
        ours = elsewhere.cells(name, policy, number)
    else:
        same, ours = learned(name, plan, policy, "inline", passes=number)
        assert same == number
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["ppo", "sac"] if LONG else ["ppo"])
def test_device_only_on_two_devices_is_two_replicas_on_one(
    name: str, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = 4 if name == "ppo" else 8  # of a replay loop, one program
    apart = elsewhere.cells(name, "device_only", passes)
    settings, env = CASES[name]
    monkeypatch.setitem(CASES, name, (settings, matrix.PURE[env]))
    plan = placed(name, "multiple_learners", replicas=2)
    number, ours = learned(name, plan, "multiple_learners", "inline", passes)
    assert number == passes
    for a, b in zip(ours, apart, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_single_is_single_learner_coarse_with_one_replica() -> None:
    for name in ("ppo", "sac"):
        _, one = learned(name, placed(name, "single"), "single", "inline")
        _, other = learned(name, placed(name, "single_learner_coarse", replicas=1), "single_learner_coarse", "inline")
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["ppo", "a3c", "mappo"] if LONG else ["ppo", "a3c"])
def test_replicas_that_learn_as_one_agree_with_one_learner(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, env = CASES[name]
    whole = {"minibatch_size": settings["num_envs"] * settings["horizon"], "epochs": 1} if name != "a3c" else {}
    monkeypatch.setitem(CASES, name, (settings | whole, env))
    _, many = learned(name, placed(name, "multiple_learners", replicas=2), "multiple_learners", "inline")
    _, one = learned(name, placed(name, "single_learner_coarse", replicas=2), "single_learner_coarse", "inline")
    for a, b in zip(many, one, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_is_refused_leaves_nothing(runtime: str) -> None:
    assert "use multiple_learners" in matrix.runs("ppo", "central", runtime)
