"""The collecting section of a fragment: observe, act, step, store, or those of them that it has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from headrace.core.symbols import Ref
from headrace.envs import HostEnv, make_host
from headrace.exec.cells import Workspace
from headrace.exec.lane import Call, Lane, Pass, PassOperation
from headrace.graph.ir import Node
from headrace.graph.sections import Section, Sections, kept_steps, refs_of, segments, wanted_of


class Collect:
    """The collecting section of one replica of a fragment."""

    def __init__(
        self,
        workspace: Workspace,
        section: Section,
        replica: int,
        envs: Sequence[HostEnv],
        stepping: Callable[[], None] | None = None,
    ):
        """`envs` are its environments, a set for each group, if it has any; `stepping` is called before every step of
        them."""
        self.section, self.replica, self.stepping = section, replica, stepping
        self.fabric, self.programs, self.cells, self.seed, self.jit = workspace
        self.graph = graph = self.programs.graph
        sections = self.fabric.sections
        self.groups, self.shares = sections.groups, sections.plan.shares
        self.step_node = graph.only("env.step")
        self.times, self.unrolled = self.step_node.times, graph.unrolled
        (self.action,) = jax.tree.leaves(self.step_node.inputs[0])
        nodes = [graph.by_id[node.id] for node in section.nodes]
        self.streams_in = [s for s in sections.received_by(section.fragment) if s.source.domain == "collect"]
        self.streams_out = [s for s in sections.sent_by(section.fragment) if s.source.domain == "collect"]
        self.leaves_in = {stream.source.id: stream.leaves for stream in self.streams_in}
        self._stepwise = {node.id: node.index <= self.step_node.index for node in graph.where(domain="collect")}
        self.width = graph.width
        self.outside = [Ref(s.source.id, leaf) for s in self.streams_out for leaf in s.leaves]
        before = [node for node in nodes if self.per_step(node.id)]
        after = [node for node in nodes if not self.per_step(node.id)]
        self.modules: list[tuple[Any, ...]] = []
        self.calls: list[Call] = []
        self.fills: dict[str, tuple[Any, list[Ref], bool]] = {}
        for node in after:
            if node.kind == "store":
                refs, lead = jax.tree.leaves(node.inputs[0]), graph.stores[node.store].lead
                self.fills[node.id] = self.fabric.store(node.store, replica), refs, lead == 2 and not self.unrolled
        self.steps, self.afterwards = self._operations(before, nodes), self._operations(after, nodes)
        self.kept = kept_steps(graph, (node.id for node in nodes))
        """Outputs of nodes here that are needed for all steps of a pass together: output indices, by node."""
        self.lanes = [Lane(self, group, envs[group] if envs else None) for group in range(self.groups)]
        self._rooms: dict[tuple[int, int], dict[str, dict[int, NDArray[Any]]]] = {}
        """By group and parity of the pass."""

    def per_step(self, node: str) -> bool:
        """Whether a node runs at every step of a pass, not once after them."""
        return self._stepwise[node]

    def _operations(self, nodes: Sequence[Node], all_: Sequence[Node]) -> list[PassOperation]:
        """The operations of a step, in order."""
        made: list[PassOperation] = []
        had = {node.id for node in all_}

        def waits(nodes: Sequence[Node]) -> tuple[str, ...]:
            new = [ref.node for ref in refs_of(nodes) if ref.node not in had]
            had.update(new)
            return tuple(dict.fromkeys(new))

        run: list[Node] = []

        def flush() -> None:
            for group in segments(run, self.leaves_in, {ref.node for ref in self.outside}):
                inside = {node.id for node in group}
                others = [node for node in all_ if node.id not in inside]
                self.calls.append(Call(self.programs, group, wanted_of(group, others, self.outside), self.jit))
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


def replica_envs(env: Any, sections: Sections) -> list[HostEnv]:
    """The environments of one replica of the fragment that steps them, a set for each group."""
    number = sections.graph.spec.num_envs // (sections.groups * sections.plan.collector.replicas)
    return [make_host(env, number) for _ in range(sections.groups)]
