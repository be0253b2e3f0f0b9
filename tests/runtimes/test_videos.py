"""Videos of a run: the first begins at once, and none waits for the end of a long episode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from headrace import DQN, train


class Endless(gym.Env[Any, Any]):
    """An episode without end."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 50}
    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, False, {}

    def render(self) -> Any:
        return np.zeros((32, 32, 3), np.uint8)


def test_a_video_is_there_though_the_episode_never_ends(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")

    def until_two(event: Any) -> None:
        if len(list((event.run / "videos").glob("0*.mp4"))) > 1:
            event.stop()

    tiny = {"num_envs": 2, "hidden": (8,), "batch_size": 16, "warmup": 32, "replay_capacity": 500}
    run = train(
        DQN(**tiny),
        Endless,
        record_every=1.0,
        evaluate=False,
        seconds=240,
        callbacks=[until_two],
        progress=False,
        out=tmp_path / "run",
    )
    assert run.stopped is not None
    assert not list(run.path.rglob("*.part"))
