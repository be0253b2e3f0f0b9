"""Refining on the running system: what it measured stands beside what was expected, and what changes is said."""

from __future__ import annotations

import re
import time

import pytest

import headrace
from headrace.runtimes import Options, Processes
from headrace.tune import refine
from headrace.tune.choice import Choice

CHOICE = Choice(8, 1, 16, 256, {"collect": (1,), "learn": (0,)}, expected=55_000.0)


def test_the_number_that_was_there_is_named_where_it_changes() -> None:
    speeds = {8: 12_300.0, 16: 11_000.0, 32: 10_500.0}
    assert refine.refined(CHOICE, speeds, usual=16, best=8) == (
        "the running system does 12.3k frames/s, 55.0k expected; 8 updates fused instead of 16 "
        "(11.0k with 16, 10.5k with 32)."
    )
    assert refine.refined(CHOICE, speeds, usual=16, best=16) == (
        "the running system does 11.0k frames/s, 55.0k expected; 16 updates fused as before "
        "(12.3k with 8, 10.5k with 32)."
    )
    steps = Choice(8, 1, 1, None, {}, "steps/s", expected=None)
    assert refine.refined(steps, {1: 950.0}, usual=1, best=1) == "the running system does 950 steps/s."


def test_a_choice_says_what_was_measured() -> None:
    said = str(Choice(8, 1, 16, 256, expected=55_000.0, refined=True, measured=12_345.0))
    assert said == (
        "1 sampler, 8 environments, 16 updates fused, batch 256: 55.0k frames/s expected, 12.3k frames/s measured"
    )
    kept = Choice(8, 1, 16, 256, measured=12_345.0)
    assert Choice.from_json(kept.to_json()) == kept


def test_a_run_is_measured_and_one_of_the_numbers_tried_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AFTER", "SETTLE", "TURN"):
        monkeypatch.setattr(refine, name, 0.2)
    algorithm = headrace.DQN(num_envs=4, warmup=64, batch_size=32, hidden=(16,), replay_capacity=5_000)
    plan = headrace.plan(algorithm, "CartPole-v1", "desktop")
    runtime = Processes(plan, algorithm, "CartPole-v1", 0, Options(evaluate=False, hang_seconds=600))
    usual, told = runtime.repeat, list[tuple[int, float]]()
    try:
        step = refine.refinement(runtime, CHOICE, plan.graph.domains[0].rate, lambda *what: told.append(what))
        end, said = time.monotonic() + 600, None
        while said is None and time.monotonic() < end:
            runtime.advance()
            said = next(step)
        assert runtime.repeat == told[0][0]
    finally:
        runtime.close()
    ((best, measured),) = told
    assert best in (usual // 2, usual, usual * 2)
    assert measured > 0
    change = "as before" if best == usual else f"instead of {usual}"
    assert re.match(rf"the running system does \S+ frames/s, 55.0k expected; {best} updates fused {change} \(", said)
    assert next(step, None) is None
