"""Data-parallel learning: keeping the replicas of a whole loop identical.

Where a loop is replicated, every replica sees its own data. Gradients are averaged inside `minimise`; statistics of the
data that a cell keeps, or that a loss is scaled by, are pooled here. So all replicas write the same cells, and the
algorithm does not know that there are several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import jax.numpy as jnp

from headrace.types import Array, Tree

T = TypeVar("T")


@dataclass(frozen=True)
class Replicas:
    """The replicas of a loop that average their gradients."""

    number: int
    mean: Callable[[Tree], Tree]
    """The mean of a tree over all of them."""


_replicas: ContextVar[Replicas | None] = ContextVar("replicas", default=None)
_watch: ContextVar[Callable[[Any, Tree], None] | None] = ContextVar("watch", default=None)


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give a context variable a value in this block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def reducing(replicas: Replicas) -> AbstractContextManager[None]:
    """Average gradients and statistics over `replicas` in this block."""
    return holding(_replicas, replicas)


def capturing_gradients(watch: Callable[[Any, Tree], None]) -> AbstractContextManager[None]:
    """Have `watch(cell, gradient)` called for every gradient computed in this block."""
    return holding(_watch, watch)


def reduce_gradient(cell: Any, gradient: Tree) -> Tree:
    """The gradient averaged over replicas; `capturing_gradients` sees it first."""
    watch = _watch.get()
    if watch is not None:
        watch(cell, gradient)
    return averaged(gradient)


def averaged(tree: Tree) -> Tree:
    """The mean of a tree over replicas; the tree itself where there is one replica."""
    replicas = _replicas.get()
    return tree if replicas is None else replicas.mean(tree)


def pooled(values: Array) -> tuple[Array, Array, int]:
    """Mean, variance and number over the first axis, of all replicas' values together."""
    replicas = _replicas.get()
    if replicas is None:
        return values.mean(axis=0), values.var(axis=0), values.shape[0]
    mean = replicas.mean(values.mean(axis=0))
    return mean, replicas.mean(jnp.mean((values - mean) ** 2, axis=0)), values.shape[0] * replicas.number


def standardised(values: Array) -> Array:
    """Values shifted and scaled to mean 0 and deviation 1, over all replicas."""
    mean, var, _ = pooled(values.reshape(-1))
    return (values - mean) / (jnp.sqrt(var) + 1e-8)
