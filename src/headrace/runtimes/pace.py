"""The limiter: how far collecting and learning may run ahead of each other.

The inline runtime does everything in one order. Processes keep to the same order when staleness is 0, and may leave it
by `staleness` programs of fused learning passes otherwise. Everything follows from counters, in whole numbers, so the
rate cannot drift: at every moment collecting and learning are within that many programs of each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headrace.graph import Plan
from headrace.graph.ir import Domain


@dataclass(frozen=True)
class Pace:
    """The order of collecting and learning passes."""

    domain: Domain
    repeat: int
    staleness: int
    """Programs that collecting may be ahead of what was learned before it in the loop's order."""
    apart: int = 0
    """Programs that two learners may be ahead of each other."""

    @staticmethod
    def of(plan: Plan) -> Pace:
        """The pace of a plan."""
        graph = plan.graph
        acting = [cut.staleness for cut in plan.cuts if graph.by_id[cut.target].domain == "collect"]
        learning = [
            cut.staleness for cut in plan.cuts if cut.channel == "latest" and graph.by_id[cut.target].domain == "learn"
        ]
        return Pace(graph.domain, plan.learner.repeat, max(acting, default=0), min(learning, default=0))

    def fused(self, repeat: int) -> Pace:
        """The same with another number of passes in one program."""
        return replace(self, repeat=repeat)

    @property
    def collected(self) -> int:
        """Transitions of one collecting pass, over all replicas."""
        return self.domain.collected

    def due(self, passes: int) -> int:
        """Learning passes that so many collecting passes allow, all together."""
        return self.domain.due(passes)

    def learned_before(self, number: int) -> int:
        """Learning passes that come before collecting pass `number` in the loop's order: whole programs."""
        return self.due(number) // self.repeat * self.repeat

    def may_collect(self, number: int, learned: int) -> bool:
        """Whether collecting pass `number` may begin when every learner has run `learned` passes."""
        # Not by `learned_before`: where `repeat` has changed on the way, what was learned is not whole programs.
        return self.due(number) < learned + (self.staleness + 1) * self.repeat

    def may_collect_until(self, learned: int) -> int:
        """The first collecting pass that may not begin yet."""
        return self.domain.needed(learned + (self.staleness + 1) * self.repeat)

    def may_learn(self, passes: int, learned: NDArray[np.int64], who: int = 0) -> bool:
        """Whether learner `who` may run its next program when every replica has collected `passes`."""
        mine = int(learned[who])
        if self.due(passes) < mine + self.repeat:
            return False
        # One that comes earlier in the loop has run this program already; one that comes later, the one before.
        lowest = mine - self.apart * self.repeat
        return all(theirs > lowest if i < who else theirs >= lowest for i, theirs in enumerate(learned) if i != who)
