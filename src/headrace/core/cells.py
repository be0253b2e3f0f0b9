"""Cells: named state that stages read and write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from headrace.core.replicas import reduce_gradient
from headrace.types import Array, Tree


class Learned(eqx.Module):
    """A module with its optimiser; only `minimise` changes it."""

    module: Any
    state: Tree
    updates: Array
    optimiser: optax.GradientTransformation = eqx.field(static=True)

    def __init__(self, module: Any, optimiser: optax.GradientTransformation):
        self.module = module
        self.optimiser = optimiser
        self.state = optimiser.init(eqx.filter(module, eqx.is_inexact_array))
        self.updates = jnp.zeros((), jnp.int32)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def minimise(self, loss: Callable[[Any], Any], has_aux: bool = False) -> tuple[Learned, Any]:
        """One optimiser step down the gradient of `loss(module)`.

        Returns the changed cell and the loss; with `has_aux`, where `loss` returns a pair, the pair.
        """
        value, gradient = eqx.filter_value_and_grad(loss, has_aux=has_aux)(self.module)
        return self.descend(reduce_gradient(self, gradient)), value

    def descend(self, gradient: Tree) -> Learned:
        """One optimiser step down a gradient."""
        step, state = self.optimiser.update(gradient, self.state, eqx.filter(self.module, eqx.is_inexact_array))
        module = eqx.apply_updates(self.module, step)
        new = (module, state, self.updates + 1)
        changed: Learned = eqx.tree_at(lambda cell: (cell.module, cell.state, cell.updates), self, new)
        return changed


class Tracked(eqx.Module):
    """A module that follows something else: a target network, running statistics, a schedule."""

    module: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def set(self, module: Any) -> Tracked:
        """The cell with another module."""
        return Tracked(module)

    def track(self, source: Learned | Tracked, tau: float | Array) -> Tracked:
        """Polyak averaging: move by `tau` of the difference towards `source`."""

        def move(mine: Any, theirs: Any) -> Any:
            return mine + tau * (theirs - mine) if eqx.is_inexact_array(mine) else theirs

        return Tracked(jax.tree.map(move, self.module, source.module))


Cell = Learned | Tracked
