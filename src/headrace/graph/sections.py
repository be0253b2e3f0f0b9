"""What each fragment of a plan executes: a section for each domain it has nodes of, and the streams between them.

A section runs in passes. This is all that a runtime needs to know about a plan, whatever its shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.core.symbols import Ref
from headrace.graph.ir import Domain, Graph, Node, Stored
from headrace.graph.plan import Fragment, Plan


@dataclass(frozen=True, eq=False)
class Section:
    """Nodes of one domain in one fragment, in the loop's order."""

    fragment: Fragment
    nodes: tuple[Node, ...]
    first: int
    """Index of its first replica among the replicas of all collecting, or all learning, sections."""
    domain: Domain = None  # type: ignore[assignment]
    """The learning domain; a collecting section has none."""

    @property
    def places(self) -> range:
        """The indices of its replicas."""
        return range(self.first, self.first + self.fragment.replicas)

    @cached_property
    def stages(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind == "stage")

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The cells it writes."""
        return tuple(sorted({bound.cell for node in self.nodes for bound in node.writes}))

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The cells it reads."""
        return tuple(sorted({bound.cell for node in self.nodes for bound in node.reads}))

    @property
    def repeat(self) -> int:
        """Learning passes fused into one program."""
        return self.fragment.repeat if self.domain is not None and self.domain.fused else 1


@dataclass(frozen=True, eq=False)
class Stream:
    """The output of a node, sent every pass from its fragment to another fragment that uses it."""

    source: Node
    sender: Fragment
    receiver: Fragment
    leaves: tuple[int, ...]
    """Indices of the output arrays that are sent."""

    @property
    def name(self) -> str:
        return f"{self.source.id} -> {self.receiver.id}"


class Sections:
    """The sections and streams of a plan."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.graph = plan.graph
        self.collecting = self._sections(self.graph.where(domain="collect"))
        self.learning: list[Section] = []
        for domain in self.graph.domains:
            self.learning += self._sections(domain.nodes, domain)
        self.streams = self._streams()

    def _sections(self, among: Sequence[Node], *domain: Domain) -> list[Section]:
        """Those of a learning domain in the loop's order: by their first node that writes, or else by their last."""
        parts = [(fragment, tuple(n for n in among if n.id in fragment.nodes)) for fragment in self.plan.fragments]
        found = [part for part in parts if part[1]]
        if domain:
            found.sort(key=lambda one: next((node.index for node in one[1] if node.writes), one[1][-1].index))
        first = sum(section.fragment.replicas for section in self.learning) if domain else 0
        made = []
        for fragment, nodes in found:
            made.append(Section(fragment, nodes, first, *domain))
            first += fragment.replicas
        return made

    def _streams(self) -> list[Stream]:
        wanted: dict[tuple[str, str], set[int]] = {}
        for fragment in self.plan.fragments:
            for node in (self.graph.by_id[name] for name in fragment.nodes):
                for ref in node.sources:
                    if ref.node not in fragment.nodes:
                        wanted.setdefault((ref.node, fragment.id), set()).add(ref.leaf)
        fragments = {fragment.id: fragment for fragment in self.plan.fragments}
        return [
            Stream(self.graph.by_id[node], self.plan.fragment_of[node], fragments[name], tuple(sorted(leaves)))
            for (node, name), leaves in sorted(wanted.items(), key=lambda one: (self.graph.by_id[one[0][0]].index, one))
        ]

    def of(self, fragment: Fragment) -> tuple[Section | None, list[Section]]:
        """The collecting section of a fragment, if it has one, and its learning sections."""
        collecting = next((section for section in self.collecting if section.fragment.id == fragment.id), None)
        return collecting, [section for section in self.learning if section.fragment.id == fragment.id]

    def sent_by(self, fragment: Fragment) -> list[Stream]:
        return [stream for stream in self.streams if stream.sender.id == fragment.id]

    def received_by(self, fragment: Fragment) -> list[Stream]:
        return [stream for stream in self.streams if stream.receiver.id == fragment.id]

    def filler(self, store: Stored) -> Section:
        """The section that fills a store."""
        return next(section for section in self.collecting if store.fill in section.nodes)

    def readers(self, store: Stored) -> list[Section]:
        """The sections that draw from it."""
        return [section for section in self.learning if any(node in section.nodes for node in store.draws)]

    @cached_property
    def fillers(self) -> list[Section]:
        """The sections that fill some store."""
        return list(dict.fromkeys(self.filler(store) for store in self.graph.stores.values()))

    @cached_property
    def groups(self) -> int:
        """Groups of environments that take turns."""
        return self.plan.collector.groups

    def writer_of(self, cell: str) -> Section | None:
        """The section that writes a cell."""
        return next((section for section in self.learning if cell in section.written), None)


def segments(nodes: Sequence[Node], received: Iterable[str], sent: Iterable[str]) -> list[list[Node]]:
    """Group stages into consecutive calls. A new call begins where a stage takes a stream from one of the nodes
    `received` and an earlier stage of the call has output that is `sent`. So output is always sent before the next
    wait, and no two fragments wait for each other."""
    received, sent, had = set(received), set(sent), set[str]()
    found: list[list[Node]] = []
    for node in nodes:
        takes = {ref.node for ref in node.sources if ref.node in received} - had
        had |= takes
        if not found or (takes and any(other.id in sent for other in found[-1])):
            found.append([])
        found[-1].append(node)
    return found


def refs_of(nodes: Iterable[Node]) -> list[Ref]:
    """The input arrays of some nodes, each once, in order."""
    return list(dict.fromkeys(ref for node in nodes for ref in node.sources))


def wanted_of(nodes: Iterable[Node], others: Iterable[Node], sent: Iterable[Ref]) -> list[Ref]:
    """The outputs of `nodes`, which run as one call, that `others` in the fragment take or that are `sent`."""
    own = {node.id for node in nodes}
    return list(dict.fromkeys(ref for ref in (*refs_of(others), *sent) if ref.node in own))


def per_step(graph: Graph, node: str) -> bool:
    """Whether a collecting node runs at every step of a pass, not once after them."""
    return graph.by_id[node].index <= graph.only("env.step").index


def kept_steps(graph: Graph, own: Iterable[str]) -> dict[str, list[int]]:
    """Per-step outputs of the nodes `own` that other nodes of `own` need for all steps of a pass together: the output
    indices, by node."""
    found: dict[str, list[int]] = {}
    own = set(own)
    after = [node for node in graph.where(domain="collect") if node.id in own and not per_step(graph, node.id)]
    for ref in refs_of(after) if graph.unrolled else ():
        if per_step(graph, ref.node) and ref.node in own:
            found.setdefault(ref.node, []).append(ref.leaf)
    return found
