"""Gymnasium environments, stepped one after the other straight into preallocated arrays."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from headrace.envs.base import Episode, HostEnv, Step, seeds
from headrace.envs.spaces import Actions, MisfitError, Observations, Rows, choices, not_finite, observations
from headrace.errors import EnvError
from headrace.types import MASK, Array, EnvSpec, Tree


class GymnasiumEnv(HostEnv):
    """Gymnasium environments of one kind, side by side; with `render`, the first of them can be drawn."""

    def __init__(self, name: str, envs: Sequence[Any], *, render: bool = False):
        self._envs = list(envs)
        num_envs = len(self._envs)
        with quiet():
            self._actions = Actions(self._envs[0].action_space, name, num_envs)
            action = self._actions.space
            self._observations = observations(self._envs[0].observation_space, action, name)
            if self._sends_mask(name):
                self._observations = self._observations.with_info_mask(action)
        self.spec = EnvSpec(name, self._observations.space, action, num_envs)
        self._render = render
        self._steps = [env.step for env in self._envs]
        self._buffers = [_Buffers(self._observations, num_envs) for _ in range(2)]
        self._none = np.zeros(num_envs, bool)
        self._turn = 0
        self._count = 0
        self._began = [0] * num_envs
        self._returns = [0.0] * num_envs
        self._finished: list[Episode] = []

    def reset(self, seed: int) -> Tree:
        buffers = self._next_buffers()
        self._count = 0
        self._began = [0] * self.spec.num_envs
        self._returns = [0.0] * self.spec.num_envs
        with quiet():
            for index, start in enumerate(seeds(seed, self.spec.num_envs)):
                self._reset_one(index, buffers.obs, start)
        if not buffers.obs.finite():
            raise self._blame_number(not_finite(buffers.obs.tree, self.spec.num_envs), "a first observation")
        return buffers.obs.tree

    def step(self, action: Array) -> Step:
        rows = self._actions.decode(action)
        if rows.ndim == 1:
            rows = rows.tolist()  # Gymnasium is quicker to check a Python int
        if len(rows) != self.spec.num_envs:
            raise EnvError(f"'{self.spec.id}' has {self.spec.num_envs} environments but got {len(rows)} actions.")
        self._count += 1
        buffers = self._next_buffers()
        steps, returns, masked = self._steps, self._returns, self._observations.info_mask is not None
        seen: list[Any] = []
        gains: list[float] = []
        infos: list[Any] = []
        ended: list[int] = []
        index = 0
        try:
            for row in rows:
                obs, gain, terminated, truncated, info = steps[index](row)
                if terminated or truncated:
                    ended.append(index)
                    buffers.end(index, terminated, len(ended) == 1)
                if masked:
                    infos.append(info)
                seen.append(obs)
                gain = float(gain)  # NumPy's scalars are slow to add
                gains.append(gain)
                returns[index] += gain
                index += 1
        except Exception as error:
            raise self._blame(index, error) from error
        try:
            buffers.next_obs.gather(seen, self._final_infos(infos, ended))
        except (MisfitError, TypeError, ValueError) as error:
            raise self._blame_obs(seen, self._final_infos(infos, ended), error) from error
        buffers.reward[:] = gains
        if not math.isfinite(sum(gains)):
            raise self._blame_number(not_finite(buffers.reward, len(rows)), "a reward", rows)
        if not buffers.next_obs.finite():
            raise self._blame_number(not_finite(buffers.next_obs.tree, len(rows)), "an observation", rows)
        if not ended:
            return Step(buffers.next_obs.tree, buffers.reward, self._none, self._none, buffers.next_obs.tree)
        buffers.obs.copy(buffers.next_obs)
        for index in ended:
            self._finished.append(Episode(float(returns[index]), self._count - self._began[index]))
            self._began[index] = self._count
            returns[index] = 0.0
            self._reset_one(index, buffers.obs, None)
        if not buffers.obs.finite():
            raise self._blame_number(not_finite(buffers.obs.tree, len(rows)), "a first observation")
        return Step(buffers.obs.tree, buffers.reward, buffers.terminated, buffers.truncated, buffers.next_obs.tree)

    def drain(self) -> list[Episode]:
        finished, self._finished = self._finished, []
        return finished

    def render(self) -> np.ndarray[Any, Any] | None:
        if not self._render:
            return None
        try:
            with quiet():
                frame = self._envs[0].render()
        except Exception as error:
            raise EnvError(
                f"'{self.spec.id}' cannot be drawn here ({_sentence(error)}); "
                f"on a machine without a screen, MuJoCo needs MUJOCO_GL=egl or MUJOCO_GL=osmesa."
            ) from error
        return None if frame is None else np.asarray(frame)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _sends_mask(self, name: str) -> bool:
        """Whether the info of a reset has a mask, which no space declares."""
        if not choices(self._actions.space) or any(leaf.name == MASK for leaf in self._observations.leaves):
            return False
        try:
            return MASK in self._envs[0].reset(seed=0)[1]
        except Exception as error:
            raise EnvError(f"'{name}' raised {_sentence(error)} in its first reset.") from error

    def _final_infos(self, infos: Sequence[Any], ended: list[int]) -> Sequence[Any]:
        # Nothing is chosen after the end, so environments may leave the last mask out.
        mask = self._observations.info_mask
        if mask is None or not ended:
            return infos
        everything = {MASK: np.ones(mask.given, bool)}
        return [everything if i in ended and MASK not in info else info for i, info in enumerate(infos)]

    def _reset_one(self, index: int, obs: Rows, seed: int | None) -> None:
        try:
            seen, info = self._envs[index].reset(seed=seed)
            obs.write(index, seen, info)
        except Exception as error:
            raise self._blame(index, error) from error

    def _next_buffers(self) -> _Buffers:
        self._turn ^= 1
        return self._buffers[self._turn]

    def _blame(self, index: int, error: Exception) -> EnvError:
        what = str(error) if isinstance(error, MisfitError) else f"raised {_sentence(error)}"
        return EnvError(f"'{self.spec.id}' (environment {index}) {what} at step {self._count}.")

    def _blame_obs(self, seen: list[Any], infos: Sequence[Any], error: Exception) -> EnvError:
        """Find the environment whose observation could not be taken in, by taking them in one by one."""
        scratch = Rows(self._observations, len(seen))
        for index, obs in enumerate(seen):
            try:
                scratch.write(index, obs, infos[index] if infos else None)
            except Exception as reason:
                raise self._blame(index, reason) from reason
        return EnvError(f"'{self.spec.id}' returned what it should not at step {self._count}: {error}.")

    def _blame_number(self, index: int | None, what: str, rows: Array | None = None) -> EnvError:
        bad_action = rows is not None and index is not None and not np.all(np.isfinite(rows[index]))
        why = ", after an action that was not finite either: training has diverged" if bad_action else ""
        return EnvError(
            f"'{self.spec.id}' (environment {index}) returned {what} that is not finite at step {self._count}{why}."
        )


class _Buffers:
    """The arrays of one step."""

    def __init__(self, layout: Observations, num_envs: int):
        self.obs = Rows(layout, num_envs)
        self.next_obs = Rows(layout, num_envs)
        self.reward = np.zeros(num_envs, np.float32)
        self.terminated = np.zeros(num_envs, bool)
        self.truncated = np.zeros(num_envs, bool)

    def end(self, index: int, terminated: bool, first: bool) -> None:
        """Mark the end of an episode, the `first` of this step or a further one."""
        if first:
            self.terminated.fill(False)
            self.truncated.fill(False)
        (self.terminated if terminated else self.truncated)[index] = True


@contextmanager
def quiet() -> Iterator[None]:
    """Keep advice meant for the environment's author off the user's terminal."""
    mujoco: Any = sys.modules.get("mujoco")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if mujoco is None:
            yield
            return
        before = mujoco.get_mju_user_warning()
        mujoco.set_mju_user_warning(lambda text: None)
        try:
            yield
        finally:
            mujoco.set_mju_user_warning(before)


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
