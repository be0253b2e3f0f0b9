"""An environment in wrappers: a time limit, options for its resets, a goal, and statistics of its own.

    headrace train dqn examples/wrapped_env.py:balance --env-kwargs limit=200 tilt=0.1 --log-info episode/l

The arguments are in config.json and reach every process. `is_success` is logged as rollout/success_rate and
eval/success_rate, what --log-info names as rollout/NAME.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import RecordEpisodeStatistics

import headrace


class ResetWith(gym.Wrapper):
    """Gives every reset the same options: headrace itself resets with a seed alone."""

    def __init__(self, env: gym.Env, **options: Any):
        super().__init__(env)
        self.options = options

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed, options=self.options | (options or {}))


class StopRule(gym.Wrapper):
    """Says at the end of an episode whether it lasted as long as it may."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info = info | {"is_success": truncated and not terminated}
        return obs, reward, terminated, truncated, info


def balance(limit: int = 500, tilt: float = 0.05, render_mode: str | None = None) -> gym.Env:
    """A cart and a pole that begins up to `tilt` off; taking `render_mode` lets headrace draw it."""
    env = gym.make("CartPole-v1", max_episode_steps=limit, render_mode=render_mode)
    return RecordEpisodeStatistics(StopRule(ResetWith(env, low=-tilt, high=tilt)))


if __name__ == "__main__":
    run = headrace.train("dqn", balance, env_kwargs={"limit": 200}, log_info=["episode/l"], seconds=60)
    print(f"{run.evaluate(20).success_rate:.0%} of the episodes reached the goal")
