"""What the processes of a run share, over one block of memory: stores, weights, counters, results."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from headrace.channels.latest import Latest
from headrace.channels.lockstep import Lockstep
from headrace.channels.memory import Layout, fence
from headrace.channels.queue import Queue
from headrace.channels.table import Table
from headrace.core.cells import Cell
from headrace.envs import SUCCESS, Episode, Step
from headrace.graph import Graph, Node, Plan
from headrace.graph.compile import Shelf, Ticket, bases, share_of
from headrace.graph.gradients import changes
from headrace.graph.reports import Divergence, Report, measured, metric_names
from headrace.runtimes.base import Options
from headrace.runtimes.pace import Pace
from headrace.runtimes.part import table_of
from headrace.runtimes.places import Role
from headrace.types import Array, struct

EPISODES = 512
"""Finished episodes a sampler may be ahead of whoever reads them; older ones are forgotten."""

QUEUED = 2
"""Trajectories of one sampler between it and the learner, at least."""

SENT = 4
"""Gradients of one loop between it and whoever applies them, at most."""

FRAME = (480, 640, 3)
"""Room for a picture; larger ones are made to fit."""


class Shared:
    """Made alike in every process, so that all see the same arrays."""

    def __init__(self, layout: Layout, plan: Plan, part: Graph, cells: dict[str, Cell], options: Options):
        """`part` is the graph of one replica of the loop."""
        graph = plan.graph
        self.plan = plan
        self.shelf = Shelf(cells)
        self.replicas = plan.parts if plan.loops else 1 if plan.remote else plan.collector.replicas
        """Processes that act: samplers, or whole loops."""
        self.learners = plan.learners
        self._pace = Pace.of(plan)
        self._flags = layout.counters(4)
        workers = plan.collector.replicas if plan.remote else 0
        members = self.replicas + len(self.learners) + 2 + workers
        self.beats = layout.counters(members)
        """When each member last showed a sign of life, in nanoseconds; 0 before the first."""
        self.waited = layout.counters(members)
        """Nanoseconds each member has spent waiting for others."""
        apart = 0 if plan.loops else len(self.learners)  # processes that only learn
        self.paused = layout.counters(self.replicas + (1 if plan.gradients == "central" else apart))
        """The last request to pause that each process that acts or learns has followed."""
        self.learned = layout.counters(apart or self.replicas)
        """Learning passes run by each learner, or loop."""
        self.updates = layout.counters(len(self.learners))
        """Optimiser steps, as each learner last counted them."""
        reporting = max(self.replicas, workers)
        self.steps = layout.counters(members)
        """Calls to step of each member's environments, in its life."""
        self.lags = layout.array((self.replicas, 8), np.int64)
        """Of each sampler: versions behind, summed over its passes; its passes; the most since that was last asked."""
        self.finished = layout.counters(reporting)
        self.said = (SUCCESS, *options.log_info)
        """What is passed on of the info at the end of an episode."""
        self.episodes = layout.array((reporting, EPISODES, 2 + len(self.said)), np.float64)
        self.names = metric_names(graph)
        self.metrics = layout.array((max(1, len(self.names)), 2), np.float64)
        """What learning last measured, and whether it was measured at all."""
        self.learning = graph.where(role="learning")
        self.diverged = layout.array((len(self.learning), 2), np.int64)
        """Of each learning stage: the update in which something was not finite, 0 if all is well; which of its metrics
        it was, or after those its cells."""
        structs = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in self.shelf.flat(cells)]
        self.begin = [layout.array(struct.shape, struct.dtype) for struct in structs]
        """All cells as the run began: written before any process is started."""
        self.published = [self._read_elsewhere(fragment.nodes) for fragment in self.learners]
        """For each learner: where the arrays stand that others read of it."""
        self.owned = [self._written(fragment.nodes) for fragment in self.learners]
        """For each learner: where all arrays of its cells stand."""
        self.weights = [Latest(layout, [structs[i] for i in places]) for places in self.published]
        self.state = [Latest(layout, [structs[i] for i in places]) for places in self.owned]
        played = [structs[i] for bound in graph.play.reads for i in self.shelf.modules[bound.cell]]
        counts = jax.ShapeDtypeStruct((2,), np.int64)
        self.score = Latest(layout, [jax.ShapeDtypeStruct((3, options.eval_episodes), np.float64), counts, *played])
        """The newest evaluation: returns, lengths, successes (NaN where none is said); version and environment steps;
        the actor that played."""
        self.frame = Latest(layout, [jax.ShapeDtypeStruct(FRAME, np.uint8), jax.ShapeDtypeStruct((5,), np.float64)])
        """The newest picture: pixels; height, width, episode, step, return so far."""
        self.lockstep = _lockstep(layout, plan) if plan.remote else None
        """Between whoever acts and the environments, where they are apart."""
        self.table: Table | None = None
        """The store between samplers and learners."""
        self.tables: list[Table] = []
        """All stores: that one, or one for each loop."""
        self.queues: list[list[Queue]] = []
        """For each learner, from each sampler."""
        self.looped = layout.counters(self.replicas)
        """Passes that each loop has collected."""
        self.digests = layout.array((self.replicas,), np.uint64)
        """What each loop's cells add up to: the same for all, where they learn as one."""
        self.sent: list[Queue] = []
        """From each loop that sends its gradients, to the one that applies them."""
        self.applied = layout.counters(1)
        """Passes of all loops whose gradients were applied."""
        if plan.gradients == "central":
            self.sent = [Queue(layout, message(part, self.shelf, structs), SENT) for _ in range(self.replicas)]
        share = share_of(graph, self.replicas)
        if plan.loops:
            tables = [table_of(plan, part, layout.array) for _ in range(self.replicas)]
            self.tables = [table for table in tables if table is not None]
        elif graph.on_policy:
            # Room for all that may be ahead: a sampler that waits for room could not stand still for a snapshot.
            slots = max(QUEUED, self._pace.staleness + 1)
            leaves = jax.tree.leaves(share)
            self.queues = [[Queue(layout, leaves, slots) for _ in range(self.replicas)] for _ in self.learners]
        else:
            self.table = Table(share, self.replicas, graph.capacity, allocate=layout.array)
            self.tables = [self.table]

    def _written(self, nodes: Sequence[str]) -> list[int]:
        cells = {bound.cell for node in nodes for bound in self.plan.graph.by_id[node].writes}
        return [i for name in sorted(cells) for i in self.shelf.places[name]]

    def _read_elsewhere(self, nodes: Sequence[str]) -> list[int]:
        graph = self.plan.graph
        elsewhere = [node for fragment in self.plan.fragments if fragment.nodes != nodes for node in fragment.nodes]
        others = [*(graph.by_id[node] for node in elsewhere), *graph.play.nodes]
        read = {bound.cell for node in others for bound in node.reads}
        written = {bound.cell for node in nodes for bound in graph.by_id[node].writes}
        return [i for name in sorted(read & written) for i in self.shelf.modules[name]]

    def member(self, role: Role, replica: int) -> int:
        """The place of a process in the lists."""
        watching = self.replicas + len(self.learners)
        first = {"learner": self.replicas, "applier": self.replicas, "evaluator": watching, "viewer": watching + 1}
        return (first | {"sampler": 0, "loop": 0, "environment": watching + 2})[role] + replica

    @property
    def stopping(self) -> bool:
        return bool(self._flags[0])

    def stop(self) -> None:
        """Let every process end after what it is doing."""
        self._flags[0] = 1

    @property
    def pauses(self) -> int:
        """Requests to pause so far; odd while a pause lasts."""
        return int(self._flags[1])

    def pause(self, wanted: bool) -> None:
        """Ask samplers and learners to stand still, or let them go on."""
        if bool(self.pauses % 2) != wanted:
            self._flags[1] += 1

    @property
    def pace(self) -> Pace:
        """The pace, with as many passes in a program as was last asked for."""
        repeat = int(self._flags[2])
        if repeat and repeat != self._pace.repeat:
            self._pace = self._pace.fused(repeat)
        return self._pace

    def fuse(self, repeat: int) -> None:
        """Have so many learning passes run as one program from now on."""
        self._flags[2] = repeat

    @property
    def passes(self) -> NDArray[np.int64]:
        """Collecting passes that each sampler has handed over: what its store has committed."""
        if self.plan.loops:
            return self.looped
        if self.table is not None:
            handed: NDArray[np.int64] = self.table.written // self.table.together
            return handed
        return np.array([min(queue.produced for queue in queues) for queues in zip(*self.queues, strict=True)])

    def beat(self, who: int) -> None:
        """Show a sign of life."""
        self.beats[who] = time.monotonic_ns()

    def lag(self, replica: int, versions: int) -> None:
        """Note how many versions behind a pass was."""
        lags = self.lags[replica]
        lags[0] += versions
        lags[1] += 1
        if versions > lags[2]:
            lags[2] = versions

    def note(self, nodes: Sequence[Node], report: Report) -> None:
        """Say what learning measured: means over the fused passes, of those that ran."""
        places = list(self.names.values())
        for name, value in measured(nodes, report, self.names).items():
            self.metrics[places.index(name)] = float(value), 1

    def tell(self, found: Divergence) -> None:
        """Say that a stage has diverged: where it did first."""
        row = self.diverged[[node.id for node in self.learning].index(found.node.id)]
        if not row[0]:
            row[1] = found.place
            fence()
            row[0] = found.update

    def divergences(self) -> list[Divergence]:
        """Those of all stages."""
        rows = zip(self.learning, self.diverged.tolist(), strict=True)
        return [Divergence(node, update, place) for node, (update, place) in rows if update]

    def measured(self) -> dict[str, float]:
        """What learning last measured, by name."""
        return {name: float(v) for name, (v, known) in zip(self.names.values(), self.metrics, strict=False) if known}

    def report(self, replica: int, episodes: list[Episode]) -> None:
        """Hand over the episodes that a sampler finished."""
        for episode in episodes:
            said = [episode.info.get(name, math.nan) for name in self.said]
            self.episodes[replica, self.finished[replica] % EPISODES] = [episode.reward, episode.length, *said]
            fence()
            self.finished[replica] += 1

    def reported(self, replica: int, number: int) -> Episode:
        """The episode that a sampler reported as its `number`-th."""
        reward, length, *said = self.episodes[replica, number % EPISODES].tolist()
        info = {name: value for name, value in zip(self.said, said, strict=True) if not math.isnan(value)}
        return Episode(reward, int(length), info)

    def save(self, flat: Sequence[Any]) -> None:
        """Publish all cells: where every learner, and whoever reads weights, begins."""
        for state, places in zip(self.state, self.owned, strict=True):
            state.publish([np.asarray(flat[i]) for i in places])
        for weights, places in zip(self.weights, self.published, strict=True):
            weights.publish([np.asarray(flat[i]) for i in places])

    def load(self, flat: Sequence[Any]) -> list[Any]:
        """All cells as the learners last kept them, in place of those in `flat`."""
        whole = list(flat)
        for state, places in zip(self.state, self.owned, strict=True):
            if (held := state.read()) is not None:
                for place, array in zip(places, held[1], strict=True):
                    whole[place] = array
        return whole


