"""Learning from pixels, tested by the return reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.envs.catch import SETTINGS, Catch

import headrace


@pytest.mark.learning
@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_falling_block_is_caught_from_pixels(name: str, tmp_path: Path) -> None:
    algorithm = {"dqn": headrace.DQN, "ppo": headrace.PPO}[name](**SETTINGS[name])
    options = {"policy": "single", "seed": 1, "out": tmp_path / "run", "progress": False}
    run = headrace.train(algorithm, Catch, until=0.8, steps=8_000, eval_every=500, eval_episodes=20, **options)
    assert run.reached, run.metrics[-1]
    assert run.metrics[-1]["eval/mean_reward"] >= 0.8  # chance gives -0.33
