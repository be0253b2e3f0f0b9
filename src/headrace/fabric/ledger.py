"""The ledger of a run: progress of all processes, heartbeats, pause and stop, episodes, metrics, divergences.

It consists of counters and rows with one writer each, so nothing is locked. A fabric provides the memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.compile.reports import Divergence, Report, metric_names, metrics_by_name
from headrace.envs import SUCCESS, Episode
from headrace.graph import Node
from headrace.graph.sections import Sections
from headrace.shm.memory import Arena, fence

EPISODES = 512
"""Finished episodes kept for each process until they are read; older ones are overwritten."""


class Ledger:
    """Every process makes the same one over the same memory, so all see the same numbers."""

    def __init__(self, arena: Arena, sections: Sections, log_info: Sequence[str] = ()):
        plan = sections.plan
        self.members = {
            (fragment.id, replica): i
            for i, (fragment, replica) in enumerate((f, r) for f in plan.fragments for r in range(f.replicas))
        }
        """The index of each process."""
        number = len(self.members)
        self.members |= {(service.id, 0): number + i for i, service in enumerate(plan.services)}
        self._flags = arena.counters(3)
        self.beats = arena.counters(len(self.members))
        """Time of the last heartbeat of each process, in nanoseconds; 0 before the first."""
        self.waited = arena.counters(len(self.members))
        """Nanoseconds each process has spent waiting for others."""
        self.steps = arena.counters(len(self.members))
        """Environment steps begun by each process since it started."""
        self.stood = arena.counters(number)
        """The last request to pause that each training process has followed."""
        collecting = sum(section.fragment.replicas for section in sections.collecting)
        learning = sum(section.fragment.replicas for section in sections.learning)
        self.begun = arena.counters(collecting)
        """Collecting passes that each section has begun."""
        self.passes = arena.counters(collecting)
        """Collecting passes that each section has completed: what it stores is there."""
        self.learned = arena.counters(learning)
        """Learning passes that each section has completed."""
        self.applied = arena.counters(1)
        """Passes whose gradients were applied, of all loops, where a fragment applies gradients."""
        self.updates = arena.counters(learning)
        """Optimiser steps, as each learning section last counted them."""
        self.digests = arena.array((learning,), np.uint64)
        """Checksum of the cells of each learning section: equal for all data-parallel replicas."""
        self.lags = arena.array((collecting, 8), np.int64)
        """Of each collecting section: versions behind, summed over passes; passes; the maximum since last read."""
        self.nodes = [node.id for node in (*sections.graph.nodes, *sections.graph.play.nodes)]
        self._executes = arena.array((len(self.members), len(self.nodes)), np.int64)
        """Which nodes each process has run."""
        self.finished = arena.counters(number)
        self.said = (SUCCESS, *log_info)
        """The numbers of the info at the end of an episode that are logged."""
        self._episodes = arena.array((number, EPISODES, 2 + len(self.said)), np.float64)
        self.names = metric_names(sections.graph)
        self._metrics = arena.array((max(1, len(self.names)), 2), np.float64)
        """The last value of each metric, and whether there was one."""
        self.learns = sections.graph.where(role="learning")
        self._diverged = arena.array((len(self.learns), 2), np.int64)
        """Of each learning stage: the update in which something was not finite, 0 if none; the index of the metric,
        or the number of metrics if it was a cell."""

    @property
    def stopping(self) -> bool:
        return bool(self._flags[0])

    def stop(self) -> None:
        """Ask every process to end after its current work."""
        self._flags[0] = 1

    @property
    def pauses(self) -> int:
        """Requests to pause so far; odd while a pause lasts."""
        return int(self._flags[1])

    @property
    def pausing(self) -> bool:
        return bool(self._flags[1] % 2 == 1)

    def pause(self, wanted: bool) -> None:
        """Ask training processes to finish what is due and rest, or to go on."""
        if self.pausing != wanted:
            self._flags[1] += 1

    @property
    def resting(self) -> bool:
        """Whether all training processes have followed the request to pause."""
        return bool((self.stood == self.pauses).all())

    @property
    def repeat(self) -> int:
        """Learning passes fused into one program; 0 means as the plan has it."""
        return int(self._flags[2])

    def fuse(self, repeat: int) -> None:
        """Fuse `repeat` learning passes into one program from now on."""
        self._flags[2] = repeat

    def beat(self, who: int) -> None:
        """Record a heartbeat."""
        self.beats[who] = time.monotonic_ns()

    def suspend_watchdog(self, who: int) -> None:
        """Disable the hang check until the next heartbeat: compilation may take any time."""
        self.beats[who] = 0

    def runs(self, who: int, nodes: Sequence[str]) -> None:
        """Record that a process has run these nodes."""
        self._executes[who, [self.nodes.index(node) for node in nodes]] = 1

    def executed(self, who: int) -> list[str]:
        """The nodes that a process has run."""
        return [node for node, ran in zip(self.nodes, self._executes[who], strict=True) if ran]

    def lag(self, place: int, versions: int) -> None:
        """Record how many weight versions behind a pass was."""
        lags = self.lags[place]
        lags[0] += versions
        lags[1] += 1
        if versions > lags[2]:
            lags[2] = versions

    def add_episodes(self, who: int, episodes: list[Episode]) -> None:
        """Add the episodes that a process finished."""
        for episode in episodes:
            said = [episode.info.get(name, math.nan) for name in self.said]
            self._episodes[who, self.finished[who] % EPISODES] = [episode.reward, episode.length, *said]
            fence()
            self.finished[who] += 1

    def episodes(self, since: NDArray[np.int64]) -> list[Episode]:
        """Episodes after the first `since` of each process; updates `since`."""
        found = []
        for who in range(len(self.finished)):
            newest = int(self.finished[who])
            fence()
            for i in range(max(int(since[who]), newest - EPISODES), newest):
                reward, length, *said = self._episodes[who, i % EPISODES].tolist()
                info = {name: value for name, value in zip(self.said, said, strict=True) if not math.isnan(value)}
                found.append(Episode(reward, int(length), info))
            since[who] = newest
        return found

    def record_metrics(self, nodes: Sequence[Node], report: Report) -> None:
        """Record the metrics of a report: means over the fused passes in which each stage ran."""
        places = list(self.names.values())
        for name, value in metrics_by_name(nodes, report, self.names).items():
            self._metrics[places.index(name)] = float(value), 1

    def metrics(self) -> dict[str, Any]:
        """The last value of each metric, by name."""
        return {name: float(v) for name, (v, known) in zip(self.names.values(), self._metrics, strict=False) if known}

    def report_divergence(self, found: Divergence) -> None:
        """Record where a stage first diverged."""
        row = self._diverged[[node.id for node in self.learns].index(found.node.id)]
        if not row[0]:
            row[1] = found.place
            fence()
            row[0] = found.update

    def divergences(self) -> list[Divergence]:
        """The divergences of all stages."""
        rows = zip(self.learns, self._diverged.tolist(), strict=True)
        return [Divergence(node, update, place) for node, (update, place) in rows if update]
