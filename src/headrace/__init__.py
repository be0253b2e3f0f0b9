"""headrace: write a reinforcement-learning training loop once; it runs at the limit of whatever you have."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.algorithms import A3C, DQN, IMPALA, MAPPO, PPO, SAC, TD3
    from headrace.api import plan, trace
    from headrace.core import Algorithm, Config, Env, Learned, Reads, Replay, Rollout, Schedule, Tracked, Writes, stage
    from headrace.errors import HeadraceError
    from headrace.run.callbacks import Event
    from headrace.run.launch import train
    from headrace.run.run import Run
    from headrace.run.seeds import train_seeds
    from headrace.services.actor import Actor

__all__ = ["A3C", "DQN", "IMPALA", "MAPPO", "PPO", "SAC", "TD3", "Actor", "Algorithm", "Config", "Env", "Event"]
__all__ += ["HeadraceError", "Learned", "Reads", "Replay", "Rollout", "Run", "Schedule", "Tracked", "Writes"]
__all__ += ["__version__", "plan", "stage", "trace", "train", "train_seeds"]

HOMES = {
    "algorithms": ("A3C", "DQN", "IMPALA", "MAPPO", "PPO", "SAC", "TD3"),
    "api": ("plan", "trace"),
    "run.run": ("Run",),
    "services.actor": ("Actor",),
    "core": (
        *("Algorithm", "Config", "Env", "Learned", "Reads", "Replay", "Rollout", "Schedule", "Tracked", "Writes"),
        "stage",
    ),
    "errors": ("HeadraceError",),
    "run.launch": ("train",),
    "run.seeds": ("train_seeds",),
    "run.callbacks": ("Event",),
}
"""Where each name is. Imported when first asked for: the processes of a run start without what only their parent
needs."""


def __getattr__(name: str) -> Any:
    for module, names in HOMES.items():
        if name in names:
            found = globals()[name] = getattr(importlib.import_module(f"headrace.{module}"), name)
            return found
    raise AttributeError(f"module 'headrace' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
