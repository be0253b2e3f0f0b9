"""Gymnasium environments, stepped one after the other straight into preallocated arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from headrace.envs.base import Step
from headrace.envs.spaces import Actions, MisfitError, ObsBuffer, choices, observations
from headrace.envs.stepped import Stepped, quiet
from headrace.errors import EnvError, sentence
from headrace.types import MASK, Array, Discrete, EnvSpec, Tree

FOLLOWING = (1, 2)
"""MuJoCo's mjCAMLIGHT_TRACK and mjCAMLIGHT_TRACKCOM: modes of a camera that moves with its body."""

STEPPED = "(observation, reward, terminated, truncated, info)"


class GymnasiumEnv(Stepped):
    """Gymnasium environments of one kind, side by side; with `render`, the first of them can be drawn."""

    def __init__(self, name: str, envs: Sequence[Any], *, render: bool = False, action_scale: float | None = None):
        first, num_envs = envs[0], len(envs)
        for what in ("observation_space", "action_space"):
            if not isinstance(getattr(first, what, None), gym.spaces.Space):
                raise EnvError(f"'{name}' has no {what}; set self.{what} to a Gymnasium space in its __init__.")
        with quiet():
            self._actions = Actions(first.action_space, name, num_envs, action_scale)
            action = self._actions.space
            self._observations = observations(first.observation_space, action, name)
            if self._sends_mask(first, name):
                self._observations = self._observations.with_info_mask(action)
            if render:
                _prepare_camera(first)
        spec = EnvSpec(name, self._observations.space, action, num_envs)
        super().__init__(spec, envs, self._observations, render=render)
        self._steps = [env.step for env in envs]

    def reset(self, seed: int) -> Tree:
        return self._reset_all(seed).tree

    def step(self, action: Array) -> Step:
        rows = self._actions.decode(action)
        if rows.ndim == 1:  # Gymnasium is quicker to check a Python int; a number of a Box is an array
            rows = rows.tolist() if isinstance(self._actions.space, Discrete) else [np.asarray(row) for row in rows]
        if len(rows) != self.spec.num_envs:
            raise EnvError(f"'{self.spec.id}' has {self.spec.num_envs} environments but got {len(rows)} actions.")
        self._count += 1
        buffers = self._next_buffers()
        led_to: list[Any] = []
        try:
            # What can be done for all environments at once comes after: stepping a small one takes microseconds.
            for step, row in zip(self._steps, rows, strict=True):
                led_to.append(step(row))
        except (Exception, SystemExit) as error:
            raise self._blame(len(led_to), error) from error
        try:
            seen, gains, terminated, truncated, infos = zip(*led_to, strict=True)
            over = any(terminated) or any(truncated)
            ended = [i for i in range(len(led_to)) if terminated[i] or truncated[i]] if over else []
            buffers.next_obs.gather(seen, self._final_infos(infos, ended) if self._observations.info_mask else ())
            buffers.pay(gains)
        except (MisfitError, TypeError, ValueError) as error:
            raise self._blame_step(led_to, error) from error
        if not buffers.surely_finite():
            if None in gains:
                raise self._blame_step(led_to, TypeError("a reward is None"))
            self._require_finite(buffers.reward, "a reward", rows)
            self._require_finite(buffers.next_obs.tree, "an observation", rows)
        self._returns += buffers.reward
        if not ended:
            return Step(buffers.next_obs.tree, buffers.reward, self._none, self._none, buffers.next_obs.tree)
        buffers.obs.copy(buffers.next_obs)
        self._end(ended, infos)
        for index in ended:
            buffers.end(index, bool(terminated[index]), first=index == ended[0])
            self._reset_one(index, buffers.obs, None)
        self._require_finite(buffers.obs.tree, "a first observation")
        return Step(buffers.obs.tree, buffers.reward, buffers.terminated, buffers.truncated, buffers.next_obs.tree)

    def _sends_mask(self, env: Any, name: str) -> bool:
        """Whether the info of a reset has a mask, which no space declares."""
        if not choices(self._actions.space) or any(leaf.name == MASK for leaf in self._observations.leaves):
            return False
        try:
            return MASK in _reset(env, 0)[1]
        except MisfitError as error:
            raise EnvError(f"'{name}' {error}.") from error
        except Exception as error:
            raise EnvError(f"'{name}' raised {sentence(error)} in its first reset.") from error

    def _final_infos(self, infos: Sequence[Any], ended: list[int]) -> Sequence[Any]:
        # No action follows the end, so environments may leave out the last mask.
        mask = self._observations.info_mask
        if mask is None or not ended:
            return infos
        everything = {MASK: np.ones(mask.given, bool)}
        return [everything if i in ended and MASK not in info else info for i, info in enumerate(infos)]

    def _reset_one(self, index: int, obs: ObsBuffer, seed: int | None) -> None:
        try:
            obs.write(index, *_reset(self._envs[index], seed))
        except (Exception, SystemExit) as error:
            raise self._blame(index, error) from error

    def _blame_step(self, led_to: list[Any], error: Exception) -> EnvError:
        """Find the environment whose step failed to translate, by translating them one by one."""
        scratch = ObsBuffer(self._observations, len(led_to))
        for index, one in enumerate(led_to):
            try:
                if not (isinstance(one, tuple) and len(one) == 5):
                    raise MisfitError(f"returned {_kind(one)} from step, which gives {STEPPED}")
                obs, gain, terminated, truncated, info = one
                (info,) = self._final_infos([info], [0] if terminated or truncated else [])
                scratch.write(index, obs, info)
                if np.size(gain) != 1 or np.asarray(gain).dtype.kind not in "biuf":
                    raise MisfitError(f"returned the reward {gain!r}, which is no number")
            except Exception as reason:
                raise self._blame(index, reason) from reason
        return EnvError(f"'{self.spec.id}' returned what it should not at step {self._count}: {error}.")


def _reset(env: Any, seed: int | None) -> tuple[Any, Any]:
    try:
        found = env.reset(seed=seed)
    except TypeError as error:
        if "'seed'" not in str(error):
            raise
        raise MisfitError(
            "has a reset that takes no seed; write it as reset(self, *, seed=None, options=None)"
        ) from None
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)):
        raise MisfitError(f"returned {_kind(found)} from reset, which gives (observation, info)")
    return found


def _kind(value: Any) -> str:
    return f"{len(value)} values" if isinstance(value, tuple) else f"a {type(value).__name__}"


def _prepare_camera(env: Any) -> None:
    """Render a MuJoCo model with its tracking camera, unless the user chose another.

    From 1.4 on Gymnasium renders with a fixed camera, and a cheetah is out of view after 80 frames. Without shadows
    and multisampling a frame takes 15 ms of a core instead of 116 (HalfCheetah-v5, EGL without a GPU, 2026-11-17).
    """
    inner = env.unwrapped
    renderer, model = getattr(inner, "mujoco_renderer", None), getattr(inner, "model", None)
    if renderer is None or model is None:
        return
    model.vis.quality.shadowsize = model.vis.quality.offsamples = 0
    chosen = {"camera_id", "camera_name", "default_camera_config"} & set(env.spec.kwargs if env.spec else ())
    own = (getattr(inner, "camera_id", None), getattr(inner, "camera_name", None)) != (None, None)
    following = [i for i, mode in enumerate(model.cam_mode) if mode in FOLLOWING]
    if following and not (chosen or own):
        renderer.camera_id = following[0]
