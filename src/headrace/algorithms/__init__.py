"""The algorithms that come with headrace, by the name the command line knows."""

from typing import Any

from headrace.algorithms.dqn import DQN, DQNConfig
from headrace.algorithms.ppo import PPO, PPOConfig
from headrace.algorithms.sac import SAC, SACConfig
from headrace.algorithms.td3 import TD3, TD3Config
from headrace.core import Algorithm

ALGORITHMS: dict[str, type[Algorithm[Any]]] = {"dqn": DQN, "ppo": PPO, "sac": SAC, "td3": TD3}

__all__ = ["ALGORITHMS", "DQN", "PPO", "SAC", "TD3", "DQNConfig", "PPOConfig", "SACConfig", "TD3Config"]
