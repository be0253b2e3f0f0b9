"""Atari games as they are usually played since Mnih et al., 2015, behind one argument: `atari=True`.

Each action is repeated for four frames of the game, of which the last two are merged into a grey picture of 84 x 84;
four such pictures are one observation. An episode starts with a random number of idle frames, then FIRE where the game
waits for it. Rewards are clipped to their sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from headrace.envs.base import optional
from headrace.envs.recipe import Recipe
from headrace.errors import EnvError

ATARI = "atari"
"""The argument that asks for the preprocessing; `--atari` on the command line."""

USUAL: dict[str, Any] = {
    "noop_max": 30,
    "frame_skip": 4,
    "screen_size": 84,
    "grayscale_obs": True,
    "stack_size": 4,
    "fire_reset": True,
    "terminal_on_life_loss": False,
    "clip_reward": True,
}
"""Arguments that may be given with `atari=True`, by Gymnasium's names where it has them."""

SCORED = {"terminal_on_life_loss": False, "clip_reward": False}
"""Arguments for training only: an evaluation plays whole games with unclipped rewards."""

ENVPOOL = {
    "terminal_on_life_loss": "episodic_life",
    "grayscale_obs": "gray_scale",
    "stack_size": "stack_num",
    "clip_reward": "reward_clip",
    "fire_reset": "use_fire_reset",
}
"""EnvPool's names, where they differ."""


def scored(env: Any) -> Any:
    """The environment for evaluation."""
    if isinstance(env, Recipe) and env.kwargs.get(ATARI):
        return replace(env, kwargs=env.kwargs | SCORED)
    return env


def register_atari(env: str) -> None:
    """Register the games of ale-py with Gymnasium, without its banner."""
    ale = optional("ale_py", "atari", env)
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)


def make_atari(spec: EnvSpec, env: str, kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """One game of ale-py, preprocessed."""
    if not str(spec.entry_point).startswith("ale_py"):
        raise not_atari(env)
    chosen, own = _split(kwargs)
    clip, stack, fire = (chosen.pop(name) for name in ("clip_reward", "stack_size", "fire_reset"))
    optional("cv2", "atari", env)
    made: Any = gym.make(spec, **own | {"frameskip": 1})
    made = gym.wrappers.AtariPreprocessing(made, **chosen)
    if fire and made.unwrapped.get_action_meanings()[1:2] == ["FIRE"]:
        made = FireReset(made)
    if clip:
        made = gym.wrappers.TransformReward(made, lambda reward: float(np.sign(float(reward))))
    return gym.wrappers.FrameStackObservation(made, stack)


def envpool_options(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments under EnvPool's names."""
    chosen, own = _split(kwargs)
    size = chosen.pop("screen_size")
    chosen = {ENVPOOL.get(name, name): value for name, value in chosen.items()}
    return own | chosen | {"img_height": size, "img_width": size}


def not_atari(env: str) -> EnvError:
    """The refusal of an environment that is not an Atari game."""
    return EnvError(f"'{env}' is not an Atari game; --atari is for those of ale-py and EnvPool, such as ALE/Pong-v5.")


def _split(kwargs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of the preprocessing, and those of the game."""
    chosen = {name: kwargs.get(name, usual) for name, usual in USUAL.items()}
    return chosen, {name: value for name, value in kwargs.items() if name not in (ATARI, *USUAL)}


class FireReset(gym.Wrapper[Any, Any, Any, Any]):
    """Presses FIRE at the start of an episode, where a game waits for it."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.env.reset(seed=seed, options=options)
        obs, _, terminated, truncated, info = self.env.step(1)
        return self.env.reset(options=options) if terminated or truncated else (obs, info)
