"""The algorithms that come with headrace, by the name the command line knows."""

from typing import Any

from headrace.algorithms.a3c import A3C, A3CConfig
from headrace.algorithms.dqn import DQN, DQNConfig
from headrace.algorithms.impala import IMPALA, IMPALAConfig
from headrace.algorithms.mappo import MAPPO, MAPPOConfig
from headrace.algorithms.ppo import PPO, PPOConfig
from headrace.algorithms.sac import SAC, SACConfig
from headrace.algorithms.td3 import TD3, TD3Config
from headrace.core import Algorithm

ALGORITHMS: dict[str, type[Algorithm[Any]]] = {
    "a3c": A3C,
    "dqn": DQN,
    "impala": IMPALA,
    "mappo": MAPPO,
    "ppo": PPO,
    "sac": SAC,
    "td3": TD3,
}

__all__ = [
    "A3C",
    "ALGORITHMS",
    "DQN",
    "IMPALA",
    "MAPPO",
    "PPO",
    "SAC",
    "TD3",
    "A3CConfig",
    "DQNConfig",
    "IMPALAConfig",
    "MAPPOConfig",
    "PPOConfig",
    "SACConfig",
    "TD3Config",
]
