"""Data-parallel replicas: their arrays over the devices of one process or of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from headrace.compile.replicas import AXIS, learning_together
from headrace.compile.rng import PassRng
from headrace.errors import FragmentError
from headrace.types import Array

APART = (
    "the replicas have come apart: a stage writes a cell from what one replica alone has seen; "
    "average that with headrace.core.averaged."
)


class Group:
    """A mesh with a device for each replica, including those of this process."""

    def __init__(self, mesh: Any):
        self.mesh = mesh
        self.alike, self.apart = NamedSharding(mesh, P()), NamedSharding(mesh, P(AXIS))

    def own(self, leaf: Any) -> Array:
        """An array over all replicas, from the leading axis of this process's replicas."""
        return jax.make_array_from_process_local_data(self.apart, np.asarray(leaf))

    def same(self, leaf: Any) -> Array:
        """An array that is the same in all replicas."""
        local = jnp.asarray(leaf)
        near = [device for device in self.mesh.devices.flat if device.process_index == jax.process_index()]
        return jax.make_array_from_single_device_arrays(
            local.shape, self.alike, [jax.device_put(local, device) for device in near]
        )

    def run(
        self, program: Callable[..., Any], flat: Sequence[Array], data: Any, rng: PassRng, *more: Any
    ) -> tuple[list[Array], Any]:
        """A learning program over all replicas. Everything but the cells and the pass number has a leading axis
        of this process's replicas."""
        shared = [self.same(leaf) for leaf in flat]
        rngs = PassRng(self.own(rng.bases), self.same(rng.number))
        cells, report = program(shared, jax.tree.map(self.own, data), rngs, *map(self.own, more))
        same(cells)
        near: tuple[list[Array], Any] = jax.tree.map(lambda leaf: leaf.addressable_data(0), (cells, report))
        return near


def mesh_of(number: int) -> Any:
    """A device of this process for each replica; None where there are not as many, or there is one replica only."""
    devices = jax.devices()
    if number == 1 or len(devices) < number:
        return None
    # Auto axes: arrays from the host are laid out as the program asks for it.
    return jax.make_mesh((number,), (AXIS,), devices=devices[:number], axis_types=(jax.sharding.AxisType.Auto,))


def same(arrays: list[Array]) -> None:
    """Refuse replicas whose cells differ."""
    for array in arrays:
        copies = [np.asarray(shard.data) for shard in array.addressable_shards]
        if any(not np.array_equal(copies[0], other, equal_nan=True) for other in copies[1:]):
            raise FragmentError(APART)


def joined(program: Callable[..., Any], number: int) -> Callable[..., Any]:
    """A learning program over `number` data-parallel replicas, each in a process with a device of its own."""
    group = Group(mesh_of(number))
    compiled = jax.jit(learning_together(program, number, group.mesh), donate_argnums=0)

    def call(flat: Sequence[Array], values: Any, rng: PassRng) -> tuple[list[Array], Any]:
        own, keys = jax.tree.map(lambda leaf: np.asarray(leaf)[None], (values, rng.bases))
        return group.run(compiled, flat, own, rng._replace(bases=keys))

    return call
