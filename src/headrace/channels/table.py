"""The replay table: one arena of rows, a stripe for each writer, gathered from directly.

A stripe is a ring of steps; a step is one row for each of the writer's environments. Rows of one
environment follow each other in time, so sums over n steps are made when sampling, and stop at the
end of an episode or of what was written.

Over shared memory (`allocate=layout.array`) each writer is a process of its own. A ring has as many steps more
than it holds as are inserted at once, so those being written are never among those drawn, and draws are the same in
every runtime.
What writers overwrite while a batch is copied is found afterwards, by their counters, and drawn anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from headrace.channels.memory import LINE, fence
from headrace.graph import Graph
from headrace.graph.compile import Ticket, draws
from headrace.graph.ir import Node
from headrace.graph.operations import Sample
from headrace.machine import free_memory, gib, require_memory
from headrace.types import Batch, Transition, Tree, empty_like, tree_bytes


class Table:
    """Transitions of `writers` times `envs` environments; the oldest are overwritten."""

    def __init__(self, handed: Transition, writers: int, capacity: int, allocate: Callable[..., Any] = np.zeros):
        """`handed` has the shapes of what one writer inserts at once: `[envs, ...]`, or `[steps, envs, ...]`."""
        *together, self.envs = handed.reward.shape
        self.together = together[0] if together else 1
        """Steps that are inserted, and committed, at once."""
        self.steps = max(1, capacity // (writers * self.envs))
        self.ring = self.steps + self.together
        self.writers = writers
        lead = len(handed.reward.shape)
        row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[lead:], leaf.dtype), handed)
        if allocate is np.zeros:  # other memory was checked by whoever made it, and may be full of this table's rows
            require_table(row, writers * self.steps * self.envs)
        self.rows: Transition = empty_like(row, writers * self.ring * self.envs, make=allocate)
        # Views [writer, step, env, ...] of the same memory, for writing.
        self.stripes = [
            leaf.reshape(writers, self.ring, self.envs, *leaf.shape[1:]) for leaf in jax.tree.leaves(self.rows)
        ]
        self.written: Any = allocate((writers, LINE // 8), np.int64)[:, 0]
        """Steps each writer has ever committed; a writer that is replaced goes on from there."""

    @property
    def inserted(self) -> int:
        """Transitions ever inserted."""
        return int(self.written.sum()) * int(self.envs)

    def insert(self, transition: Transition | list[Any], writer: int = 0) -> None:
        """Write what is inserted at once, a transition or its arrays in order, then commit it."""
        at = self.written[writer] % self.ring
        if self.together > 1:
            at = (at + np.arange(self.together)) % self.ring
        leaves = transition if type(transition) is list else jax.tree.leaves(transition)
        for stripe, leaf in zip(self.stripes, leaves, strict=True):
            stripe[writer, at] = leaf
        fence()
        self.written[writer] += self.together

    def batches(self, source: Node, ticket: Ticket, number: int) -> Batch:
        """What a `replay.sample` asks for in so many passes: a batch for each, along a first axis."""
        how = source.operation
        assert isinstance(how, Sample)
        return self.sample(draws(source, ticket), (number, how.size), how.gamma, how.steps)

    def sample(self, rng: np.random.Generator, lead: tuple[int, ...], gamma: float, steps: int) -> Batch:
        """`lead` rows drawn with replacement, each folded over up to `steps` steps."""
        writer, step, env = self.draw(rng, int(np.prod(lead)), steps)
        batch = self.gather(writer, step, env, lead, gamma, steps)
        # The limiter lets writers go on by some steps only while this side draws, so this ends.
        lost = np.flatnonzero(self._overwritten(writer, step))
        while lost.size:
            writer, step, env = self.draw(rng, lost.size, steps)
            fresh = self.gather(writer, step, env, (lost.size,), gamma, steps)
            for held, rows in zip(jax.tree.leaves(batch), jax.tree.leaves(fresh), strict=True):
                held.reshape(-1, *rows.shape[1:])[lost] = rows
            lost = lost[self._overwritten(writer, step)]
        return batch

    def draw(
        self, rng: np.random.Generator, number: int, steps: int
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Writer, step (of all it ever wrote) and environment of `number` rows.

        Any row with `steps` - 1 later ones is equally likely.
        """
        written = self.written.copy()  # once: writers go on meanwhile
        fence()
        held = np.minimum(written, self.steps)
        starts = np.maximum(held - (steps - 1), 0)
        if not starts.any():
            starts = held  # fewer steps than asked are in: sums stop at the last one written
        bounds = np.cumsum(starts * self.envs)
        at = rng.integers(0, bounds[-1], number)
        writer = np.searchsorted(bounds, at, side="right") if self.writers > 1 else np.zeros(number, np.int64)
        within = at - (bounds - starts * self.envs)[writer]
        step = (written - held)[writer] + within // self.envs
        return writer, step, within % self.envs

    def _overwritten(self, writer: NDArray[Any], step: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of these steps are overwritten, or being so. Those after them are younger and need no check."""
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
        """What a checkpoint keeps: the rows written, and how many there ever were."""
        held = int(min(self.written.max(initial=0), self.ring))
        return {"rows": [stripe[:, :held] for stripe in self.stripes], "written": self.written.copy()}

    def fill(self, contents: dict[str, Any]) -> None:
        """Take over the contents of another table; what is inserted next does not follow them."""
        for stripe, rows in zip(self.stripes, contents["rows"], strict=True):
            stripe[:, : rows.shape[1]] = rows
        self.written[:] = contents["written"]
        self.sever()

    def sever(self, only: int | None = None) -> None:
        """Mark every writer's newest step, or one's, as truncated: what is inserted next does not follow it."""
        for writer in range(self.writers) if only is None else (only,):
            if not self.written[writer]:
                continue
            at = (writer * self.ring + (self.written[writer] - 1) % self.ring) * self.envs
            newest = slice(at, at + self.envs)
            self.rows.truncated[newest] |= ~self.rows.terminated[newest]


def require_store(graph: Graph) -> None:
    """Refuse a loop whose replay store would not fit into memory."""
    if not graph.on_policy:
        lead = graph.env_axis + 1
        row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[lead:], leaf.dtype), graph.stored)
        require_table(row, graph.capacity)


def require_table(row: Transition, rows: int) -> None:
    """Refuse a table that would not fit into memory."""
    each = tree_bytes(row)
    most = int(0.9 * free_memory() / each)
    require_memory(
        f"a replay store of {rows:{',' if rows < 1e15 else '.3g'}} transitions of {gib(each)}",
        each * rows,
        f"set replay_capacity to at most {most:,}",
    )
