"""Environments for the tests of faults: one whose every row can be checked, and some that go wrong.

They stand at the top of a module so that other processes find them.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces

from headrace import Algorithm, Config, Env, Learned, Reads, Replay, Writes, stage

EPISODES = 1 << 20
STEP = 5
"""The step, from 1, in which an environment goes wrong."""

MARKER = "HEADRACE_TEST_MARKER"
"""Names a file: while it is not there, `fails_once` makes it and fails."""


def told(episode: Any, at: Any) -> Any:
    """The observation of a moment in an episode: both of them, and four numbers hashed from them; all are exact."""
    episode, at = np.asarray(episode, np.uint64), np.asarray(at, np.uint64)
    mixed = (episode[..., None] << np.uint64(20)) + (at[..., None] << np.uint64(2)) + np.arange(4, dtype=np.uint64)
    for shift in (np.uint64(31), np.uint64(27)):
        mixed = (mixed ^ (mixed >> shift)) * np.uint64(0x94D049BB133111EB)
    hashed = (mixed >> np.uint64(48)).astype(np.float32) / 65536
    return np.concatenate([np.stack([episode / EPISODES, at / 256], axis=-1).astype(np.float32), hashed], axis=-1)


def length(episode: Any) -> Any:
    """The steps of an episode."""
    return 20 + episode % 31


def paid(obs: Any, action: Any) -> Any:
    """The reward of acting on an observation."""
    return obs[..., 2] + np.float32(0.5) * action[..., 0]


class Checked(gym.Env[Any, Any]):
    """Every number of a step follows from the two that are its observation's first: which episode, how far into it."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}

    def __init__(self, render_mode: str | None = None):
        self.observation_space = spaces.Box(0, 1, (6,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.at = int(self.np_random.integers(EPISODES)), 0
        self.moments = told(np.full(length(self.episode) + 1, self.episode), np.arange(length(self.episode) + 1))
        return self.moments[0], {}

    def step(self, action: Any) -> Any:
        reward = paid(self.moments[self.at], action)
        self.at += 1
        ended = self.at == length(self.episode)
        terminated = ended and self.episode % 2 == 0
        return self.moments[self.at], reward, terminated, ended and not terminated, {}

    def render(self) -> Any:
        return np.full((24, 32, 3), self.at, np.uint8)


def moment(obs: Any) -> tuple[Any, Any]:
    """The episode that observations of `Checked` say they are of, and how far into it."""
    first = obs[..., :2] * np.float32([EPISODES, 256])
    return first[..., 0].astype(np.int64), first[..., 1].astype(np.int64)


def over(rows: Any) -> Any:
    """Which of these transitions end their episode."""
    episode, at = moment(rows.obs)
    return at + 1 == length(episode)


def wrong(rows: Any) -> Any:
    """Which of these transitions are not what `Checked` made; any but a terminal one may be marked as truncated."""
    episode, at = moment(rows.obs)
    terminated = over(rows) & (episode % 2 == 0)
    return ~(
        (rows.obs == told(episode, at)).all(axis=-1)
        & (rows.next_obs == told(episode, at + 1)).all(axis=-1)
        & (rows.reward == paid(rows.obs, rows.action))
        & (rows.terminated == terminated)
        & ((rows.truncated == (over(rows) & ~terminated)) | (rows.truncated & ~terminated))
    )


def nowhere(rows: Any) -> Any:
    """Which of these transitions no environment made: the truncated step without reward that ends an episode which
    nobody could go on with. What it shows is still what `Checked` shows at some moment."""
    shown = [(obs == told(*moment(obs))).all(axis=-1) for obs in (rows.obs, rows.next_obs)]
    return shown[0] & shown[1] & (rows.reward == 0) & rows.truncated & ~rows.terminated


class Faulty(gym.Env[Any, Any]):
    """Goes wrong in its own way at step `STEP`, in every life of it."""

    def __init__(self, fault: str):
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        self.fault, self.count = fault, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.fault == "never_starts":
            time.sleep(600)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        obs, reward = np.zeros(2, np.float32), 0.0
        if self.count == STEP:
            match self.fault:
                case "raises":
                    print("rolling along")  # not what a person is to be told
                    raise RuntimeError("the wheel came off")
                case "once" if not (marker := Path(os.environ[MARKER])).exists():
                    marker.touch()
                    raise RuntimeError("the wheel came off once")
                case "not_finite":
                    reward = float("nan")
                case "misshapen":
                    obs = np.zeros(3, np.float32)
                case "hangs":
                    time.sleep(600)
        return obs, reward, False, self.count % 50 == 0, {}


def raises() -> Faulty:
    return Faulty("raises")


def fails_once() -> Faulty:
    return Faulty("once")


def not_finite() -> Faulty:
    return Faulty("not_finite")


def misshapen() -> Faulty:
    return Faulty("misshapen")


def never_starts() -> Faulty:
    return Faulty("never_starts")


def hangs() -> Faulty:
    return Faulty("hangs")


@dataclass(frozen=True, kw_only=True)
class BreaksConfig(Config):
    """Settings of `Breaks`: none of its own."""


class Breaks(Algorithm[BreaksConfig]):
    """Learns by calling something that always raises."""

    def cells(self, spec: Any, key: Any) -> Any:
        return {"weights": Learned(jnp.zeros(()), optax.sgd(0.1))}

    @stage
    def act(self, obs: Any, weights: Reads) -> Any:
        return jnp.zeros(obs.shape[0], jnp.int32)

    play = act

    @stage
    def learn(self, batch: Any, weights: Writes) -> Any:
        weights, loss = weights.minimise(lambda w: w**2)
        return weights, {"loss": jax.pure_callback(_break, jax.ShapeDtypeStruct((), jnp.float32), loss)}

    def loop(self, env: Env, replay: Replay) -> None:
        replay.insert(env.step(self.act(env.observe())))
        self.learn(replay.sample(8))


def _break(loss: Any) -> Any:
    raise RuntimeError("the learner broke")
