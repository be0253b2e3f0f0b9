"""A block falls, a paddle catches it: 84 x 84 pixels of one byte, five steps an episode, 1 or -1 in the end."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

CELLS, PIXELS = 6, 14

SETTINGS: dict[str, dict[str, Any]] = {
    "dqn": {
        "encoder": "small",
        "hidden": (64,),
        "gamma": 0.9,
        "learning_rate": 5e-4,
        "batch_size": 32,
        "warmup": 256,
        "samples_per_insert": 4.0,
        "replay_capacity": 10_000,
        "exploration": "linear:1:0.05:200",
    },
    "ppo": {
        "encoder": "small",
        "hidden": (64,),
        "gamma": 0.9,
        "learning_rate": "linear:1e-3:1e-4:300",
        "num_envs": 16,
        "horizon": 10,
        "minibatch_size": 80,
        "normalise_reward": False,
    },
}
"""Small enough to solve it in seconds."""


class Catch(gym.Env[np.ndarray[Any, Any], int]):
    """Actions: left, stay, right, by one of six columns. The paddle is two columns wide, so chance catches a third."""

    observation_space = gym.spaces.Box(0, 255, (CELLS * PIXELS, CELLS * PIXELS, 1), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.row, self.paddle = 0, int(self.np_random.integers(CELLS - 1))
        self.column = int(self.np_random.integers(CELLS))
        return self.picture(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.paddle = min(max(self.paddle + int(action) - 1, 0), CELLS - 2)
        self.row += 1
        over = self.row == CELLS - 1
        reward = float(over) * (1.0 if 0 <= self.column - self.paddle <= 1 else -1.0)
        return self.picture(), reward, over, False, {}

    def picture(self) -> np.ndarray[Any, Any]:
        """The block in white, the paddle in grey on the lowest row."""
        cells = np.zeros((CELLS, CELLS), np.uint8)
        cells[CELLS - 1, self.paddle : self.paddle + 2] = 128
        cells[self.row, self.column] = 255
        return cells.repeat(PIXELS, 0).repeat(PIXELS, 1)[..., None]
