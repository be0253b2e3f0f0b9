"""headrace: write a reinforcement-learning training loop once; it runs at the limit of whatever you have."""

from headrace.algorithms import A3C, DQN, IMPALA, MAPPO, PPO, SAC, TD3
from headrace.api import Actor, Run, plan, trace
from headrace.core import Algorithm, Config, Env, Learned, Reads, Replay, Rollout, Schedule, Tracked, Writes, stage
from headrace.errors import HeadraceError
from headrace.launch import train
from headrace.seeds import train_seeds
from headrace.services.callbacks import Event
from headrace.version import __version__

__all__ = [
    "A3C",
    "DQN",
    "IMPALA",
    "MAPPO",
    "PPO",
    "SAC",
    "TD3",
    "Actor",
    "Algorithm",
    "Config",
    "Env",
    "Event",
    "HeadraceError",
    "Learned",
    "Reads",
    "Replay",
    "Rollout",
    "Run",
    "Schedule",
    "Tracked",
    "Writes",
    "__version__",
    "plan",
    "stage",
    "trace",
    "train",
    "train_seeds",
]
