"""Several seeds of a loop over a JAX environment, advanced as one program: the loop is mapped over an axis of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headrace.compile.rng import PassRng
from headrace.runtimes.pure import Carry, Counts, Pure
from headrace.types import Array, Tree


class SeedBatch:
    """Runs whole loops that differ only in their seed; each gets its own part of the result.

    A seed computes what it computes alone up to rounding: a matrix product over a batch of seeds may add in another
    order.
    """

    def __init__(self, loops: Sequence[Pure]):
        self.places = {id(loop): i for i, loop in enumerate(loops)}
        self.first = loops[0]
        self.bases = jnp.asarray(np.stack([loop.bases for loop in loops]))
        carries = [loop.carry for loop in loops]
        for loop in loops:
            loop.carry = None  # type: ignore[assignment] # or a replay table would be there twice
        self.carry: Carry = jax.tree.map(lambda *leaves: jnp.stack(leaves), *carries)
        self._hand_out(loops)
        self.cycle = jax.jit(self._all, static_argnums=(4, 5), donate_argnums=0)

    def advance(self, loops: Sequence[Pure]) -> None:
        """A cycle of all loops. Each then calls `take` for its part; loops that have ended are computed too."""
        self.passes, self.learned = loops[0].due()
        numbers = np.uint32(loops[0].progress.passes), tuple(np.uint32(number) for number in loops[0].numbers)
        self.carry, *produced = self.cycle(self.carry, self.bases, *numbers, self.passes, self.learned)
        self._hand_out(loops)
        self.produced = jax.tree.map(np.asarray, produced)

    def take(self, loop: Pure) -> None:
        """Let a loop record what the cycle has done."""
        place = self.places[id(loop)]
        loop.take(self.passes, self.learned, *jax.tree.map(lambda leaf: leaf[place], self.produced))

    def _all(
        self, carry: Carry, bases: Array, began: Array, learning: tuple[Array, ...], passes: int, learned: Counts
    ) -> tuple[Carry, Any, Any]:
        def one(own: Carry, keys: Array) -> Any:
            rngs = tuple(PassRng(keys, number) for number in learning)
            return self.first.one_cycle(own, PassRng(keys, began), rngs, passes=passes, learned=learned)

        return jax.vmap(one)(carry, bases)  # type: ignore[no-any-return]

    def _hand_out(self, loops: Sequence[Pure]) -> None:
        for loop in loops:
            loop.carry = Share(self.carry, self.places[id(loop)])  # type: ignore[assignment]


class Share:
    """The carry of one seed, sliced out of the whole when needed."""

    def __init__(self, whole: Carry, place: int):
        self.whole = whole
        self.place = place

    def __getattr__(self, name: str) -> Tree:
        return _part(getattr(self.whole, name), np.int32(self.place))

    def _asdict(self) -> dict[str, Tree]:
        return {name: getattr(self, name) for name in Carry._fields}


@jax.jit
def _part(tree: Tree, place: Array) -> Tree:
    """The part of one seed, by one program for all arrays and seeds, instead of one for each slice."""
    return jax.tree.map(lambda leaf: leaf[place], tree)


def alike(loops: Sequence[Any]) -> bool:
    """Whether these can be advanced as one program: whole loops that have come equally far."""
    return all(isinstance(loop, Pure) and loop.shares == 1 for loop in loops) and all(
        loop.progress.counters() == loops[0].progress.counters() for loop in loops
    )
