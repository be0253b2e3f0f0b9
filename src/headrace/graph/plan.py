"""Plans: which fragments there are, where each runs, and how every cut edge is carried.

The passes trace -> cut -> fuse -> verify each return a new frozen value; a policy cuts and places at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import jax

from headrace.errors import PlanError
from headrace.graph.ir import Edge, EdgeKind, Graph, Node
from headrace.types import Tree

Channel = Literal["stream", "latest", "queue", "table", "reduce", "apply"]
"""How an edge is carried. The last two carry gradients: averaged over replicas, or to the one fragment that applies."""

CHANNELS: dict[EdgeKind, Channel] = {"cell": "latest", "rollout": "queue", "replay": "table", "data": "stream"}
"""The channel for each kind of edge; the environment's own state has none, because it cannot be cut."""

GRADIENTS: tuple[Channel, ...] = ("reduce", "apply")
"""Channels that carry gradients."""

STALE: tuple[Channel, ...] = ("latest", "apply")
"""Channels whose reader may be behind the writer."""

FUSED_UPDATES = 8
"""Learning passes in one XLA program, so that dispatch is paid once for all of them."""

FUSED_INSERTS = 512
"""Most transitions collected between two learning programs, so that acting does not lag far behind learning."""


@dataclass(frozen=True)
class Fragment:
    """Nodes that always run together in one place."""

    id: str
    nodes: tuple[str, ...]
    replicas: int = 1
    place: str = "local"
    device: str = "cpu:0"
    cores: tuple[int, ...] = ()
    """Cores its processes run on, counted from 0 among those the parent may use; empty means all."""
    repeat: int = 1
    """Learning passes fused into one program."""
    groups: int = 1
    """Groups of environments that take turns, so that stepping overlaps with acting in another fragment."""
    asked: int = 0
    """Replicas asked for, where they were merged into fewer; 0 where they were not."""


