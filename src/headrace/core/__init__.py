"""What algorithms are written with."""

from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell, Learned, Tracked
from headrace.core.handles import Env, Replay, Rollout
from headrace.core.replicas import averaged, standardised
from headrace.core.stage import Reads, Writes, stage
from headrace.errors import ConfigError, EnvError
from headrace.settings.config import Config, NetConfig, ReplayConfig, RolloutConfig, TrajectoryConfig
from headrace.settings.schedule import Schedule, value_at

__all__ = [
    "Algorithm",
    "Cell",
    "Config",
    "ConfigError",
    "Env",
    "EnvError",
    "Learned",
    "NetConfig",
    "Reads",
    "Replay",
    "ReplayConfig",
    "Rollout",
    "RolloutConfig",
    "Schedule",
    "Tracked",
    "TrajectoryConfig",
    "Writes",
    "averaged",
    "stage",
    "standardised",
    "value_at",
]
