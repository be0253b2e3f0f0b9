"""A fabric over one block of memory: that of one process (`local`), or one that several share (`shm`).

Every process makes the same objects in the same order over the same block, so all see the same arrays and nothing but
the block's description is handed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from headrace.compile.cells import CellLayout
from headrace.compile.gradients import message
from headrace.fabric.base import Fabric
from headrace.fabric.ledger import Ledger
from headrace.graph import Graph
from headrace.graph.sections import Section, Sections, Stream, kept_steps, per_step
from headrace.shm.latest import Latest
from headrace.shm.memory import LINE, Arena, measure
from headrace.shm.queue import Queue
from headrace.shm.stream import Receiver, Ring, Sender
from headrace.stores import Store
from headrace.types import Tree, tree_bytes

SLOTS, SLOTS_OF_STEPS = 8, 2
"""Passes that a sender may be ahead of a receiver: of one step each, or of a trajectory."""

SENT = 4
"""Most gradients of one loop that wait to be applied."""


class Scratch:
    """Progress and last observation of environments whose steps are streamed to others: for a successor."""

    def __init__(self, arena: Arena, graph: Graph, envs: int, kept: Mapping[str, Sequence[int]]):
        def room(node: str, leaf: int, *steps: int) -> NDArray[Any]:
            like = jax.tree.leaves(graph.by_id[node].output)[leaf]
            return arena.array((*steps, envs, *like.shape[1:]), like.dtype)

        self._steps = arena.counters(1)
        shown = range(len(jax.tree.leaves(graph.only("env.observe").output)))
        self._observed = [room("env.observe", leaf) for leaf in shown]
        self.rooms = [
            {node: {leaf: room(node, leaf, graph.steps) for leaf in leaves} for node, leaves in kept.items()}
            for _ in range(2)
        ]
        """Two alternating buffers for data that is needed for all steps of a pass together."""

    @property
    def steps(self) -> int:
        """Steps ever made."""
        return int(self._steps[0])

    def keep(self, steps: int, observed: Sequence[Any]) -> None:
        """Record the number of steps made, and the last observation."""
        for held, leaf in zip(self._observed, observed, strict=True):
            held[...] = leaf
        self._steps[0] = steps

    def observed(self) -> list[NDArray[Any]]:
        """The last observation."""
        return [held.copy() for held in self._observed]

    def restart(self) -> None:
        self._steps[0] = 0


def local(sections: Sections, part: Graph, layout: CellLayout) -> MemoryFabric:
    """A fabric in the memory of this process alone."""

    def make(arena: Arena) -> MemoryFabric:
        return MemoryFabric(arena, sections, part, layout)

    block = np.zeros(measure(make) + LINE, np.uint8)
    first = -block.ctypes.data % LINE
    return make(Arena(block[first:]))


class MemoryFabric(Fabric):
    """The ends of all cuts in one block."""

    def __init__(self, arena: Arena, sections: Sections, part: Graph, layout: CellLayout, log_info: Sequence[str] = ()):
        """`part` is the graph of one replica of the loop, `layout` that of all its cells."""
        self.sections, self.part, self.layout = sections, part, layout
        plan = sections.plan
        self.ledger = Ledger(arena, sections, log_info)
        self.begin = [arena.array(struct.shape, struct.dtype) for struct in layout.structs]
        """All cells as the run began: written before any process is started."""
        self.published = {section: self._published(section) for section in sections.learning}
        self.owned = {s: [i for cell in s.written for i in layout.places[cell]] for s in sections.learning}
        structs = layout.structs
        self._weights = {s: Latest(arena, [structs[i] for i in at]) for s, at in self.published.items()}
        self._state = {s: Latest(arena, [structs[i] for i in at]) for s, at in self.owned.items()}
        groups = range(sections.groups)
        self._rings = {(stream, group): self._ring(arena, stream) for stream in sections.streams for group in groups}
        self._stores = {(name, i): self._store(arena, name) for name in part.stores for i in range(plan.shares)}
        self._gradients: list[Queue] = []
        if plan.gradients == "apply":
            self._gradients = [Queue(arena, message(part, layout), SENT) for _ in range(plan.shares)]
        self._scratch: dict[tuple[str, int, int], Scratch] = {}
        if sections.sent_by(collector := plan.collector):
            kept = kept_steps(plan.graph, collector.nodes)
            envs = plan.graph.spec.num_envs // (collector.replicas * sections.groups)
            for which in product([collector.id], range(collector.replicas), groups):
                self._scratch[which] = Scratch(arena, plan.graph, envs, kept)

    def _published(self, section: Section) -> list[int]:
        plan = self.sections.plan
        elsewhere = [
            node for fragment in plan.fragments if fragment.id != section.fragment.id for node in fragment.nodes
        ]
        others = [*(plan.graph.by_id[node] for node in elsewhere), *plan.graph.play.nodes]
        read = {bound.cell for node in others for bound in node.reads}
        return [i for cell in section.written if cell in read for i in self.layout.modules[cell]]

    def _ring(self, arena: Arena, stream: Stream) -> Ring:
        """Between the replicas of two fragments, for one group of environments."""
        graph, node, ends = self.part, stream.source, (stream.sender.replicas, stream.receiver.replicas)
        leaves = [jax.tree.leaves(node.output)[leaf] for leaf in stream.leaves]

        def structs(*lead: int) -> list[jax.ShapeDtypeStruct]:
            return [jax.ShapeDtypeStruct((*lead, *leaf.shape), leaf.dtype) for leaf in leaves]

        if node.domain == "learn":
            repeat = next(s.repeat for s in self.sections.learning if node in s.nodes and s.fragment is stream.sender)
            fused = graph.domains[graph.domain_of[node.id]].fused
            return Ring(arena, structs(repeat) if fused else structs(), 1, 1, slots=SLOTS_OF_STEPS)
        stepwise, axis = per_step(graph, node.id), int(graph.unrolled)
        steps, stacked = (node.times, graph.unrolled) if stepwise else (1, False)
        own = self._slice(structs(steps) if stacked else structs(), axis, self.sections.groups * min(ends))
        slots = SLOTS_OF_STEPS if stacked else SLOTS
        return Ring(arena, own, *ends, slots=slots, steps=steps, axis=axis, stacked=stacked)

    def _store(self, arena: Arena, name: str) -> Store:
        sections, store = self.sections, self.part.stores[name]
        replicas = sections.filler(sections.graph.stores[name]).fragment.replicas // sections.plan.shares
        writers = replicas * sections.groups
        readers = len(sections.readers(sections.graph.stores[name]))
        ahead = max((cut.staleness for cut in sections.plan.cuts), default=0) + 1
        own = self._slice(store.struct, store.env_axis, writers)
        return store.operation.make(own, writers, readers, ahead, arena)

    def _slice(self, tree: Tree, axis: int, parts: int) -> Tree:
        """The shapes of one of `parts` slices of the environments; what has no row for each of them is not sliced."""
        envs = self.part.spec.num_envs

        def share(leaf: Any) -> jax.ShapeDtypeStruct:
            shape = leaf.shape
            if shape[axis : axis + 1] == (envs,):
                shape = (*shape[:axis], envs // parts, *shape[axis + 1 :])
            return jax.ShapeDtypeStruct(shape, leaf.dtype)

        return jax.tree.map(share, tree)

    def sender(self, stream: Stream, replica: int, group: int = 0) -> Sender:
        return Sender(self._rings[stream, group], replica)

    def receiver(self, stream: Stream, replica: int, group: int = 0) -> Receiver:
        return Receiver(self._rings[stream, group], replica)

    def store(self, name: str, replica: int) -> Store:
        return self._stores[name, replica if self.sections.plan.shares > 1 else 0]

    def weights(self, section: Section) -> Latest:
        return self._weights[section]

    def state(self, section: Section) -> Latest:
        return self._state[section]

    def gradients(self, replica: int) -> Queue:
        return self._gradients[replica]

    def scratch(self, section: Section, replica: int, group: int) -> Scratch | None:
        return self._scratch.get((section.fragment.id, replica, group))

    def carried(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for (stream, _), ring in self._rings.items():
            found[stream.name] = found.get(stream.name, 0) + ring.carried
        for section, latest in self._weights.items():
            size = sum(tree_bytes(self.layout.structs[i]) for i in self.published[section])
            name = f"cells of {section.fragment.id}"
            found[name] = found.get(name, 0) + latest.version * size
        for store in self.sections.graph.stores.values():
            passes = self.ledger.passes[list(self.sections.filler(store).places)].sum()
            number = self.sections.filler(store).fragment.replicas
            found[store.fill.id] = int(passes) * tree_bytes(store.struct) // number
        return found

    def stored(self) -> tuple[int, int]:
        """Collecting passes that are stored by all, and environment steps stored so far."""
        passes = self.ledger.passes[[place for section in self.sections.fillers for place in section.places]]
        return int(passes.min()), int(passes.sum()) * self.sections.graph.collected // len(passes)

    def save(self, flat: Sequence[Any]) -> None:
        """Publish all cells: the initial state of every learner and reader."""
        for latest, places in ((self._state, self.owned), (self._weights, self.published)):
            for section, at in places.items():
                latest[section].publish([np.asarray(flat[i]) for i in at])

    def load(self, flat: Sequence[Any]) -> list[Any]:
        """Replace the cells in `flat` by those that the learners last saved."""
        whole = list(flat)
        for section, places in self.owned.items():
            if (held := self._state[section].read()) is not None:
                for place, array in zip(places, held[1], strict=True):
                    whole[place] = array
        return whole

    def restart(self, passes: int, learned: Sequence[int]) -> None:
        """Reset all counters, as after `passes` collecting passes and the learning passes of each domain."""
        ledger = self.ledger
        ledger.begun[:] = ledger.passes[:] = passes
        ledger.applied[:] = passes * self.sections.plan.shares
        for section in self.sections.learning:
            ledger.learned[list(section.places)] = learned[section.domain.index]
        for (stream, _), ring in self._rings.items():
            if stream.source.domain == "collect":
                ring.restart(passes)
            else:
                domain = self.part.domain_of[stream.source.id]
                repeat = next(s.repeat for s in self.sections.learning if s.domain.index == domain)
                ring.restart(learned[domain] // repeat)
        for queue in self._gradients:
            queue.restart(0)
        for scratch in self._scratch.values():
            scratch.restart()
