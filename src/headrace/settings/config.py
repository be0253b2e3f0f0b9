"""Settings: frozen dataclasses whose fields carry their own documentation and refuse nonsense at birth."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.errors import ConfigError
from headrace.settings.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings every algorithm has."""

    num_envs: int = 8
    """Environments stepped side by side, over all replicas together."""

    def __post_init__(self) -> None:
        self.at_least("num_envs", 1)
        self.check()

    def check(self) -> None:
        """Refuse contradictory settings by raising `ConfigError`; called when the config is made."""

    def share(self: C, replicas: int, batches: bool = True) -> C:
        """The settings of one of `replicas` replicas of the whole loop.

        Each has its part of the environments and of what is kept; with `batches`, of every batch too, where their
        gradients are averaged.
        """
        changed: C = dataclasses.replace(self, **self.parts(replicas, batches))
        return changed

    def parts(self, replicas: int, batches: bool) -> dict[str, Any]:
        """What `share` changes."""
        return {"num_envs": self.part("num_envs", replicas)}

    def part(self, name: str, replicas: int) -> int:
        """A setting divided by the number of replicas; refused where it does not divide."""
        value: int = getattr(self, name)
        if value % replicas:
            raise ConfigError(
                f"{name}={value} cannot be divided among {replicas} replicas of the loop; "
                f"set {name} to a multiple of {replicas}."
            )
        return value // replicas

    def at_least(self, name: str, low: float, because: str = "") -> None:
        """Refuse a setting below `low`."""
        value = getattr(self, name)
        if not min(_ends(value)) >= low:
            raise ConfigError(f"{name}={value} must be at least {because or format(low, 'g')}.")

    def above(self, name: str, low: float) -> None:
        """Refuse a setting that is not a finite number above `low`; a schedule may end there."""
        value = getattr(self, name)
        if not (low < _ends(value)[0] < math.inf and min(_ends(value)) >= low):
            raise ConfigError(f"{name}={value} must be above {low:g}.")

    def within(self, name: str, low: float, high: float) -> None:
        """Refuse a setting outside [low, high]."""
        value = getattr(self, name)
        if not all(low <= end <= high for end in _ends(value)):
            raise ConfigError(f"{name}={value} must lie between {low:g} and {high:g}.")


@dataclass(frozen=True, kw_only=True)
class NetConfig(Config):
    """Settings of every algorithm that learns networks."""

    learning_rate: float | Schedule = 3e-4
    """Step size of Adam: a number, or a schedule such as linear:3e-4:0:1e5."""
    gamma: float = 0.99
    """Discount factor per step."""
    hidden: tuple[int, ...] = (256, 256)
    """Sizes of the hidden layers."""
    activation: str = "relu"
    """Activation function: relu, tanh, elu, silu or gelu."""
    encoder: str = "auto"
    """Convolutional encoder for images: auto (nature, or small for small images), nature, impala, small; flat: none."""
    network: Callable[..., Any] | None = None
    """Builds every network in place of the default MLP: `network(inputs, outputs, key, **hints)`."""

    def check(self) -> None:
        self.within("gamma", 0, 1)
        self.above("learning_rate", 0)
        if any(size < 1 for size in self.hidden):
            raise ConfigError(f"hidden={self.hidden} must be sizes of at least 1.")


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(NetConfig):
    """Settings of every loop that learns from a replay store."""

    batch_size: int = 256
    """Transitions in one update."""
    tune_batch_size: bool = False
    """Whether the tuner may choose batch_size."""
    replay_capacity: int = 1_000_000
    """Transitions the replay store holds; the oldest are overwritten."""
    samples_per_insert: float = 16.0
    """Transitions sampled from the replay store for each one inserted: the replay ratio."""
    warmup: int = 1_000
    """Transitions collected before the first update."""
    n_step: int = 1
    """Steps of n-step returns: rewards summed before bootstrapping from the value."""

    def check(self) -> None:
        NetConfig.check(self)
        self.at_least("batch_size", 1)
        self.at_least("n_step", 1)
        self.at_least("warmup", self.batch_size, f"batch_size={self.batch_size}")
        self.at_least("replay_capacity", self.warmup, f"warmup={self.warmup}")
        self.above("samples_per_insert", 0)

    def parts(self, replicas: int, batches: bool) -> dict[str, Any]:
        kept = {"replay_capacity": self.replay_capacity // replicas, "warmup": -(-self.warmup // replicas)}
        batch = self.part("batch_size", replicas) if batches else self.batch_size
        # A share of the warm-up may be less than the whole batch that is drawn after it.
        kept = {name: max(value, batch) for name, value in kept.items()}
        return NetConfig.parts(self, replicas, batches) | kept | {"batch_size": batch}


@dataclass(frozen=True, kw_only=True)
class TrajectoryConfig(NetConfig):
    """Settings of every loop that learns from each trajectory as it comes."""

    horizon: int = 128
    """Steps of each environment in one trajectory."""

    def check(self) -> None:
        NetConfig.check(self)
        self.at_least("horizon", 1)


@dataclass(frozen=True, kw_only=True)
class RolloutConfig(TrajectoryConfig):
    """Settings of every loop that goes over each trajectory several times, in minibatches."""

    epochs: int = 4
    """Optimisation epochs over each trajectory."""
    minibatch_size: int = 256
    """Transitions in one minibatch."""

    def check(self) -> None:
        TrajectoryConfig.check(self)
        self.at_least("epochs", 1)
        self.at_least("minibatch_size", 1)
        size = self.horizon * self.num_envs
        if size % self.minibatch_size:
            raise ConfigError(
                f"minibatch_size={self.minibatch_size} must divide horizon * num_envs = "
                f"{self.horizon} * {self.num_envs} = {size}."
            )

    def parts(self, replicas: int, batches: bool) -> dict[str, Any]:
        divided = super().parts(replicas, batches)
        return divided | ({"minibatch_size": self.part("minibatch_size", replicas)} if batches else {})


C = TypeVar("C", bound=Config)


def _ends(value: Any) -> tuple[Any, ...]:
    """The values a setting may take: itself, or the start and end of its schedule."""
    return (value.start, value.end) if isinstance(value, Schedule) else (value,)
