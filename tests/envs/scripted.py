"""Environments whose every number is known in advance."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Counter(gym.Env[Any, Any]):
    """Shows (episode, time); pays `time`; ends at step `length`, by time limit in every other episode."""

    def __init__(self, length: int = 3, action_space: Any = None, both: bool = False):
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = action_space or spaces.Discrete(2)
        self.length, self.both = length, both
        self.episode, self.time = -1, 0
        self.actions: list[Any] = []
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode = 0 if seed is not None else self.episode + 1
        self.time = 0
        self.seeds.append(seed)
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        self.time += 1
        end = self.time == self.length
        terminated = end and (self.both or self.episode % 2 == 0)
        return self.observe(), float(self.time), terminated, end and (self.both or not terminated), {}

    def observe(self) -> Any:
        return np.array([self.episode, self.time], np.float64)


class Faulty(gym.Env[Any, Any]):
    """Goes wrong in its own way at its second step."""

    def __init__(self, fault: str):
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.fault, self.time = fault, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        obs, reward = np.zeros(2, np.float32), 0.0
        if self.time == 2:
            match self.fault:
                case "exit":
                    raise SystemExit(0)
                case "raise":
                    raise RuntimeError("the wheel came off.")
                case "reward":
                    reward = float("nan")
                case "observation":
                    obs[1] = np.inf
                case "shape":
                    obs = np.zeros(3, np.float32)
                case "old api":
                    return obs, reward, False, {}
        return obs, reward, False, False, {}


class Masked(gym.Env[Any, Any]):
    """Allows only action `time % n`, says so in its info, and allows nothing at the end."""

    def __init__(self, observation: Any = None, action: Any = None):
        self.observation_space = observation or spaces.Discrete(10)
        self.action_space = action or spaces.Discrete(3)
        self.time = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return self.observe(), self.info()

    def step(self, action: Any) -> Any:
        self.time += 1
        end = self.time == 2
        return self.observe(), 1.0, end, False, {} if end else self.info()

    def observe(self) -> Any:
        return {"a": self.time} if isinstance(self.observation_space, spaces.Dict) else self.time

    def info(self) -> Any:
        if isinstance(self.action_space, spaces.MultiDiscrete):
            return {"action_mask": tuple(np.arange(n) == self.time % n for n in self.action_space.nvec)}
        return {"action_mask": (np.arange(3) == self.time % 3).astype(np.int8)}


class Everything(gym.Env[Any, Any]):
    """Observes every supported space at once."""

    observation_space = spaces.Dict(
        {
            "z": spaces.Box(0, 255, (2, 2, 1), np.uint8),
            "nested": spaces.Dict({"b": spaces.Box(-5, 5, (2,), np.int64), "a": spaces.Discrete(4, start=7)}),
            "pair": spaces.Tuple((spaces.MultiBinary(3), spaces.MultiDiscrete([[2, 3], [4, 5]]))),
            "action_mask": spaces.MultiBinary(2),
        }
    )
    action_space = spaces.Discrete(2, start=-1)

    def __init__(self) -> None:
        self.time = 0
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.time = 0
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.actions.append(action)
        self.time += 1
        return self.observe(), 0.0, False, False, {}

    def observe(self) -> Any:
        t = self.time
        return {
            "z": np.full((2, 2, 1), t, np.uint8),
            "nested": {"b": np.array([-t, t]), "a": 7 + t},
            "pair": (np.array([0, 1, t], np.int8), np.array([[t, 2], [3, 4]])),
            "action_mask": np.array([t == 0, t == 1], np.int8),
        }


def counter() -> Counter:
    return Counter()
