"""What a loop talks to. A loop never sees how these are carried out, nor where."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from headrace.types import Batch, Transition, Tree


class Env(ABC):
    """The vectorised environment."""

    @property
    @abstractmethod
    def agents(self) -> int:
        """How many act in it together: known when a loop is traced, `for agent in range(env.agents)`."""

    @abstractmethod
    def observe(self) -> Tree:
        """What every environment shows now: `[num_envs, ...]`."""

    @abstractmethod
    def step(self, action: Any) -> Transition:
        """Act in every environment; resets are the environment's own business.

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

        The oldest beyond `capacity` are forgotten.
        """

    @abstractmethod
    def sample(
        self, size: int, *, after: int = 0, per_insert: float = 1.0, gamma: float = 0.99, steps: int = 1
    ) -> Batch:
        """A batch of `size`, once `after` transitions are in, `per_insert` replayed for each inserted.

        Rewards are summed over up to `steps` steps with discount `gamma`, never across the end of an episode.
        """


class Rollout(ABC):
    """A store whose trajectories are each learned from once, in order."""

    @abstractmethod
    def put(self, trajectory: Transition) -> None:
        """Hand over a trajectory; a single step is taken as a trajectory of one."""

    @abstractmethod
    def take(self, epochs: int = 1, staleness: int = 0) -> Transition:
        """The next trajectory.

        `epochs` says how often learning goes over it: it counts in update frames. `staleness` says how many
        versions behind the learner its actor may have been: 0 unless the algorithm corrects for it.
        """
