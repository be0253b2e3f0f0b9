"""A lane: the environments of one replica and one group, and what a pass does with them, in order.

A pass is a generator that yields what it waits for from another fragment. The caller decides how to wait: a
process of its own polls, inline other sections run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from headrace.compile.cells import cached_program
from headrace.compile.programs import Programs
from headrace.compile.rng import PassRng, bases
from headrace.core.symbols import Ref
from headrace.envs import HostEnv
from headrace.graph.ir import Node
from headrace.graph.sections import refs_of
from headrace.shm.stream import Sender
from headrace.stores import Leaves
from headrace.types import Tree

if TYPE_CHECKING:
    from headrace.exec.collect import Collect

Pass = Iterator[Callable[[], bool]]
"""A pass under way: yields the condition it waits for, and is resumed when that is true."""


class Call:
    """Stages that run as one compiled call, for one slice of the environments."""

    def __init__(self, programs: Programs, nodes: Sequence[Node], wanted: Sequence[Ref], jit: Callable[..., Any]):
        self.nodes = nodes
        self.wanted = list(wanted)
        own = {node.id for node in nodes}
        self.plain = self.wanted == [Ref(nodes[0].id, i) for i in range(len(jax.tree.leaves(nodes[0].output)))]
        """Whether it returns all outputs of one node."""
        self.given = sorted({ref.node for ref in refs_of(nodes) if ref.node not in own})
        """The nodes whose output it takes."""
        self.places = programs.places(nodes)
        read = programs.reader(nodes, self.wanted)
        what = ("call", tuple(own), tuple(self.wanted), jit)
        self.program = cached_program(programs.graph, what, lambda: jit(read))

    def __call__(self, modules: tuple[Any, ...], values: dict[str, Any], rng: PassRng) -> Leaves:
        return [np.asarray(leaf) for leaf in self.program(modules, {name: values[name] for name in self.given}, rng)]


class PassOperation(NamedTuple):
    """One operation of a pass."""

    kind: Literal["observe", "call", "step", "store"]
    nodes: tuple[str, ...]
    waits: tuple[str, ...]
    """The nodes of other fragments whose output it takes, where no earlier operation took it."""
    call: Call | None = None
    modules: int = 0
    """The index of the cells that the call reads."""


class Lane:
    """The environments that one replica has of one group, and what is done with them in a step, in order."""

    def __init__(self, collect: Collect, group: int, env: HostEnv | None):
        self.collect, self.group, self.env = collect, group, env
        self.place = collect.replica * collect.groups + group
        self.writer = group if collect.shares > 1 else self.place
        """Its index among the writers of a store."""
        self.seeds = bases(collect.graph, collect.seed, self.place)
        self.bases = jnp.asarray(self.seeds)  # kept on the device, not sent at every step
        fabric = collect.fabric
        self.received = {s.source.id: fabric.receiver(s, collect.replica, group) for s in collect.streams_in}
        self.sent: dict[str, list[tuple[Sender, tuple[int, ...]]]] = {}
        for stream in collect.streams_out:
            sender = fabric.sender(stream, collect.replica, group)
            self.sent.setdefault(stream.source.id, []).append((sender, stream.leaves))
        self.values: dict[str, Leaves] = {}
        self.apart = bool(self.received or self.sent)
        """Whether it waits for other fragments."""
        self.made = False
        """Whether a predecessor made this step and others have received it."""
        self.buffers: dict[str, dict[int, NDArray[Any]]] = {}
        self.scratch = fabric.scratch(collect.section, collect.replica, group)
        """Progress of environments whose steps are streamed to others, for a successor."""

    def start(self, number: int) -> None:
        """Start new episodes before pass `number`, with a seed of that pass; what came before does not continue."""
        if self.env is None:
            return
        own = self.seeds[self.collect.step_node.index].tolist()
        seed = np.random.SeedSequence([*own, number]).generate_state(1)[0]
        self.observed: Leaves = jax.tree.leaves(self.env.reset(int(seed)))
        self.closing, self.fresh = False, self.observed
        if self.scratch is None:
            for store, *_ in self.collect.fills.values() if number else ():
                store.sever(self.writer)
        elif self.scratch.steps:
            # Others have received steps of an episode that cannot continue: its next step truncates it.
            self.closing, self.observed = True, self.scratch.observed()

    def run(self, number: int) -> Pass:
        """One pass, with buffers for data that is needed for all its steps together."""
        collect = self.collect
        if collect.unrolled:
            self.buffers = collect.rooms(self, number)
        for i in range(collect.times if collect.steps else 0):
            if self.apart:
                yield from self.step(number, i)
            else:
                for operation in collect.steps:
                    self.do(operation, number, i)
        yield from self.end(number)

    def take(self, call: Call, found: Leaves) -> None:
        """Store the outputs of a call."""
        for node in call.nodes:
            self.values[node.id] = [None] * self.collect.width[node.id]
        for ref, leaf in zip(call.wanted, found, strict=True):
            self.values[ref.node][ref.leaf] = leaf

    def keep(self, node: str, i: int, leaves: Leaves) -> None:
        """Store the output of a node at a step, and send it."""
        self.values[node] = leaves
        if not self.made:
            for leaf, held in self.buffers.get(node, {}).items():
                held[i] = leaves[leaf]

    def hand_over(self, node: str, number: int, i: int) -> None:
        for sender, leaves in self.sent.get(node, ()):
            yielded = self.values[node]
            stands = sender.send(number, i, [yielded[leaf] for leaf in leaves])
            if stands is not None:  # others have gone on with what a predecessor sent, made with other weights
                announced = dict(zip(leaves, stands, strict=True))
                self.keep(node, i, [announced.get(leaf, made) for leaf, made in enumerate(yielded)])

    def waits(self, number: int, i: int, sources: Sequence[str]) -> Pass:
        """Wait for outputs of other fragments at a step, and store them."""
        for source in sources:
            receiver = self.received[source]
            if not receiver.ready(number, i):
                yield partial(receiver.ready, number, i)
            self.receive(source, number, i if self.collect.unrolled else ...)

    def receive(self, source: str, number: int, at: int | EllipsisType) -> None:
        """Store the output of a node of another fragment, or one step of it."""
        leaves: Leaves = [None] * self.collect.width[source]
        for leaf, array in zip(self.collect.leaves_in[source], self.received[source].take(number), strict=True):
            leaves[leaf] = array[at]
        self.values[source] = leaves

    def rooms_free(self, nodes: Sequence[str], number: int) -> Pass:
        """Wait until all receivers of these nodes have released an earlier pass."""
        for sender in (sender for node in nodes for sender, _ in self.sent.get(node, ())):
            if not sender.free(number):
                yield partial(sender.free, number)

    def step(self, number: int, i: int) -> Pass:
        """One step: the operations of this fragment in it."""
        if self.scratch is not None:
            self.made = number * self.collect.times + i < self.scratch.steps
        for operation in self.collect.steps:
            yield from self.waits(number, i, operation.waits)
            yield from self.rooms_free(operation.nodes, number)
            self.do(operation, number, i)
            for node in operation.nodes:
                self.hand_over(node, number, i)

    def do(self, operation: PassOperation, number: int, i: int) -> None:
        """Run one operation of a step."""
        kind, nodes, _, call, modules = operation
        if call is not None:
            collect = self.collect
            rng = PassRng(self.bases, np.uint32(number * collect.times + i))
            found = call(collect.modules[modules], self.values, rng)
            if call.plain:
                self.keep(nodes[0], i, found)
                return
            self.take(call, found)
            for node in nodes:
                self.keep(node, i, self.values[node])
        elif kind == "observe":
            self.keep(nodes[0], i, self.observed)
        else:
            self.act(nodes[0], number, i)

    def act(self, node: str, number: int, i: int) -> None:
        """Step the environments."""
        collect, at = self.collect, number * self.collect.times + i
        assert self.env is not None
        if self.made:
            self.values[node] = self.truncated_outcome()
            return
        if self.closing:
            self.closing = False
            self.keep(node, i, self.truncated_outcome())
            self.observed = self.fresh
        else:
            self.env.send(self.values[collect.action.node][collect.action.leaf])
            if collect.stepping is not None:
                collect.stepping()
            step = self.env.receive()
            led_to = flat(step.next_obs)
            self.observed = led_to if step.obs is step.next_obs else flat(step.obs)
            self.keep(node, i, [step.reward, step.terminated, step.truncated, *led_to])
        if self.scratch is not None:
            self.scratch.keep(at + 1, self.observed)

    def truncated_outcome(self) -> Leaves:
        """The outcome of a step without an environment: the episode is truncated where it was."""
        size = len(self.observed[0])
        over = np.ones(size, bool)
        return [np.zeros(size, np.float32), ~over, over, *self.observed]

    def whole(self, ref: Ref, number: int) -> Any:
        """The output of a node for the whole pass."""
        collect = self.collect
        if collect.per_step(ref.node) and collect.unrolled and ref.node in self.received:
            return self.received[ref.node].take(number)[collect.leaves_in[ref.node].index(ref.leaf)]
        if collect.per_step(ref.node) and collect.unrolled:
            return self.buffers[ref.node][ref.leaf]
        return self.values[ref.node][ref.leaf]

    def end(self, number: int) -> Pass:
        """After the last step: run the stages that take the whole pass, and fill stores."""
        collect, there = self.collect, False
        for _, node, sources, call, modules in collect.afterwards:
            for source in sources:
                receiver = self.received[source]
                last = collect.times - 1 if collect.per_step(source) else 0
                if not receiver.ready(number, last):
                    yield partial(receiver.ready, number, last)
                if not (collect.per_step(source) and collect.unrolled):
                    self.receive(source, number, ...)
            if call is not None:
                rng = PassRng(self.bases, np.uint32(number))
                given: dict[str, Leaves] = {}
                for ref in refs_of(call.nodes):
                    if ref.node in call.given:
                        given.setdefault(ref.node, [None] * collect.width[ref.node])[ref.leaf] = self.whole(ref, number)
                self.take(call, call(collect.modules[modules], given, rng))
                yield from self.rooms_free(node, number)
                for name in node:
                    self.hand_over(name, number, 0)
            else:
                store, refs, one_step = collect.fills[node[0]]
                if collect.unrolled:
                    rows = [self.whole(ref, number) for ref in refs]
                else:  # at every step
                    values = self.values
                    rows = [values[ref.node][ref.leaf] for ref in refs]
                rows = [np.asarray(row)[None] for row in rows] if one_step else rows
                there |= bool(store.insert(rows, self.writer, number))
        for receiver in self.received.values():
            receiver.release(number)
        if there and self.scratch is None:
            self.start(number + 1)  # a predecessor's pass stands, and this one is forgotten: what follows begins anew


def flat(obs: Tree) -> Leaves:
    """The arrays of an observation; usually one; called at every step, so that case is fast."""
    return [obs] if isinstance(obs, np.ndarray) else jax.tree.leaves(obs)
