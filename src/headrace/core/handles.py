"""The interfaces a loop is written against. How and where they are executed is hidden from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from headrace.types import Batch, Transition, Tree


class Env(ABC):
    """The vectorised environment."""

    @property
    @abstractmethod
    def agents(self) -> int:
        """Number of agents; known when a loop is traced, so it may iterate: `for agent in range(env.agents)`."""

    @abstractmethod
    def observe(self) -> Tree:
        """The current observation of every environment: `[num_envs, ...]`."""

    @abstractmethod
    def step(self, action: Any) -> Transition:
        """Step every environment; environments reset themselves.

        `action` is what an acting stage returned: an action, or `(action, extra)` where the dict `extra`
        is kept with the transition.
        """

    @abstractmethod
    def unroll(self, act: Any, steps: int) -> Transition:
        """`steps` times observe, act, step: a trajectory, `[steps, num_envs, ...]`."""


class Replay(ABC):
    """A store that is sampled with replacement."""

    @abstractmethod
    def insert(self, transition: Transition, capacity: int = 1_000_000) -> None:
        """Keep a transition of every environment, or all steps of a trajectory, in their order.

        The oldest beyond `capacity` are overwritten.
        """

    @abstractmethod
    def sample(
        self, size: int, *, after: int = 0, per_insert: float = 1.0, gamma: float = 0.99, steps: int = 1
    ) -> Batch:
        """A batch of `size`, once `after` transitions are in, `per_insert` replayed for each inserted.

        Rewards are summed over up to `steps` steps with discount `gamma`, never across the end of an episode.
        """


class Rollout(ABC):
    """A first-in, first-out store: each trajectory is learned from once, in order."""

    @abstractmethod
    def put(self, trajectory: Transition) -> None:
        """Add a trajectory; a single step counts as a trajectory of length one."""

    @abstractmethod
    def take(self, epochs: int = 1, staleness: int = 0) -> Transition:
        """The next trajectory.

        `epochs` is how many times the algorithm goes over it, for counting update frames. `staleness` is how many
        weight versions its actor may be behind the learner: 0 unless the algorithm corrects for it.
        """
