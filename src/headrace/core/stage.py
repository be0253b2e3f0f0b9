"""Stages: pure functions whose signature is their dataflow.

    @stage
    def learn(self, batch, target: Reads, critic: Writes, key): ...

`batch` is data, `target` and `critic` are cells, `key` is a random key derived from (seed, node, pass,
replica). A stage that writes returns `(written cells, metrics)`; one that only reads returns data.
Called with every argument, a stage is the plain function it decorates. Called inside a loop that is
being traced, with its data only, it becomes a node of the graph; `self.learn.on(critic="other")` is the same
stage with another cell behind that argument.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Protocol, get_args

from headrace.core.replicas import holding
from headrace.errors import LoopError, nearest
from headrace.types import EnvSpec, Tree


class Use(Enum):
    """How a stage uses a cell."""

    READS = "reads"
    WRITES = "writes"


Reads = Annotated[Any, Use.READS]
"""Marks a stage's argument as a cell it reads: it gets the cell's module."""

Writes = Annotated[Any, Use.WRITES]
"""Marks a stage's argument as a cell it writes: it gets the cell and returns it changed."""

KEY = "key"


@dataclass(frozen=True)
class Signature:
    """What a stage takes, in the order of its arguments."""

    data: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    wants_key: bool

    @property
    def cells(self) -> tuple[str, ...]:
        return self.reads + self.writes


class LoopTracer(Protocol):
    """What handles and stages report to while a loop is traced; `headrace.graph.trace` has the one there is."""

    spec: EnvSpec
    nodes: list[Any]
    times: int

    def add(self, kind: Any, name: str, inputs: dict[str, Any], output: Tree, **more: Any) -> Tree: ...

    def keep(self, store: str, value: Tree) -> None: ...

    def symbols(self, node_id: str, output: Tree) -> Tree: ...

    def stage(self, stage: BoundStage, data: tuple[Any, ...], options: dict[str, Any]) -> Any: ...


_tracer: ContextVar[LoopTracer | None] = ContextVar("tracer", default=None)


def tracing(tracer: LoopTracer | None) -> AbstractContextManager[None]:
    """Have stages called in this block recorded by `tracer`; with None they run as plain functions."""
    return holding(_tracer, tracer)


class Stage:
    """A decorated function, found on the class of its algorithm."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__

    def __get__(self, algorithm: Any, owner: type | None = None) -> Any:
        return self if algorithm is None else BoundStage(self, algorithm)

    @cached_property
    def signature(self) -> Signature:
        """Which arguments are data, cells read, cells written and the key, from the annotations."""
        try:
            hints = inspect.get_annotations(self.function, eval_str=True)
        except NameError as error:
            raise LoopError(f"stage '{self.name}' has an annotation that cannot be read: {error}.") from None
        names = list(inspect.signature(self.function).parameters)[1:]
        uses = {name: next((a for a in get_args(hints.get(name)) if isinstance(a, Use)), None) for name in names}
        return Signature(
            data=tuple(name for name in names if uses[name] is None and name != KEY),
            reads=tuple(name for name in names if uses[name] is Use.READS),
            writes=tuple(name for name in names if uses[name] is Use.WRITES),
            wants_key=KEY in names,
        )


class BoundStage:
    """A stage of one algorithm."""

    def __init__(self, stage: Stage, algorithm: Any, names: Mapping[str, str] | None = None):
        self.stage, self.algorithm, self.name = stage, algorithm, stage.name
        self.names = dict(names or {})
        """The cell of each argument that is bound to a cell of another name."""

    def on(self, **names: str) -> BoundStage:
        """The stage with other cells bound to its arguments: `self.learn.on(actor="actor_1")(trajectory)`."""
        known = self.signature.cells
        for argument in names:
            if argument not in known:
                raise LoopError(
                    f"stage '{self.name}' takes no cell '{argument}'"
                    f"{nearest(argument, known)} (cells: {', '.join(known) or 'none'})."
                )
        return BoundStage(self.stage, self.algorithm, self.names | names)

    def cell(self, argument: str) -> str:
        """The name of the cell bound to an argument."""
        return self.names.get(argument, argument)

    @property
    def signature(self) -> Signature:
        return self.stage.signature

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracer = _tracer.get()
        if tracer is not None:
            return tracer.stage(self, args, kwargs)
        return self.stage.function(self.algorithm, *args, **kwargs)


def stage(function: Callable[..., Any]) -> Any:
    """Make a method of an algorithm a stage."""
    return Stage(function)
