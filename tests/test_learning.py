"""Learning is tested by returns reached. Three seeds of each, to higher goals and under every policy, with times, are
in bench/learning.py and bench/distributed.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import headrace
from headrace.algorithms import ALGORITHMS

GOALS = [
    ("ppo", {}, "gymnax:CartPole-v1", 475, 1, None),
    ("sac", {"hidden": (64, 64)}, "Pendulum-v1", -200, 1, None),  # a third of the time of its default networks
]
MORE_GOALS = [
    ("sac", {}, "Pendulum-v1", -200, 1, None),
    ("ppo", {}, "CartPole-v1", 475, 1, None),
    ("td3", {}, "Pendulum-v1", -400, 2, "single"),
]
LONG = os.environ.get("HEADRACE_LONG") == "1"


@pytest.mark.learning
@pytest.mark.parametrize(
    ("algorithm", "settings", "env", "goal", "seed", "policy"), GOALS + MORE_GOALS if LONG else GOALS
)
def test_the_goal_is_reached(
    algorithm: str,
    settings: dict[str, object],
    env: str,
    goal: float,
    seed: int,
    policy: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("XLA_FLAGS")  # processes compile as they do for a user
    options = {"policy": policy, "seed": seed, "out": tmp_path / "run", "progress": False}
    made = ALGORITHMS[algorithm](**settings)
    run = headrace.train(made, env, until=goal, seconds=900, **options)
    assert run.reached, run.metrics[-1]
    assert run.metrics[-1]["eval/mean_reward"] >= goal


@pytest.mark.learning
def test_options_learn_too(tmp_path: Path) -> None:
    algorithm = headrace.DQN(n_step=3, layer_norm=True, double=False)
    options = {"policy": "single", "seed": 1, "out": tmp_path / "run", "progress": False}
    run = headrace.train(algorithm, "CartPole-v1", until=150, seconds=900, **options)
    assert run.reached
