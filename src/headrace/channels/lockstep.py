"""Questions and answers: a request slot and a reply slot for each of many clients of one server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from headrace.channels.memory import Layout, fence
from headrace.channels.wait import Alive, wait
from headrace.types import Tree


class Lockstep:
    """The slots, `[replicas, ...]`, and how many requests each replica has sent and had answered.

    A client or server that is replaced carries on: a request without an answer stays one.
    """

    def __init__(self, layout: Layout, request: Tree, reply: Tree, replicas: int):
        self.replicas = replicas
        self.asked: NDArray[np.int64] = layout.counters(replicas)
        self.answered: NDArray[np.int64] = layout.counters(replicas)
        self.requests: Tree = layout.tree(request, replicas)
        """All requests side by side, so that those of all replicas are one batch without a copy."""
        self.replies: Tree = layout.tree(reply, replicas)


class Request(NamedTuple):
    """One that awaits its reply; the views are valid until then."""

    replica: int
    arrays: Tree


class Client:
    """The asking side of one replica."""

    def __init__(self, lockstep: Lockstep, replica: int):
        self.asked = lockstep.asked[replica : replica + 1]
        self.answered = lockstep.answered[replica : replica + 1]
        self.request = jax.tree.map(lambda leaf: leaf[replica], lockstep.requests)
        self.reply = jax.tree.map(lambda leaf: leaf[replica], lockstep.replies)

    def call(self, arrays: Tree, timeout: float, alive: Alive) -> Tree:
        """Send a request and wait for its reply: views, valid until the next call."""
        self.send(arrays, timeout, alive)
        return self.receive(timeout, alive)

    def send(self, arrays: Tree, timeout: float, alive: Alive) -> None:
        """Send a request."""
        self.receive(timeout, alive)  # a predecessor may have died while the server was reading its request
        _write(self.request, arrays)
        fence()
        self.asked[0] += 1

    def receive(self, timeout: float, alive: Alive) -> Tree:
        """The reply to the request sent, once there is one."""
        wait(lambda: bool(self.answered[0] == self.asked[0]), timeout, alive, "the server's reply")
        return self.reply


class Server:
    """The answering side of all replicas, or of some of them."""

    def __init__(self, lockstep: Lockstep, of: Sequence[int] | None = None):
        self.lockstep = lockstep
        self._of = list(range(lockstep.replicas)) if of is None else list(of)
        self._requests = [jax.tree.map(lambda leaf, r=r: leaf[r], lockstep.requests) for r in range(lockstep.replicas)]
        self._replies = [jax.tree.map(lambda leaf, r=r: leaf[r], lockstep.replies) for r in range(lockstep.replicas)]

    def poll(self) -> list[Request]:
        """The requests that await a reply, in the order of their replicas."""
        asked, answered = self.lockstep.asked, self.lockstep.answered
        waiting = [replica for replica in self._of if asked[replica] > answered[replica]]
        fence()
        return [Request(replica, self._requests[replica]) for replica in waiting]

    def gather(self, number: int, timeout: float, alive: Alive) -> list[Request]:
        """At least `number` requests, once that many await a reply."""
        wait(lambda: len(self.poll()) >= number, timeout, alive, f"{number} requests")
        return self.poll()

    def reply(self, replica: int, arrays: Tree) -> None:
        """Answer the request of a replica; its views are the client's again."""
        _write(self._replies[replica], arrays)
        fence()
        self.lockstep.answered[replica] += 1


def _write(slot: Tree, arrays: Tree) -> None:
    for held, array in zip(jax.tree.leaves(slot), jax.tree.leaves(arrays), strict=True):
        held[...] = array
