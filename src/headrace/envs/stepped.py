"""What all environments that are Python objects, stepped one by one, have in common."""

from __future__ import annotations

import sys
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from typing import Any

import jax
import numpy as np

from headrace.envs.base import LocalEnv, seeds
from headrace.envs.spaces import MisfitError, ObsBuffer, Observations
from headrace.errors import EnvError, sentence
from headrace.types import EnvSpec


class Stepped(LocalEnv):
    """Environments of one kind, side by side; with `render`, the first of them can be drawn."""

    def __init__(self, spec: EnvSpec, envs: Sequence[Any], layout: Observations, *, render: bool, team: int = 1):
        """`team` is the number of agents, each with a row of `layout`."""
        super().__init__(spec)
        self._envs = list(envs)
        self._render = render
        self._buffers = [StepBuffers(layout, spec.num_envs, team) for _ in range(2)]
        self._none = np.zeros(spec.num_envs, bool)
        self._turn = 0

    def render(self) -> np.ndarray[Any, Any] | None:
        if not self._render:
            return None
        try:
            with quiet():
                frame = self._envs[0].render()
        except Exception as error:
            advice = "; on a machine without a screen, MuJoCo needs MUJOCO_GL=egl or MUJOCO_GL=osmesa"
            advice = advice if "mujoco" in sys.modules else ""
            raise EnvError(f"'{self.spec.id}' cannot be drawn here ({sentence(error)}){advice}.") from error
        return None if frame is None else np.asarray(frame)

    def close(self) -> None:
        for env in self._envs:
            try:
                env.close()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - it is not needed any more
                print(f"headrace: '{self.spec.id}' raised {sentence(error)} in its close.", file=sys.stderr)

    def _reset_all(self, seed: int) -> ObsBuffer:
        buffers = self._next_buffers()
        self._start()
        with quiet():
            for index, start in enumerate(seeds(seed, self.spec.num_envs)):
                self._reset_one(index, buffers.obs, start)
        self._require_finite(buffers.obs.tree, "a first observation")
        return buffers.obs

    @abstractmethod
    def _reset_one(self, index: int, obs: ObsBuffer, seed: int | None) -> None:
        """Reset one environment and write its first observation."""

    def _next_buffers(self) -> StepBuffers:
        self._turn ^= 1
        return self._buffers[self._turn]

    def _blame(self, index: int, error: BaseException) -> EnvError:
        """The error for an environment that raised, or returned something invalid."""
        what = str(error) if isinstance(error, MisfitError) else f"raised {sentence(error)}"
        return EnvError(f"'{self.spec.id}' (environment {index}) {what} at step {self._count}.")


class StepBuffers:
    """The arrays of one step."""

    def __init__(self, layout: Observations, num_envs: int, team: int):
        self.obs = ObsBuffer(layout, num_envs * team)
        self.next_obs = ObsBuffer(layout, num_envs * team)
        self.reward = np.zeros(num_envs, np.float32)
        self.terminated = np.zeros(num_envs, bool)
        self.truncated = np.zeros(num_envs, bool)
        numbers = [leaf.reshape(-1) for leaf in (self.reward, *jax.tree.leaves(self.next_obs.tree))]
        self._squares = [(flat.dot, flat) for flat in numbers if flat.dtype == np.float32]

    def pay(self, gains: Sequence[Any]) -> None:
        """Write the rewards."""
        try:
            self.reward[:] = gains
        except (TypeError, ValueError):
            self.reward[:] = [float(gain) for gain in gains]  # some give arrays of one number

    def surely_finite(self) -> bool:
        """Whether observations and rewards are surely finite, by a BLAS dot product, which takes a third of the time of
        checking each number. False also where squares overflow."""
        with np.errstate(over="ignore"):
            for dot, flat in self._squares:
                if not isfinite(dot(flat)):
                    return False
        return True

    def end(self, index: int, terminated: bool, first: bool) -> None:
        """Mark the end of an episode, the `first` of this step or a further one."""
        if first:
            self.terminated.fill(False)
            self.truncated.fill(False)
        (self.terminated if terminated else self.truncated)[index] = True


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings meant for the environment's author."""
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