def message(part: Graph, shelf: Shelf, structs: Sequence[Any]) -> list[Any]:
    """The shapes of what a loop sends: whether there are changes, whether they are a pass's last, and the changes."""
    values = {part.source.id: jax.tree.leaves(part.source.output)}
    nodes = part.where(domain="learn", kind="stage")
    ticket = Ticket(bases(part, 0, 0), np.uint32(0))
    sent, _ = jax.eval_shape(lambda *given: changes(nodes, shelf, *given), list(structs), values, ticket)
    return [jax.ShapeDtypeStruct((2,), np.int64), *sent]


def _lockstep(layout: Layout, plan: Plan) -> Lockstep:
    """A place for every set of environments of every worker."""
    spec, workers = plan.graph.spec, plan.collector.replicas * plan.collector.groups
    number = spec.num_envs // workers
    obs, flag = struct(spec.observation, number), jax.ShapeDtypeStruct((number,), np.bool_)
    step = Step(obs, jax.ShapeDtypeStruct((number,), np.float32), flag, flag, obs)
    request = {"action": struct(spec.action, number), "seed": jax.ShapeDtypeStruct((1,), np.int64)}
    return Lockstep(layout, request, {"step": step, "ended": jax.ShapeDtypeStruct((1,), np.bool_)}, workers)


class Mirror:
    """The newest of the cells that some nodes read and another process writes, kept up in a list of arrays."""

    def __init__(self, shared: Shared, flat: list[Array], nodes: Sequence[Node], but: int | None = None):
        """`but` is the learner whose mirror it is."""
        self.shared = shared
        self.flat = flat
        read = {i for node in nodes for bound in node.reads for i in shared.shelf.modules[bound.cell]}
        self.sources = [i for i, places in enumerate(shared.published) if i != but and read & set(places)]
        self.versions = [0] * len(shared.learners)

    def refresh(self) -> bool:
        """Take over what is new; whether anything was."""
        fence()  # after whatever said that there is something new
        fresh = False
        for i in self.sources:
            latest = self.shared.weights[i]
            if latest.version > self.versions[i] and (newer := latest.read(newer_than=self.versions[i])) is not None:
                self.versions[i], arrays = newer
                # Copied, because a learner's program may be given what it reads to write its results into.
                for place, array in zip(self.shared.published[i], jax.device_put(arrays, may_alias=False), strict=True):
                    self.flat[place] = array
                fresh = True
        return fresh

    def lag(self) -> int:
        """Versions that were published since."""
        return max((self.shared.weights[i].version - self.versions[i] for i in self.sources), default=0)
