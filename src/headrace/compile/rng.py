"""Random keys, derived from (seed, node, pass, replica), never from the order of arrival."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from headrace.graph import Graph, Node
from headrace.types import Array


class PassRng(NamedTuple):
    """Base keys and the pass number: the random keys of a pass are derived from these."""

    bases: Array
    """uint32[nodes, 2]: a key for each node of the graph, from (seed, node, replica)."""
    number: Array
    """The pass number."""


def bases(graph: Graph, seed: int, replica: int) -> NDArray[np.uint32]:
    """The base keys of a replica."""
    names = [f"{seed}/{node.id}/{replica}".encode() for node in (*graph.nodes, *graph.play.nodes)]
    sums = b"".join(hashlib.blake2b(name, digest_size=8).digest() for name in names)
    return np.frombuffer(sums, np.uint32).reshape(-1, 2).copy()


def consecutive(first: PassRng, count: int) -> Array:
    """The numbers of `count` consecutive passes."""
    return first.number + jnp.arange(count, dtype=jnp.uint32)


def node_key(node: Node, rng: PassRng) -> Array:
    """The random key of a node in a pass of a replica."""
    return jax.random.fold_in(jax.random.wrap_key_data(rng.bases[node.index]), rng.number)


def draws(node: Node, rng: PassRng) -> np.random.Generator:
    """The NumPy generator of a node, for stores that are sampled on the host."""
    base = rng.bases[node.index].view(np.uint64)[0]
    return np.random.Generator(np.random.Philox(key=[base, int(rng.number)]))
