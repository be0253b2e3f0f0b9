"""The collecting section of a fragment: observe, act, step, store, or those of them that it has.

A pass is a generator that yields what it waits for from another fragment. The caller decides how to wait: a
process of its own polls, inline other sections run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import EllipsisType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from headrace.compile.cells import cached_program
from headrace.compile.programs import Programs
from headrace.compile.rng import PassRng, bases
from headrace.core.symbols import Ref
from headrace.envs import HostEnv
from headrace.exec.cells import Cells
from headrace.fabric.base import Fabric
from headrace.graph.ir import Node
from headrace.graph.sections import Section, kept_steps, refs_of, segments, wanted_of
from headrace.shm.stream import Sender
from headrace.stores import Leaves
from headrace.types import Tree

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
        fabric, section = collect.fabric, collect.section
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
        self.scratch = fabric.scratch(section, collect.replica, group)
        """Progress of environments whose steps are streamed to others, for a successor."""

    def reset(self, number: int) -> None:
        """Start new episodes before pass `number`, with a seed of that pass."""
        assert self.env is not None
        own = self.seeds[self.collect.step_node.index].tolist()
        seed = np.random.SeedSequence([*own, number]).generate_state(1)[0]
        self.observed: Leaves = jax.tree.leaves(self.env.reset(int(seed)))

    def start(self, number: int) -> None:
        """Prepare for pass `number`, after a predecessor if there was one."""
        if self.env is None:
            return
        self.reset(number)
        self.closing = False
        self.fresh = self.observed
        if self.scratch is not None and self.scratch.steps:
            # Others have received steps of an episode that cannot continue: its next step truncates it.
            self.closing = True
            self.observed = self.scratch.observed()

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
        if there and self.env is not None and self.scratch is None:
            collect.sever(self)  # a predecessor's pass stands, and this one is forgotten: what follows begins anew
            self.reset(number + 1)


class Collect:
    """The collecting section of one replica of a fragment."""

    def __init__(
        self,
        section: Section,
        replica: int,
        fabric: Fabric,
        programs: Programs,
        cells: Cells,
        envs: Sequence[HostEnv],
        seed: int,
        jit: Callable[..., Any] = jax.jit,
        stepping: Callable[[], None] | None = None,
    ):
        """`envs` are its environments, a set for each group, if it has any; `stepping` is called before every step of
        them."""
        self.section, self.replica, self.fabric, self.cells, self.seed = section, replica, fabric, cells, seed
        self.programs, self.stepping = programs, stepping
        self.graph = graph = programs.graph
        self.groups, self.shares = fabric.sections.groups, fabric.sections.plan.shares
        self.step_node = graph.only("env.step")
        self.times, self.unrolled = self.step_node.times, graph.unrolled
        (self.action,) = jax.tree.leaves(self.step_node.inputs[0])
        nodes = [graph.by_id[node.id] for node in section.nodes]
        self.streams_in = [s for s in fabric.sections.received_by(section.fragment) if s.source.domain == "collect"]
        self.streams_out = [s for s in fabric.sections.sent_by(section.fragment) if s.source.domain == "collect"]
        self.leaves_in = {stream.source.id: stream.leaves for stream in self.streams_in}
        self._stepwise = {node.id: node.index <= self.step_node.index for node in graph.where(domain="collect")}
        self.width = {node.id: len(jax.tree.leaves(node.output)) for node in graph.where(domain="collect")}
        own = {node.id for node in nodes}
        self.outside = [Ref(s.source.id, leaf) for s in self.streams_out for leaf in s.leaves]
        before = [node for node in nodes if self.per_step(node.id)]
        after = [node for node in nodes if not self.per_step(node.id)]
        self.modules: list[tuple[Any, ...]] = []
        self.calls: list[Call] = []
        self.fills: dict[str, tuple[Any, list[Ref], bool]] = {}
        for node in after:
            if node.kind == "store":
                store = graph.stores[node.store]
                refs = jax.tree.leaves(node.inputs[0])
                self.fills[node.id] = fabric.store(node.store, replica), refs, store.lead == 2 and not self.unrolled
        self.steps = self._operations(before, nodes, own, jit)
        self.afterwards = self._operations(after, nodes, own, jit)
        self.kept = kept_steps(graph, own)
        """Outputs of nodes here that are needed for all steps of a pass together: output indices, by node."""
        self.lanes = [Lane(self, group, envs[group] if envs else None) for group in range(self.groups)]
        self._rooms: dict[tuple[int, int], dict[str, dict[int, NDArray[Any]]]] = {}
        """By group and parity of the pass."""

    def per_step(self, node: str) -> bool:
        """Whether a node runs at every step of a pass, not once after them."""
        return self._stepwise[node]

    def _operations(self, nodes: Sequence[Node], all_: Sequence[Node], own: set[str], jit: Any) -> list[PassOperation]:
        """The operations of a step, in order."""
        made: list[PassOperation] = []
        had: set[str] = set()

        def waits(nodes: Sequence[Node]) -> tuple[str, ...]:
            new = [ref.node for ref in refs_of(nodes) if ref.node not in own and ref.node not in had]
            had.update(new)
            return tuple(dict.fromkeys(new))

        run: list[Node] = []

        def flush() -> None:
            for group in segments(run, self.leaves_in, {ref.node for ref in self.outside}):
                inside = {node.id for node in group}
                others = [node for node in all_ if node.id not in inside]
                self.calls.append(Call(self.programs, group, wanted_of(group, others, self.outside), jit))
                names = tuple(node.id for node in group)
                made.append(PassOperation("call", names, waits(group), self.calls[-1], len(self.calls) - 1))
            run.clear()

        for node in nodes:
            if node.kind == "stage":
                run.append(node)
                continue
            flush()
            kind: Any = {"env.observe": "observe", "env.step": "step"}.get(node.name, "store")
            made.append(PassOperation(kind, (node.id,), waits([node])))
        flush()
        return made

    def rooms(self, lane: Lane, number: int) -> dict[str, dict[int, NDArray[Any]]]:
        """Buffers for data that is needed for all steps of a pass: a store's own memory where it offers some, else two
        that alternate."""
        if lane.scratch is not None:
            kept: dict[str, dict[int, NDArray[Any]]] = lane.scratch.rooms[number % 2]
            return kept
        key = lane.group, number % 2
        if key not in self._rooms:
            envs = self.fabric.sections.graph.spec.num_envs // (self.groups * self.section.fragment.replicas)

            def room(node: str, leaf: int) -> NDArray[Any]:
                like = jax.tree.leaves(self.graph.by_id[node].output)[leaf]
                return np.zeros((self.times, envs, *like.shape[1:]), like.dtype)

            self._rooms[key] = {node: {leaf: room(node, leaf) for leaf in leaves} for node, leaves in self.kept.items()}
        made = self._rooms[key]
        for store, refs, _ in self.fills.values():
            if (lent := store.room(lane.writer, number)) is not None:
                made = {node: dict(leaves) for node, leaves in made.items()}
                for ref, array in zip(refs, lent, strict=True):
                    if ref.leaf in made.get(ref.node, ()):
                        made[ref.node][ref.leaf] = array
                break
        return made

    @property
    def executes(self) -> list[str]:
        """The nodes that a pass runs here."""
        return [node for _, nodes, *_ in (*self.steps, *self.afterwards) for node in nodes]

    def start(self, number: int) -> None:
        """Prepare for pass `number`, the first of this process."""
        for lane in self.lanes:
            lane.start(number)
            if number and lane.env is not None and lane.scratch is None:
                self.sever(lane)

    def sever(self, lane: Lane) -> None:
        """What is stored next of these environments does not follow what was stored last."""
        for store, _, _ in self.fills.values():
            store.sever(lane.writer)

    def ready(self, number: int) -> bool:
        """Whether the inputs that a pass needs first have arrived from other fragments."""
        waits = (self.steps or self.afterwards)[0].waits
        return not waits or any(all(lane.received[node].ready(number, 0) for node in waits) for lane in self.lanes)

    def run(self, number: int) -> Pass:
        """One pass. While one group waits for other fragments, another one goes on."""
        flat = self.cells.flat
        self.modules = [tuple([flat[i] for i in call.places]) for call in self.calls]
        if len(self.lanes) == 1:
            yield from self.lanes[0].run(number)
            return
        going: list[tuple[Pass, Callable[[], bool]]] = [(lane.run(number), lambda: True) for lane in self.lanes]
        while going:
            for i, (lane, ready) in enumerate(going):
                if ready():
                    following = next(lane, None)
                    going[i : i + 1] = [] if following is None else [(lane, following)]
                    break
            else:
                waiting = [ready for _, ready in going]
                yield lambda: any(ready() for ready in waiting)  # noqa: B023 - called before the next iteration

    def drain(self) -> list[Any]:
        """The episodes finished since the last call."""
        return [episode for lane in self.lanes if lane.env is not None for episode in lane.env.drain()]

    def close(self) -> None:
        for lane in self.lanes:
            if lane.env is not None:
                lane.env.close()


def flat(obs: Tree) -> Leaves:
    """The arrays of an observation; usually one; called at every step, so that case is fast."""
    return [obs] if isinstance(obs, np.ndarray) else jax.tree.leaves(obs)
