"""Cells as flat lists of arrays, the form in which programs take and return them, and their initial values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from headrace.core.cells import Cell, Learned
from headrace.graph import Graph
from headrace.graph.trace import cells_of
from headrace.types import Array

T = TypeVar("T")


def cached_program(graph: Graph, what: Any, make: Callable[[], T]) -> T:
    """A compiled program of a graph, from the graph's cache or made by `make`."""
    if what not in graph.compiled:
        graph.compiled[what] = make()
    found: T = graph.compiled[what]
    return found


def make_cells(algorithm: Any, graph: Graph, seed: int) -> dict[str, Cell]:
    """The cells at the start of a run."""

    def flat(key: Array) -> list[Array]:
        return jax.tree.leaves(eqx.filter(dict(algorithm.cells(graph.spec, key)), eqx.is_array))

    # Not eqx.filter_jit: it never frees a function or its program.
    made = cached_program(graph, "cells", lambda: jax.jit(flat))(jax.random.key(seed))
    cells = CellLayout(cell_shapes(algorithm, graph)).cells(made)
    # Two cells that start from one module (critic and target) must not share buffers: each is donated. And a cell
    # must not change its type when it is first written, as weakly typed scalars do: all would be compiled twice.
    apart: dict[str, Cell] = jax.tree.map(
        lambda leaf: jnp.array(leaf, leaf.dtype, copy=True) if eqx.is_array(leaf) else leaf, cells
    )
    return apart


def cell_shapes(algorithm: Any, graph: Graph) -> dict[str, Cell]:
    """The shapes of the cells: cheap, where the values come from elsewhere."""
    return cached_program(graph, "shapes", lambda: cells_of(algorithm, graph.spec))


def is_array_or_shape(leaf: Any) -> bool:
    """Whether a leaf of a cell is an array or the shape of one."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


class CellLayout:
    """Cells as a flat list of arrays, and back.

    Modules are trees of Python objects; taking them apart at every call would cost as much as a small network.
    """

    def __init__(self, cells: Mapping[str, Cell]):
        arrays, self.static = eqx.partition(dict(cells), is_array_or_shape)
        leaves, self.tree = jax.tree.flatten(arrays)
        self.structs = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
        places = jax.tree.unflatten(self.tree, range(len(leaves)))
        self.modules = {name: tuple(jax.tree.leaves(cell.module)) for name, cell in places.items()}
        """Indices of each cell's module arrays, which its readers see."""
        self.places = {name: tuple(jax.tree.leaves(cell)) for name, cell in places.items()}
        """Indices of all arrays of each cell, including its optimiser's."""

    def flat(self, cells: Mapping[str, Cell]) -> list[Array]:
        """Cells as a flat list of arrays."""
        return jax.tree.leaves(eqx.filter(dict(cells), is_array_or_shape))

    def cells(self, flat: Sequence[Array]) -> dict[str, Cell]:
        """A flat list of arrays as cells."""
        whole: dict[str, Cell] = eqx.combine(jax.tree.unflatten(self.tree, flat), self.static)
        return whole

    def arrays(self, flat: Sequence[Array]) -> dict[str, Any]:
        """A flat list of arrays as a tree by cell name, without static parts, as a checkpoint keeps it."""
        tree: dict[str, Any] = jax.tree.unflatten(self.tree, flat)
        return tree


def make_flat(arrays: Sequence[Any]) -> list[Array]:
    """Copies of the arrays, on the device."""
    return [jnp.array(leaf) for leaf in arrays]


def optimiser_steps(cells: Mapping[str, Cell]) -> int:
    """Optimiser steps of the cell that had most."""
    return max((int(cell.updates) for cell in cells.values() if isinstance(cell, Learned)), default=0)
