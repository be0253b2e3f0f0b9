"""Replay: a store that is sampled with replacement, as a table of rows.

The table is one arena of rows with a stripe for each writer; batches are gathered from it directly. A stripe is a ring
of steps; a step is one row for each of the writer's environments. Rows of one environment follow each other in time, so
sums over n steps are made when sampling, and stop at the end of an episode or of what was written.

Over shared memory (`allocate=arena.array`) each writer is a process of its own. A ring has as many steps more
than it holds as are inserted at once, so those being written are never among those drawn, and draws are the same in
every runtime. What writers overwrite while a batch is copied is detected afterwards by their counters, and drawn again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from headrace.core.handles import Replay
from headrace.core.symbols import Handle, as_struct, checked, leading, require_whole, show
from headrace.errors import LoopError
from headrace.machine import free_memory, gib, require_memory
from headrace.shm.memory import LINE, Arena, fence
from headrace.stores.base import Draw, Leaves, Store, StoreKind
from headrace.types import Batch, Transition, Tree, empty_like, tree_bytes


@dataclass(frozen=True)
class Insert:
    """`replay.insert`."""

    capacity: int
    channel: ClassVar[str] = "table"
    kind: ClassVar[str] = "replay"

    def require(self, row: Tree) -> None:
        require_table(row, self.capacity)

    def make(self, handed: Tree, writers: int, readers: int, ahead: int, arena: Arena) -> Store:
        return Table(handed, writers, self.capacity, allocate=arena.array)


@dataclass(frozen=True)
class Sample(Draw):
    """`replay.sample`."""

    filler: str
    size: int
    after: int
    per_insert: float
    gamma: float
    steps: int
    kind = "replay"
    staleness = None
    fused = True

    @cached_property
    def _rate(self) -> tuple[int, int]:
        # In whole numbers, so that the rate cannot drift, and taken apart once: it is asked for at every step.
        return (Fraction(self.per_insert).limit_denominator(1_000_000) / self.size).as_integer_ratio()

    def rate(self, collected: int) -> Fraction:
        return Fraction(*self._rate)

    def due(self, collected: int, passes: int) -> int:
        number, each = self._rate
        return max(0, (passes * collected - self.after) * number // each)

    def needed(self, collected: int, learned: int) -> int:
        number, each = self._rate
        return -(-(self.after - (-learned * each // number)) // collected) if learned > 0 else 0

    def frames(self, collected: int) -> int:
        return self.size


class SymbolicReplay(Handle, Replay):
    """Records insertions and samples."""

    @checked
    def insert(self, transition: Transition, capacity: int = 1_000_000) -> None:
        if not isinstance(transition, Transition):
            raise LoopError(
                f"{self.name}.insert takes a Transition, as env.step and env.unroll give one, got {show(transition)}."
            )
        require_whole(f"{self.name}.insert", capacity=(capacity, 1))
        lead = len(leading(self.tracer, f"{self.name}.insert", transition))
        self.tracer.keep(self.name, jax.tree.map(as_struct, transition))
        self.tracer.add("store", f"{self.name}.insert", {"transition": transition}, (), operation=Insert(capacity))
        self.row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[lead:], leaf.dtype), transition)

    @checked
    def sample(
        self, size: int, *, after: int = 0, per_insert: float = 1.0, gamma: float = 0.99, steps: int = 1
    ) -> Batch:
        if self.row is None:
            raise LoopError(f"the loop samples from '{self.name}' before it inserts; call {self.name}.insert first.")
        require_whole(f"{self.name}.sample", size=(size, 1), after=(after, 0), steps=(steps, 1))
        row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((size, *leaf.shape), leaf.dtype), self.row)
        number = jax.ShapeDtypeStruct((size,), jnp.dtype("float32"))
        batch = Batch(row.obs, row.action, number, number, row.next_obs, row.extra)
        how = Sample(f"{self.name}.insert", size, after, per_insert, gamma, steps)
        drawn: Batch = self.tracer.add("store", f"{self.name}.sample", {}, batch, operation=how)
        return drawn


KIND = StoreKind(Replay, SymbolicReplay)


class Table(Store):
    """Transitions of `writers` times `envs` environments; the oldest are overwritten."""

    def __init__(self, handed: Transition, writers: int, capacity: int, allocate: Callable[..., Any] = np.zeros):
        """`handed` has the shapes of what one writer inserts at once: `[envs, ...]`, or `[steps, envs, ...]`."""
        *together, self.envs = handed.reward.shape
        self.together = together[0] if together else 1
        """Steps that are inserted and committed together."""
        self.steps = max(1, capacity // (writers * self.envs))
        self.ring = self.steps + self.together
        self.writers = writers
        lead = len(handed.reward.shape)
        row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[lead:], leaf.dtype), handed)
        if allocate is np.zeros:  # other memory was checked when it was allocated, and may hold rows already
            require_table(row, writers * self.steps * self.envs)
        self.rows: Transition = empty_like(row, writers * self.ring * self.envs, make=allocate)
        # Views [writer, step, env, ...] of the same memory, for writing.
        self.stripes = [
            leaf.reshape(writers, self.ring, self.envs, *leaf.shape[1:]) for leaf in jax.tree.leaves(self.rows)
        ]
        self.written: Any = allocate((writers, LINE // 8), np.int64)[:, 0]
        """Steps each writer has ever committed; the successor of a writer continues from there."""

    @property
    def inserted(self) -> int:
        """Transitions ever inserted."""
        return int(self.written.sum()) * int(self.envs)

    def room(self, writer: int, number: int) -> Leaves | None:
        return None

    def insert(self, rows: Transition | Leaves, writer: int = 0, number: int | None = None) -> bool:
        """Write a transition or trajectory, or its arrays in order, then commit it."""
        if number is not None and self.written[writer] > number * self.together:
            return True  # inserted by a predecessor before it died
        at = self.written[writer] % self.ring
        if self.together > 1:
            at = (at + np.arange(self.together)) % self.ring
        leaves = rows if type(rows) is list else jax.tree.leaves(rows)
        for stripe, leaf in zip(self.stripes, leaves, strict=True):
            stripe[writer, at] = leaf
        fence()
        self.written[writer] += self.together
        return False

    def draw(self, how: Sample, rng: np.random.Generator, first: int, count: int, reader: int = 0) -> Leaves:
        """A batch for each of `count` passes, along a first axis."""
        return jax.tree.leaves(self.sample(rng, (count, how.size), how.gamma, how.steps))

    def release(self, reader: int, learned: int) -> None:
        """Nothing is reserved for readers."""

    def sample(self, rng: np.random.Generator, lead: tuple[int, ...], gamma: float, steps: int) -> Batch:
        """`lead` rows drawn with replacement, each folded over up to `steps` steps."""
        writer, step, env = self.places(rng, int(np.prod(lead)), steps)
        batch = self.gather(writer, step, env, lead, gamma, steps)
        # The pace lets writers insert only a few steps during a draw, so this ends.
        lost = np.flatnonzero(self._overwritten(writer, step))
        while lost.size:
            writer, step, env = self.places(rng, lost.size, steps)
            fresh = self.gather(writer, step, env, (lost.size,), gamma, steps)
            for held, rows in zip(jax.tree.leaves(batch), jax.tree.leaves(fresh), strict=True):
                held.reshape(-1, *rows.shape[1:])[lost] = rows
            lost = lost[self._overwritten(writer, step)]
        return batch

    def places(
        self, rng: np.random.Generator, number: int, steps: int
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Writer, step (of all it ever wrote) and environment of `number` rows.

        Any row with `steps` - 1 later ones is equally likely.
        """
        written = self.written.copy()  # read once: writers continue meanwhile
        fence()
        held = np.minimum(written, self.steps)
        starts = np.maximum(held - (steps - 1), 0)
        if not starts.any():
            starts = held  # fewer steps were inserted: sums stop at the last one
        bounds = np.cumsum(starts * self.envs)
        at = rng.integers(0, bounds[-1], number)
        writer = np.searchsorted(bounds, at, side="right") if self.writers > 1 else np.zeros(number, np.int64)
        within = at - (bounds - starts * self.envs)[writer]
        step = (written - held)[writer] + within // self.envs
        return writer, step, within % self.envs

    def _overwritten(self, writer: NDArray[Any], step: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of these steps were or are being overwritten. Later steps are newer and need no check."""
        fence()  # after the rows were read
        lost: NDArray[np.bool_] = step < (self.written - self.steps)[writer]
        return lost

    def gather(
        self,
        writer: NDArray[Any],
        step: NDArray[Any],
        env: NDArray[Any],
        lead: tuple[int, ...],
        gamma: float,
        steps: int,
    ) -> Batch:
        """The rows at the places drawn, as batches of shape `lead`."""
        base, stride = writer * self.ring, self.envs
        first = last = (base + step % self.ring) * stride + env
        rows = self.rows
        reward = rows.reward[first]
        power = np.full(first.shape, gamma, np.float32)
        if steps > 1:
            newest = (self.written - 1)[writer]
            open_ = ~(rows.terminated[first] | rows.truncated[first])
            for _ in range(steps - 1):
                open_ &= step < newest
                step = np.where(open_, step + 1, step)
                last = (base + step % self.ring) * stride + env
                reward = reward + power * open_ * rows.reward[last]
                power = np.where(open_, power * np.float32(gamma), power)
                open_ &= ~(rows.terminated[last] | rows.truncated[last])

        def take(tree: Tree, at: NDArray[Any]) -> Tree:
            # mode="clip" lets take write straight into its output, without a buffer in between.
            return jax.tree.map(
                lambda leaf: np.take(leaf, at, axis=0, mode="clip").reshape(*lead, *leaf.shape[1:]), tree
            )

        return Batch(
            obs=take(rows.obs, first),
            action=take(rows.action, first),
            reward=reward.reshape(lead),
            discount=(power * ~rows.terminated[last]).astype(np.float32).reshape(lead),
            next_obs=take(rows.next_obs, last),
            extra=take(rows.extra, first),
        )

    def contents(self) -> dict[str, Any]:
        """The rows written, and how many there ever were, for a checkpoint."""
        held = int(min(self.written.max(initial=0), self.ring))
        return {"rows": [stripe[:, :held] for stripe in self.stripes], "written": self.written.copy()}

    def fill(self, contents: dict[str, Any] | None, passes: int = 0) -> None:
        """Restore the contents of a table; the next rows do not continue its episodes."""
        assert contents is not None
        for stripe, rows in zip(self.stripes, contents["rows"], strict=True):
            stripe[:, : rows.shape[1]] = rows
        self.written[:] = contents["written"]
        for writer in range(self.writers):
            self.sever(writer)

    def sever(self, writer: int) -> None:
        """Mark a writer's newest step as truncated: the next rows do not continue its episode."""
        if self.written[writer]:
            at = (writer * self.ring + (self.written[writer] - 1) % self.ring) * self.envs
            newest = slice(at, at + self.envs)
            self.rows.truncated[newest] |= ~self.rows.terminated[newest]


def require_table(row: Transition, rows: int) -> None:
    """Refuse a table that would not fit into memory."""
    each = tree_bytes(row)
    most = int(0.9 * free_memory() / each)
    require_memory(
        f"a replay store of {rows:{',' if rows < 1e15 else '.3g'}} transitions of {gib(each)}",
        each * rows,
        f"set replay_capacity to at most {most:,}",
    )
