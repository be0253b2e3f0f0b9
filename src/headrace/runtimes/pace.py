"""Who may go on: how far collecting and learning may run ahead of each other.

The inline runtime does everything in one order. Processes keep to the same order when staleness is 0, and may leave it
by `staleness` programs of fused learning passes otherwise. Everything follows from counters, in whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.channels.limiter import Rate
from headrace.graph import Plan


@dataclass(frozen=True)
class Pace:
    """The order of collecting and learning passes."""

    rate: Rate | None
    """None where each collecting pass is learned from once."""
    repeat: int
    collected: int
    """Transitions of one collecting pass, over all replicas."""
    staleness: int

    @staticmethod
    def of(plan: Plan) -> Pace:
        """The pace of a plan."""
        graph = plan.graph
        stale = [cut.staleness for cut in plan.cuts if graph.by_id[cut.target].domain == "collect"]
        rate = None if graph.on_policy else Rate.of(graph.source)
        collected = graph.spec.num_envs * graph.only("env.step").times
        return Pace(rate, plan.learner.repeat, collected, max(stale, default=0))

    def learned_before(self, number: int) -> int:
        """Learning passes that come before collecting pass `number`."""
        if self.rate is None:
            return number
        return self.rate.due(number * self.collected, 0) // self.repeat * self.repeat

    def may_collect(self, number: int, learned: int) -> bool:
        """Whether collecting pass `number` may begin."""
        return learned >= self.learned_before(number) - self.staleness * self.repeat

    def may_learn(self, passes: int, learned: int) -> bool:
        """Whether the next program of learning passes may run when every replica has collected `passes`."""
        return self.learned_before(passes) >= learned + self.repeat
