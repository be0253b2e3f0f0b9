"""Symbolic arrays and handles for tracing a loop, shared by the environment and every kind of store."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import jax

from headrace.core.stage import LoopTracer
from headrace.errors import LoopError, nearest
from headrace.types import Tree


@dataclass(frozen=True)
class Ref:
    """One output array of a node."""

    node: str
    leaf: int


class Symbol:
    """Stands for an array while the loop is traced: where it comes from and its shape."""

    def __init__(self, ref: Ref, struct: jax.ShapeDtypeStruct):
        self.ref, self.struct = ref, jax.ShapeDtypeStruct(struct.shape, struct.dtype)
        self.shape, self.dtype = struct.shape, struct.dtype

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} from {self.ref.node}"

    def __bool__(self) -> bool:
        raise LoopError(
            f"the loop branches on {self!r}, but a loop is traced once, before there are values; "
            "decide inside a stage with jnp.where or lax.cond."
        )

    def _refuse(self, *others: Any) -> Any:
        raise LoopError(
            f"the loop calculates with {self!r}, but it only says what flows where; calculate inside a stage."
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = _refuse
    __neg__ = __getitem__ = __lt__ = __le__ = __gt__ = __ge__ = __and__ = __or__ = __invert__ = __iter__ = _refuse


def checked(method: Callable[..., Any]) -> Any:
    """Decorate a handle's method to refuse wrong arguments with a `LoopError`."""
    signature = inspect.signature(method)
    known = list(signature.parameters)[1:]

    @wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        called = f"{self.name}.{method.__name__}"
        for word in named:
            if word not in known:
                raise LoopError(f"{called} takes no '{word}'{nearest(word, known)} (it takes {', '.join(known)}).")
        try:
            signature.bind(self, *given, **named)
        except TypeError as error:
            raise LoopError(f"{called} takes {', '.join(known)}; this call has {error}.") from None
        return method(self, *given, **named)

    return call


class Handle:
    """Base of the symbolic environment and stores that a loop is traced with."""

    def __init__(self, tracer: LoopTracer, name: str):
        self.tracer, self.name = tracer, name
        self.row: Any = None
        """The shapes of what a store was filled with, once it was."""

    def __getattr__(self, word: str) -> Any:
        if word.startswith("_"):
            raise AttributeError(word)
        known = [one for one in dir(type(self)) if not one.startswith("_")]
        raise LoopError(f"'{self.name}' has no '{word}'{nearest(word, known)} (it has {', '.join(known)}).")


def require_whole(called: str, **given: tuple[Any, int]) -> None:
    """Refuse arguments that are not integers of at least a minimum: `name=(value, minimum)`."""
    for name, (value, least) in given.items():
        if not (isinstance(value, int) and value >= least):
            raise LoopError(f"{called} takes a whole number of at least {least} as {name}, got {value!r}.")


def leading(tracer: LoopTracer, called: str, value: Tree) -> tuple[int, ...]:
    """The leading shape of everything put into a store: `[num_envs]`, or `[steps, num_envs]` for a trajectory."""
    step = next((node for node in tracer.nodes if node.name == "env.step"), None)
    if step is None:
        raise LoopError(f"the loop calls {called} before it steps its environment; call env.step or env.unroll first.")
    lead = (*((step.times,) if step.operation.unrolled else ()), tracer.spec.num_envs)
    for leaf in jax.tree.leaves(value):
        if getattr(leaf, "shape", ())[: len(lead)] != lead:
            names = "[steps, num_envs, ...]" if len(lead) == 2 else "[num_envs, ...]"
            raise LoopError(
                f"{called} takes arrays {names}, here beginning with {list(lead)}, one row for each transition; "
                f"got {show(leaf)}."
            )
    return lead


def show(tree: Any) -> str:
    """Shapes for a message: `float32[8,3]`, or a few of them."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape")]
    words = [f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]" for leaf in leaves]
    if not words:
        return f"a {type(tree).__name__}"
    return ", ".join(words[:4]) + (f" and {len(words) - 4} more" if len(words) > 4 else "")


def as_struct(leaf: Any) -> Any:
    return leaf.struct if isinstance(leaf, Symbol) else leaf


def is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)
