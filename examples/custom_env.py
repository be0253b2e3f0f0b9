"""A custom environment: any `gymnasium.Env`, passed as a function or as module:function.

python examples/custom_env.py
headrace train dqn examples.custom_env:Corridor --until 0.9              (from the project's folder)
"""

from __future__ import annotations

import gymnasium
import numpy as np

import headrace


class Corridor(gymnasium.Env):
    """Walk right to the door. Walls are told by an action mask; a door missed for too long is a truncation."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 8, limit: int = 40):
        self.length, self.limit = length, limit
        self.at = self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        super().reset(seed=seed)
        self.at, self.steps = int(self.np_random.integers(self.length // 2)), 0
        return self._seen()

    def step(self, action: int):
        self.at += 1 if action == 1 else -1
        self.steps += 1
        terminated = self.at == self.length
        obs, info = self._seen()
        return obs, float(terminated), terminated, self.steps >= self.limit and not terminated, info

    def _seen(self):
        mask = np.array([self.at > 0, self.at < self.length])
        return np.array([self.at / self.length], np.float32), {"action_mask": mask}


if __name__ == "__main__":
    run = headrace.train(headrace.DQN(warmup=500, hidden=(32,)), Corridor, until=0.99, seconds=60, seed=1)
    print(f"return {run.evaluate().mean_reward:.2f}, run in {run.path}")
