"""The pace: how far the sections of a plan may run ahead of each other.

Inline everything runs in one order, the loop's. Elsewhere sections keep to the same order where a cut has staleness 0,
and may deviate by `staleness` programs of fused learning passes otherwise. Everything follows from counters, in whole
numbers, so a rate cannot drift: at every moment collecting and learning are within that many programs of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.graph.ir import Domain
from headrace.graph.plan import Cut
from headrace.graph.sections import Section, Sections

Counters = NDArray[np.int64]


class Limit(NamedTuple):
    """How far a collecting section may run ahead of the learning in one domain."""

    domain: Domain
    at: NDArray[np.int64]
    """Indices of the learning sections that it waits for."""
    staleness: int


class Bond(NamedTuple):
    """Two learning sections of which one reads what the other writes."""

    other: Section
    place: int
    staleness: int
    earlier: bool
    """Whether the other one comes first in the loop."""


@dataclass(frozen=True)
class Pace:
    """The order of passes of one replica of a fragment."""

    replica: int
    limits: tuple[Limit, ...]
    bonds: dict[int, tuple[Bond, ...]]
    """Of each learning section, by its index."""
    repeats: dict[int, int]
    """Learning passes in one program of each domain, as the plan has it."""
    fills: dict[int, NDArray[np.int64]]
    """For each learning section, by its first place: the places of the collecting sections that its passes follow,
    those that fill its stores and those that read what it writes, where they must not read anything newer."""

    @staticmethod
    def of(sections: Sections, fragment: str, replica: int) -> Pace:
        """The pace of a replica of a fragment."""
        plan, shared = sections.plan, sections.plan.shares == 1
        collecting, learning = sections.of(next(f for f in plan.fragments if f.id == fragment))

        def places(section: Section) -> list[int]:
            return list(section.places) if shared else [section.first + replica]

        fills = {}
        for section in sections.learning:
            sources = set(section.domain.sources)
            follows = {sections.filler(s) for s in sections.graph.stores.values() if set(s.draws) & sources}
            fresh = {cut.target for cut in _acting(sections) if cut.what in section.written and not cut.staleness}
            follows |= {one for one in sections.collecting if fresh & {node.id for node in one.nodes}}
            fills[section.first] = np.array(sorted(place for one in follows for place in places(one)))
        limits = []
        for section in sections.learning if collecting is not None else ():
            assert collecting is not None
            if section.fragment.id == fragment:  # taken in the loop's order, or two fragments could wait for each other
                limits.append(Limit(section.domain, np.array(places(section)), 0))
            elif _paced(sections, collecting):
                cuts = [cut for cut in _acting(sections) if cut.target in collecting.fragment.nodes]
                own = [cut.staleness for cut in cuts if cut.what in section.written]
                loose = max((cut.staleness for cut in _acting(sections)), default=0)
                limits.append(Limit(section.domain, np.array(places(section)), min(own, default=loose)))
        # Only replicas of a whole loop learn in several: elsewhere `replica` of a section that learns is 0.
        bonds = {section.first + replica: tuple(_bonds(sections, section, replica)) for section in learning}
        repeats = {section.domain.index: section.repeat for section in sections.learning}
        return Pace(replica, tuple(limits), bonds, repeats, fills)

    def may_collect(self, number: int, learned: Counters, repeat: int = 0) -> bool:
        """Whether collecting pass `number` may begin after `learned` passes of each learning section."""
        return number < self.may_collect_until(learned, repeat)

    def may_collect_until(self, learned: Counters, repeat: int = 0) -> int:
        """The first collecting pass that may not begin yet."""
        free = 1 << 62
        for domain, at, staleness in self.limits:  # called at every check of a waiting sampler
            slowest = int(learned[at[0]]) if len(at) == 1 else int(learned[at].min())
            free = min(free, domain.needed(slowest + (staleness + 1) * self.fused(domain, repeat)))
        return free

    def due(self, section: Section, passes: Counters) -> int:
        """Learning passes of a section that the stored data allows."""
        return section.domain.due(int(passes[self.fills[section.first]].min()))

    def may_learn(self, section: Section, passes: Counters, learned: Counters, repeat: int = 0) -> bool:
        """Whether a learning section may run its next program."""
        domain, place = section.domain, section.first + self.replica
        mine, fused = int(learned[place]), self.fused(domain, repeat)
        if self.due(section, passes) < mine + fused:
            return False
        return all(self._bound(bond, domain, mine, fused, learned, repeat) for bond in self.bonds[place])

    def _bound(self, bond: Bond, domain: Domain, mine: int, fused: int, learned: Counters, repeat: int) -> bool:
        other = bond.other.domain
        theirs, each = int(learned[bond.place]), self.fused(other, repeat)
        if other is domain:
            # One that comes earlier in the loop has run this program already; one that comes later, the one before.
            lowest = mine - bond.staleness * fused
            return theirs > lowest if bond.earlier else theirs >= lowest
        # When this program falls due: of the other's, those that fall due by then come first, or those before.
        passes = domain.needed(mine + fused)
        return other.due(passes if bond.earlier else passes - 1) < theirs + (bond.staleness + 1) * each

    def fused(self, domain: Domain, repeat: int) -> int:
        """Learning passes of a domain that are one program."""
        return (repeat or self.repeats[domain.index]) if domain.fused else 1


def _acting(sections: Sections) -> list[Cut]:
    """The cells that collecting sections read from others."""
    plan = sections.plan
    return [cut for cut in plan.cuts if cut.channel == "latest" and plan.graph.by_id[cut.target].domain == "collect"]


def _paced(sections: Sections, section: Section) -> bool:
    """Whether a collecting section itself waits for learning, because it acts or reads cells; others follow it."""
    step = sections.graph.only("env.step").index

    def acts(one: Section) -> bool:
        return bool(one.read) or any(node.index < step for node in one.stages)

    return acts(section) or (
        not any(acts(one) for one in sections.collecting) and section.fragment is sections.plan.collector
    )


def _bonds(sections: Sections, section: Section, replica: int) -> list[Bond]:
    """The bounds between a learning section and others that share its cells."""
    found = []
    for i, other in enumerate(sections.learning):
        if other is section:
            continue
        ours, theirs = set(section.written) & set(other.read), set(other.written) & set(section.read)
        own = other.fragment.id == section.fragment.id
        if not own and not ours | theirs:
            continue
        ends = {node.id for node in (*section.nodes, *other.nodes)}
        cuts = [
            cut.staleness
            for cut in sections.plan.cuts
            if cut.channel == "latest" and cut.what in ours | theirs and cut.source in ends and cut.target in ends
        ]
        earlier = i < sections.learning.index(section)
        found.append(Bond(other, other.first + replica, 0 if own else min(cuts, default=0), earlier))
    return found
