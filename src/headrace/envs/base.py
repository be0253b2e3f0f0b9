"""The protocol of every environment, on the host and in JAX."""

from __future__ import annotations

import inspect
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from headrace.envs.spaces import not_finite
from headrace.errors import EnvError, nearest, sentence
from headrace.extras import needed
from headrace.types import Array, EnvSpec, Tree


class Step(NamedTuple):
    """The result of one action in every environment, `[num_envs, ...]`: always a real transition.

    `obs` and `next_obs` may be the same arrays when no episode ended: read them, do not write to them.
    """

    obs: Tree
    """The next observation to act on: after the reset where an episode ended."""
    reward: Array
    terminated: Array
    truncated: Array
    """Ended by a time limit; False where terminated."""
    next_obs: Tree
    """The observation after the action, before any reset."""


SUCCESS = "is_success"
"""The info key that says whether an episode reached its goal."""

NOTHING: Mapping[str, float] = MappingProxyType({})


class Episode(NamedTuple):
    """A finished episode: its undiscounted sum of rewards and its number of steps."""

    reward: float
    length: int
    info: Mapping[str, float] = NOTHING
    """The numbers in the info of its last step; those inside a dict by names such as `episode/r`."""


class Finished(NamedTuple):
    """Return and length of the episodes that ended at this step, `[num_envs]`; 0 where not `done`."""

    done: Array
    reward: Array
    length: Array


REMEDY = "; mend the environment, or wrap it in one that keeps its numbers within bounds"


class HostEnv(ABC):
    """Environments stepped on the CPU, NumPy in and out.

    The arrays returned by a call stay valid during the next call and are overwritten by the one after it.
    """

    spec: EnvSpec

    @abstractmethod
    def reset(self, seed: int) -> Tree:
        """Reset every environment, each with a seed derived from (seed, index), and return the observation."""

    @abstractmethod
    def step(self, action: Array) -> Step:
        """Act in every environment and reset those whose episode ended."""

    def send(self, action: Array) -> None:
        """Begin a step whose result `receive` returns. Environments in other processes run meanwhile."""
        self._sent = action

    def receive(self) -> Step:
        """The result of the step begun by `send`."""
        return self.step(self._sent)

    @abstractmethod
    def drain(self) -> list[Episode]:
        """The episodes finished since the last call."""

    @abstractmethod
    def render(self) -> np.ndarray[Any, Any] | None:
        """An RGB frame of the first environment, if it was made to render."""

    @abstractmethod
    def close(self) -> None:
        """Free what the environments hold."""


class LocalEnv(HostEnv):
    """Environments of this process: counts their steps, keeps their episodes, checks their numbers."""

    def __init__(self, spec: EnvSpec):
        self.spec = spec
        self._finished: list[Episode] = []
        self._start()

    def _start(self) -> None:
        self._count = 0
        self._began = [0] * self.spec.num_envs
        self._returns = np.zeros(self.spec.num_envs)

    def _end(self, ended: Sequence[int], infos: Sequence[Any] | Mapping[int, Any]) -> None:
        """Record the episodes that ended at this step, with the numbers in their infos."""
        for index in ended:
            length = self._count - self._began[index]
            self._finished.append(Episode(float(self._returns[index]), length, numbers(infos[index])))
            self._began[index] = self._count
            self._returns[index] = 0.0

    def drain(self) -> list[Episode]:
        finished, self._finished = self._finished, []
        return finished

    def _require_finite(self, tree: Tree, what: str, actions: Any = None) -> None:
        """Refuse NaN and infinity; `actions` are those of the step."""
        index = not_finite(tree, self.spec.num_envs)
        if index is None:
            return
        given = None if actions is None else np.asarray(actions).reshape(self.spec.num_envs, -1)[index]
        diverged = given is not None and not np.isfinite(given).all()
        why = ", after an action that was not finite either: training has diverged" if diverged else ""
        raise EnvError(
            f"'{self.spec.id}' (environment {index}) returned {what} that is not finite at step {self._count}"
            f"{why or REMEDY}."
        )


class JaxEnv(ABC):
    """Environments as pure functions of a state, batched over `spec.num_envs`."""

    spec: EnvSpec

    @abstractmethod
    def reset(self, key: Array) -> tuple[Tree, Tree]:
        """An initial state and its observation."""

    @abstractmethod
    def step(self, state: Tree, action: Array, key: Array) -> tuple[Tree, Step, Finished]:
        """Act in every environment and reset those whose episode ended."""

    def render(self, state: Tree) -> np.ndarray[Any, Any] | None:
        """An RGB frame of the first environment, where it supports rendering."""
        return None


def numbers(info: Mapping[Any, Any], prefix: str = "") -> dict[str, float]:
    """The finite numbers and booleans in an info."""
    found: dict[str, float] = {}
    for name, value in info.items():
        if isinstance(value, dict):
            found |= numbers(value, f"{prefix}{name}/")
        elif isinstance(value, bool | int | float | np.generic | np.ndarray):
            array = np.asarray(value)
            if array.size == 1 and array.dtype.kind in "biuf" and math.isfinite(number := float(array.item())):
                found[f"{prefix}{name}"] = number
    return found


def seeds(seed: int, num_envs: int) -> list[int]:
    """A seed for each environment, derived from (seed, index)."""
    return [int(np.random.SeedSequence([seed % 2**64, i]).generate_state(1)[0]) >> 1 for i in range(num_envs)]


def optional(module: str, extra: str, env: str) -> Any:
    """A module of an extra; refuses with the command that installs it."""
    return needed(module, extra, f"'{env}'", EnvError)


def cannot_make(env: str, error: Exception, kwargs: Mapping[str, Any], maker: Any = None) -> EnvError:
    """What `error`, raised while `env` was made with these arguments, means: perhaps that it does not take one.

    `maker` is the class or function whose signature lists the arguments, where known.
    """
    if isinstance(error, EnvError):
        return error
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if found is None or found[1] not in kwargs:
        return EnvError(f"'{env}' cannot be made: {sentence(error)}.")
    parameters = inspect.signature(maker).parameters.values() if callable(maker) else []
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    known = [parameter.name for parameter in parameters if parameter.kind in kinds]
    return unknown_argument(env, found[1], known)


def unknown_argument(env: str, name: str, known: Iterable[str]) -> EnvError:
    """The refusal of an argument, with those that are `known`."""
    takes = ", ".join(known)
    return EnvError(
        f"'{env}' takes no argument '{name}'{nearest(name, known)}{f' (it takes {takes})' if takes else ''}."
    )
