"""The graph of a loop: nodes (stage, env and store operations) and the typed edges between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import jax

from headrace.core.symbols import Ref
from headrace.stores import Draw, Fill
from headrace.types import EnvSpec, Tree, tree_bytes

NodeKind = Literal["env", "stage", "store"]
Role = Literal["environment", "acting", "storing", "learning", "computing"]
Phase = Literal["collect", "learn"]
"""Whether a node comes before a store, and collects data, or after it, and learns from data."""

EdgeKind = Literal["data", "cell", "replay", "rollout", "state"]


@dataclass(frozen=True)
class StepEnv:
    """`env.step`, or all of `env.unroll`."""

    unrolled: bool
    """Whether one pass collects a trajectory, `[steps, num_envs, ...]`, rather than a step, `[num_envs, ...]`."""


Operation = StepEnv | Fill | Draw


@dataclass(frozen=True)
class Bound:
    """A stage's argument and the cell behind it."""

    argument: str
    cell: str


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of the loop."""

    id: str
    kind: NodeKind
    name: str
    inputs: tuple[Any, ...]
    """For each argument a pytree with `Ref` leaves."""
    output: Tree
    """The shapes of its output in one execution."""
    reads: tuple[Bound, ...] = ()
    writes: tuple[Bound, ...] = ()
    operation: Operation | None = None
    """The arguments of the call, for nodes of the environment and stores."""
    times: int = 1
    """Executions in one pass: the steps of an unroll."""
    every: int = 1
    """It runs in every n-th pass."""
    function: Any = None
    """The stage, for nodes of that kind."""
    role: Role = "computing"
    domain: Phase = "collect"
    """Whether it collects, or learns from the data of a store."""
    index: int = 0
    """Its place in the graph."""

    @property
    def sources(self) -> Iterator[Ref]:
        """Every input array."""
        return (leaf for leaf in jax.tree.leaves(self.inputs) if isinstance(leaf, Ref))

    @property
    def store(self) -> str:
        """The store an operation such as `replay.insert` belongs to."""
        return self.name.partition(".")[0]


@dataclass(frozen=True, eq=False)
class Edge:
    """Something that flows from one node to another."""

    source: str
    target: str
    what: str
    struct: Tree
    kind: EdgeKind

    @property
    def bytes(self) -> int:
        return tree_bytes(self.struct)


@dataclass(frozen=True, eq=False)
class Play:
    """Acting without exploration: not part of the loop, run by the evaluator and the viewer."""

    nodes: tuple[Node, ...]
    action: Tree
    """Its action, as a tree of `Ref`."""

    @property
    def reads(self) -> tuple[Bound, ...]:
        """The cells it reads, each once."""
        return tuple({bound.cell: bound for node in self.nodes for bound in node.reads}.values())


@dataclass(frozen=True, eq=False)
class Stored:
    """A store of the loop: the nodes that fill it and draw from it, and the shapes it holds."""

    name: str
    fill: Node
    draws: tuple[Node, ...]
    struct: Tree
    """The shapes of what one pass inserts."""
    lead: int
    """Number of axes before those of one row: steps, if trajectories are inserted, and environments."""

    @property
    def env_axis(self) -> int:
        """The axis of environments."""
        return self.lead - 1

    @property
    def row(self) -> Tree:
        """The shapes of one row."""
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[self.lead :], leaf.dtype), self.struct)

    @property
    def operation(self) -> Fill:
        operation: Any = self.fill.operation
        return operation  # type: ignore[no-any-return]

    def require_memory(self) -> None:
        """Refuse a store that would not fit into memory."""
        self.operation.require(self.row)


@dataclass(frozen=True, eq=False)
class Domain:
    """Nodes that learn at one rate: those that draw from stores, and everything computed from that data."""

    index: int
    """Its index among the learning domains."""
    nodes: tuple[Node, ...]
    collected: int
    """Transitions of one collecting pass, over all environments."""

    @cached_property
    def sources(self) -> tuple[Node, ...]:
        """The nodes that draw from a store."""
        return tuple(node for node in self.nodes if node.kind == "store")

    @cached_property
    def draws(self) -> tuple[Draw, ...]:
        """Their operations."""
        return tuple(node.operation for node in self.sources if isinstance(node.operation, Draw))

    @cached_property
    def fused(self) -> bool:
        """Whether several passes may run as one program, over batches drawn at once."""
        return all(draw.fused for draw in self.draws)

    @cached_property
    def frames(self) -> int:
        """Transitions that one pass learns from."""
        return sum(draw.frames(self.collected) for draw in self.draws)

    @property
    def staleness(self) -> int | None:
        """How many weight versions behind the learner the data may be; None where there is no limit."""
        return min((draw.staleness for draw in self.draws if draw.staleness is not None), default=None)

    @property
    def rate(self) -> Fraction:
        """Learning passes for each transition collected."""
        return min(draw.rate(self.collected) for draw in self.draws)

    @property
    def begins(self) -> int:
        """Collecting passes after which learning may begin."""
        return int(max(-(-draw.after // self.collected) for draw in self.draws))

    def due(self, passes: int) -> int:
        """Learning passes allowed after `passes` collecting passes."""
        return min([draw.due(self.collected, passes) for draw in self.draws])

    def needed(self, learned: int) -> int:
        """Collecting passes needed for `learned` learning passes."""
        return max(draw.needed(self.collected, learned) for draw in self.draws)


@dataclass(frozen=True, eq=False)
class Graph:
    """The dataflow graph of a loop, as one symbolic call of it recorded."""

    algorithm: str
    spec: EnvSpec
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    cells: dict[str, Tree]
    """The shapes of each cell's module, without the optimiser's state."""
    play: Play

    @cached_property
    def compiled(self) -> dict[Any, Any]:
        """Compiled programs of this graph: shared by all runs that use it, and freed with the last of them."""
        return {}

    @cached_property
    def by_id(self) -> dict[str, Node]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def width(self) -> dict[str, int]:
        """The number of arrays that each node outputs."""
        return {node.id: len(jax.tree.leaves(node.output)) for node in self.nodes}

    def where(self, **wanted: Any) -> tuple[Node, ...]:
        """The nodes with these attribute values: `where(role="acting")`."""
        return tuple(n for n in self.nodes if all(getattr(n, name) == value for name, value in wanted.items()))

    def only(self, name: str) -> Node:
        """The only node of a name, such as `env.step`."""
        (node,) = self.where(name=name)
        return node

    @property
    def steps(self) -> int:
        """Environment steps of one collecting pass."""
        return self.only("env.step").times

    @property
    def collected(self) -> int:
        """Transitions of one collecting pass, over all environments."""
        return self.spec.num_envs * self.steps

    @property
    def unrolled(self) -> bool:
        """Whether one pass collects a trajectory, `[steps, num_envs, ...]`, rather than a step, `[num_envs, ...]`."""
        operation = self.only("env.step").operation
        return isinstance(operation, StepEnv) and operation.unrolled

    @cached_property
    def domains(self) -> tuple[Domain, ...]:
        """The learning domains, in the loop's order: sets of nodes connected by data, starting at stores."""
        sets: list[list[Node]] = []
        for node in self.where(domain="learn"):
            takes = {ref.node for ref in node.sources}
            joined = [held for held in sets if any(other.id in takes for other in held)]
            sets = [held for held in sets if held not in joined] + [[*(n for held in joined for n in held), node]]
        sets = sorted((sorted(held, key=lambda node: node.index) for held in sets), key=lambda held: held[0].index)
        return tuple(Domain(i, tuple(held), self.collected) for i, held in enumerate(sets))

    @cached_property
    def domain_of(self) -> dict[str, int]:
        """The index of the learning domain of each learning node."""
        return {node.id: domain.index for domain in self.domains for node in domain.nodes}

    @cached_property
    def stores(self) -> dict[str, Stored]:
        """The stores, by name, in the order in which the loop fills them."""
        found = {}
        for fill in self.where(kind="store", domain="collect"):
            edges = [edge for edge in self.edges if edge.source == fill.id]
            struct = edges[0].struct
            given = 2 if self.unrolled or edges[0].kind == "rollout" else 1
            draws = tuple(self.by_id[edge.target] for edge in edges)
            found[fill.store] = Stored(fill.store, fill, draws, struct, given)
        return found

    @property
    def staleness(self) -> int | None:
        """The strictest limit of all domains on how stale data may be; None where there is none."""
        return min((d.staleness for d in self.domains if d.staleness is not None), default=None)