@dataclass(frozen=True)
class Cut:
    """An edge between two fragments, and how it is carried."""

    source: str
    target: str
    what: str
    channel: Channel
    staleness: int
    """How many versions the reader may be behind; 0 is lockstep."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A graph divided into placed fragments."""

    graph: Graph
    policy: str
    fragments: tuple[Fragment, ...]
    cuts: tuple[Cut, ...]
    services: tuple[Fragment, ...] = ()
    """Fragments beside the loop, evaluator and viewer: they subscribe to the cells that `play` reads."""

    @cached_property
    def fragment_of(self) -> dict[str, Fragment]:
        """The fragment of each node; the first one, where several fragments compute it."""
        return {node: fragment for fragment in reversed(self.fragments) for node in fragment.nodes}

    @property
    def learners(self) -> tuple[Fragment, ...]:
        """The fragments that learn, in the order in which the loop calls them."""
        writing = [node for node in self.graph.where(domain="learn") if node.writes]
        return tuple(dict.fromkeys(self.fragment_of[node.id] for node in writing))

    @property
    def collector(self) -> Fragment:
        """The fragment that steps the environment."""
        return self.fragment_of["env.step"]

    @property
    def gradients(self) -> Channel | None:
        """How gradients cross between replicas of the loop; None where there is one."""
        return next((cut.channel for cut in self.cuts if cut.channel in GRADIENTS), None)

    @property
    def alone(self) -> bool:
        """Whether it needs one process only: one fragment, not replicated, or one program over a JAX environment."""
        return len(self.fragments) == 1 and (self.graph.spec.pure or self.fragments[0].replicas == 1)

    @property
    def one_program(self) -> bool:
        """Whether loop, environment and store are one XLA program."""
        return len(self.fragments) == 1 and self.graph.spec.pure

    @property
    def shares(self) -> int:
        """Replicas of the whole loop, each with its own environments and stores; 1 where no gradients cross."""
        return self.collector.replicas if self.gradients else 1

    @property
    def beside(self) -> bool:
        """Whether one fragment does all the collecting and nothing else, and all others learn."""
        collecting = {node.id for node in self.graph.where(domain="collect")}
        return set(self.collector.nodes) == collecting and {*self.fragments} == {self.collector, *self.learners}

    @property
    def turns(self) -> bool:
        """Whether collecting and learning take turns, because acting must use the newest weights."""
        acting = [cut.staleness for cut in self.cuts if self.graph.by_id[cut.target].domain == "collect"]
        return max(acting, default=0) == 0

    def cut_of(self, edge: Edge) -> Cut | None:
        """The cut of an edge; None inside a fragment."""
        found = (c for c in self.cuts if (c.source, c.target, c.what) == (edge.source, edge.target, edge.what))
        return next(found, None)

    def placement(self) -> dict[str, Any]:
        """Everything but the graph, as plain JSON values."""
        parts: dict[str, Any] = {"fragments": self.fragments, "cuts": self.cuts, "services": self.services}
        return {"policy": self.policy} | {name: [dataclasses.asdict(one) for one in of] for name, of in parts.items()}

    @staticmethod
    def from_json(graph: Graph, placement: dict[str, Any]) -> Plan:
        """The plan of a graph with this placement."""

        def read(fragments: list[dict[str, Any]]) -> tuple[Fragment, ...]:
            return tuple(Fragment(**f | {"nodes": tuple(f["nodes"]), "cores": tuple(f["cores"])}) for f in fragments)

        policy, fragments, cuts, services = placement.values()
        return Plan(graph, policy, read(fragments), tuple(Cut(**cut) for cut in cuts), read(services))

    def to_json(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return {
            "algorithm": self.graph.algorithm,
            "env": self.graph.spec.id,
            "num_envs": self.graph.spec.num_envs,
            "policy": self.policy,
            "nodes": [self._node(node) for node in self.graph.nodes],
            "edges": [self._edge(edge) for edge in self.graph.edges],
            "fragments": [dataclasses.asdict(fragment) for fragment in self.fragments],
            "services": [dataclasses.asdict(service) for service in self.services],
            "gradients": self.gradients,
        }

    def _node(self, node: Node) -> dict[str, Any]:
        return {
            "id": node.id,
            "kind": node.kind,
            "name": node.name,
            "role": node.role,
            "domain": node.domain,
            "reads": [bound.cell for bound in node.reads],
            "writes": [bound.cell for bound in node.writes],
            "times": node.times,
            "every": node.every,
            "fragment": self.fragment_of[node.id].id,
        }

    def _edge(self, edge: Edge) -> dict[str, Any]:
        cut = self.cut_of(edge)
        return {
            "source": edge.source,
            "target": edge.target,
            "what": edge.what,
            "kind": edge.kind,
            "shape": _plain(edge.struct, lambda leaf: list(leaf.shape)),
            "dtype": _plain(edge.struct, lambda leaf: str(leaf.dtype)),
            "bytes": edge.bytes,
            "channel": cut.channel if cut else None,
            "staleness": cut.staleness if cut else 0,
        }


def cut(
    graph: Graph,
    policy: str,
    fragments: tuple[Fragment, ...],
    staleness: int,
    gradients: Literal["reduce", "apply"] | None = None,
) -> Plan:
    """Divide a graph into fragments; every edge between two of them becomes a channel.

    `staleness` is how many versions behind its writer a cell may be read. `gradients` is the channel for the
    gradients of a replicated loop.
    """
    cuts = tuple(
        Cut(edge.source, edge.target, edge.what, CHANNELS[edge.kind], staleness if edge.kind == "cell" else 0)
        for edge in graph.edges
        if edge.kind in CHANNELS and crosses(edge, fragments)
    )
    if gradients is not None:
        learning = graph.where(domain="learn", role="learning")
        cuts += tuple(Cut(node.id, node.id, "gradients", gradients, staleness) for node in learning)
    return Plan(graph, policy, fragments, cuts)


def crosses(edge: Edge, fragments: Iterable[Fragment]) -> bool:
    """Whether a fragment needs what an edge carries and does not compute it."""
    return any(edge.target in fragment.nodes and edge.source not in fragment.nodes for fragment in fragments)


def with_computed(graph: Graph, nodes: Iterable[Node]) -> tuple[str, ...]:
    """The ids of some learning stages together with the draws and pure stages they take data from, in the loop's
    order. Those may be in several fragments: their random keys are the same wherever they run."""
    wanted = {node.id for node in nodes}
    for node in reversed(graph.where(domain="learn")):
        if node.id in wanted:
            wanted |= {ref.node for ref in node.sources if repeatable(graph.by_id[ref.node])}
    return tuple(node.id for node in graph.nodes if node.id in wanted)


def repeatable(node: Node) -> bool:
    """Whether a node may run in several fragments: it writes no cell, and its output is the same in each."""
    return node.domain == "learn" and not node.writes


def with_staleness(plan: Plan, staleness: int) -> Plan:
    """The plan with another staleness on every cut that may be stale."""
    cuts = tuple(dataclasses.replace(cut, staleness=staleness) if cut.channel in STALE else cut for cut in plan.cuts)
    if staleness and not any(cut.channel in STALE for cut in cuts):
        raise PlanError(
            f"policy '{plan.policy}' has every cell read as it was last written, so staleness {staleness} would change "
            "nothing; leave it away or use another policy."
        )
    return dataclasses.replace(plan, cuts=cuts)


def with_services(plan: Plan, names: Iterable[str]) -> Plan:
    """The plan with fragments that play with the newest cells, on the cores of what fills the stores."""
    near = plan.fragment_of[next(iter(plan.graph.stores.values())).fill.id]
    play = tuple(node.id for node in plan.graph.play.nodes)
    return dataclasses.replace(plan, services=tuple(Fragment(name, play, cores=near.cores) for name in names))


def fuse(plan: Plan, cores: int | None = None) -> Plan:
    """Merge replicas and fuse passes.

    Collecting replicas beyond the number of `cores` are merged into fewer with more environments. Learning fragments
    run several passes as one program, where the loop's rate makes several due.
    """
    plan = plan if cores is None else _batched(plan, cores)
    graph = plan.graph
    rates = [domain.rate for domain in graph.domains if domain.fused]
    if not rates or plan.gradients == "apply":
        return plan  # each gradient is sent as it comes
    repeat = max(1, min(FUSED_UPDATES, int(FUSED_INSERTS * min(rates))))
    several = {node.id for domain in graph.domains if domain.fused for node in domain.nodes}

    def fused(fragment: Fragment) -> Fragment:
        return dataclasses.replace(fragment, repeat=repeat) if several & set(fragment.nodes) else fragment

    return dataclasses.replace(plan, fragments=tuple(fused(fragment) for fragment in plan.fragments))


def _batched(plan: Plan, cores: int) -> Plan:
    collector, envs = plan.collector, plan.graph.spec.num_envs
    collecting = {node.id for node in plan.graph.where(domain="collect")}
    if set(collector.nodes) != collecting or collector.replicas <= cores or envs % collector.replicas:
        return plan
    number = max(n for n in range(1, cores + 1) if envs % n == 0)
    merged = dataclasses.replace(collector, replicas=number, asked=collector.replicas)
    return dataclasses.replace(plan, fragments=tuple(merged if f is collector else f for f in plan.fragments))


def replica_algorithm(plan: Plan, algorithm: Any) -> Any:
    """The algorithm of one replica of the whole loop: with its share of environments, stores and batches."""
    return type(algorithm)(algorithm.config.share(plan.shares, batches=plan.gradients == "reduce"))


def _plain(struct: Tree, of: Any) -> Any:
    """`of(array)` for a single array; for several, a dict by their names."""
    leaves = jax.tree_util.tree_leaves_with_path(struct)
    if len(leaves) == 1 and not leaves[0][0]:
        return of(leaves[0][1])
    return {jax.tree_util.keystr(path).lstrip("."): of(leaf) for path, leaf in leaves}
