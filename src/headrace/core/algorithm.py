"""The base of every algorithm: its config, its cells, its stages, its loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

from headrace.core.cells import Cell
from headrace.errors import LoopError
from headrace.settings.config import Config
from headrace.settings.values import override
from headrace.types import EnvSpec, Tree

C = TypeVar("C", bound=Config)


class Algorithm(ABC, Generic[C]):
    """A training algorithm, written once.

    SAC()                    # its defaults
    SAC(batch_size=512)      # some settings of its own
    SAC(SACConfig(...))      # a whole config
    """

    config_type: ClassVar[type[Config]]
    config: C

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__dict__.get("__orig_bases__", ()):  # own bases only: a parent's type must not replace it
            if get_origin(base) is Algorithm:
                cls.config_type = get_args(base)[0]

    def __init__(self, config: C | None = None, **settings: Any):
        if not isinstance(getattr(type(self), "config_type", None), type):
            raise LoopError(
                f"{type(self).__name__} does not say what its config is; "
                f"declare it as 'class {type(self).__name__}(Algorithm[MyConfig])'."
            )
        self.config = override(self.config_type() if config is None else config, settings)  # type: ignore[assignment]

    @property
    def name(self) -> str:
        """Its name on the command line and in run directories."""
        return type(self).__name__.lower()

    @abstractmethod
    def cells(self, spec: EnvSpec, key: Any) -> Mapping[str, Cell]:
        """The state it learns, by name."""

    @abstractmethod
    def play(self, obs: Tree) -> Any:
        """Act without exploration, for evaluation: a stage `play(obs, ...)`, or a method that calls stages."""

    @abstractmethod
    def loop(self, *handles: Any, **named: Any) -> None:
        """One pass of training. Its arguments are `env: Env` and stores, each `Replay` or `Rollout`."""
