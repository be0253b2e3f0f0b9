"""A learning section of a fragment: draws from stores, runs its stages, hands over what others take."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from headrace.compile.cells import cached_program
from headrace.compile.programs import Values
from headrace.compile.reports import Report
from headrace.compile.rng import PassRng, bases, draws
from headrace.core.symbols import Ref
from headrace.exec.cells import Workspace
from headrace.exec.lane import Pass
from headrace.graph import Node
from headrace.graph.sections import Section, refs_of, segments, wanted_of
from headrace.stores import Draw, Leaves

Reported = Callable[[Sequence[Node], Report, int], None]
"""Called with the stages of a program, their report and its first pass."""


class Segment:
    """Stages that run as one program."""

    def __init__(self, learn: Learn, nodes: Sequence[Node], others: Sequence[Node]):
        own = {node.id for node in nodes}
        self.nodes = nodes
        self.given: dict[str, set[int]] = {}
        """The outputs of other nodes that it takes."""
        for ref in refs_of(nodes):
            if ref.node not in own:
                self.given.setdefault(ref.node, set()).add(ref.leaf)
        self.wanted = wanted_of(nodes, others, learn.outside)
        self.program: Callable[..., Any] = learn.programs.learner(nodes, learn.fused, self.wanted)

    def values(self, values: Values) -> Values:
        """The values it takes, without unused arrays."""
        return {
            name: [leaf if i in leaves else None for i, leaf in enumerate(values[name])]
            for name, leaves in self.given.items()
        }


class Learn:
    """A learning section of one replica of a fragment."""

    def __init__(self, workspace: Workspace, section: Section, replica: int, reported: Reported):
        self.section, self.replica, self.reported = section, replica, reported
        self.fabric, self.programs, self.cells, seed, self.jit = workspace
        fabric, graph, sections = self.fabric, self.programs.graph, self.fabric.sections
        self.domain, self.fused, self.repeat = section.domain, section.domain.fused, section.repeat
        self.place = section.first + replica
        self.bases = bases(graph, seed, replica)
        self.nodes = [graph.by_id[node.id] for node in section.nodes]
        own = {node.id for node in self.nodes}
        inward, outward = sections.received_by(section.fragment), sections.sent_by(section.fragment)
        self.inward = {
            s.source.id: (fabric.receiver(s, 0), s.leaves)
            for s in inward
            if graph.domain_of.get(s.source.id) == self.domain.index
        }
        mine = [s for s in outward if s.source.id in own]
        self.outside = [Ref(s.source.id, leaf) for s in mine for leaf in s.leaves]
        self.outward = [(s.source.id, fabric.sender(s, 0), s.leaves) for s in mine]
        self.width = graph.width
        self.sources = [
            (node, fabric.store(node.store, replica), node.operation)
            for node in self.nodes
            if isinstance(node.operation, Draw)
        ]
        drawn = {node.id: sections.graph.stores[node.store] for node, *_ in self.sources}
        self.readers = {node: sections.readers(store).index(section) for node, store in drawn.items()}
        stages = [node for node in self.nodes if node.kind == "stage"]
        groups = segments(stages, self.inward, {ref.node for ref in self.outside})
        self.segments = [
            Segment(self, group, [node for other in groups if other is not group for node in other]) for group in groups
        ]
        self.calls = [
            cached_program(
                graph,
                ("learn", tuple(node.id for node in s.nodes), tuple(s.wanted), self.jit),
                partial(self.jit, s.program, donate_argnums=0),
            )
            for s in self.segments
        ]
        self.reports: list[tuple[Sequence[Node], Report]] = []
        self.release(self.learned)  # a predecessor may have died before it released them

    @property
    def executes(self) -> list[str]:
        """The nodes that a program runs here."""
        drawn = [node.id for node, *_ in self.sources]
        return drawn + [node.id for segment in self.segments for node in segment.nodes]

    @property
    def learned(self) -> int:
        return int(self.fabric.ledger.learned[self.place])

    def draw(self, learned: int, repeat: int) -> Values:
        """Draw the data for learning passes from number `learned` on, from the stores drawn from here."""
        rng, values = PassRng(self.bases, np.uint32(learned)), Values()
        for node, store, how in self.sources:
            drawn = store.draw(how, draws(node, rng), learned, repeat, self.readers[node.id])
            values[node.id] = [leaf[0] for leaf in drawn] if how.fused and not self.fused else drawn
        return values

    def run(self, repeat: int) -> Pass:
        """One program: `repeat` passes."""
        learned, cells = self.learned, self.cells
        rng = PassRng(self.bases, np.uint32(learned))
        turn = learned // repeat
        values = self.draw(learned, repeat)
        for node in list(values):
            yield from self._hand_over(node, turn, values)
        self.reports.clear()
        for segment, call in zip(self.segments, self.calls, strict=True):
            for name in segment.given:
                if name in self.inward and name not in values:
                    yield from self._receive(name, turn, values)
            cells.flat, (report, yielded) = call(cells.flat, segment.values(values), rng)
            for ref, leaf in zip(segment.wanted, yielded, strict=True):
                values.setdefault(ref.node, [None] * self.width[ref.node])[ref.leaf] = leaf
            for node in dict.fromkeys(ref.node for ref in segment.wanted):
                yield from self._hand_over(node, turn, values)
            self.took(segment.nodes, report, learned)

    def took(self, nodes: Sequence[Node], report: Report, learned: int) -> None:
        """Record the report of a program."""
        self.reports.append((nodes, report))
        self.reported(nodes, report, learned)

    def _receive(self, name: str, turn: int, values: Values) -> Pass:
        receiver, own = self.inward[name]
        if not receiver.ready(turn, 0):
            yield partial(receiver.ready, turn, 0)
        leaves: Leaves = [None] * self.width[name]
        for leaf, array in zip(own, receiver.take(turn), strict=True):
            leaves[leaf] = array
        values[name] = leaves

    def _hand_over(self, node: str, turn: int, values: Values) -> Pass:
        for source, sender, leaves in self.outward:
            if source == node:
                if not sender.free(turn):
                    yield partial(sender.free, turn)
                sender.send(turn, 0, [np.asarray(values[node][leaf]) for leaf in leaves])

    def release(self, learned: int) -> None:
        """Release the data that was learned from, once the computation on it is complete."""
        for node, store, _ in self.sources:
            store.release(self.readers[node.id], learned)
        for receiver, _ in self.inward.values():
            if learned:
                receiver.release(learned // self.repeat - 1)

    def done(self, repeat: int) -> None:
        """Count the program and release the data it learned from."""
        learned = self.learned + repeat
        self.fabric.ledger.learned[self.place] = learned
        self.release(learned)

    def digest(self) -> int:
        """Checksum of the cells that it writes: equal for all data-parallel replicas."""
        digest = hashlib.blake2b(digest_size=8)
        for i in self.fabric.owned[self.section]:
            digest.update(np.ascontiguousarray(np.asarray(self.cells.flat[i])).tobytes())
        return int.from_bytes(digest.digest(), "little")
