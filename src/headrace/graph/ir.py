"""The graph of a loop: nodes (stage, env and store operations) and the typed edges between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import jax

from headrace.graph.operations import Insert, Operation, Sample, Step, Take
from headrace.types import EnvSpec, Tree, tree_bytes

Kind = Literal["env", "stage", "store"]
Role = Literal["environment", "acting", "storing", "learning", "computing"]
Side = Literal["collect", "learn"]
"""Of a store: what fills it, and what learns from it."""

EdgeKind = Literal["data", "cell", "replay", "rollout", "state"]


@dataclass(frozen=True)
class Ref:
    """One array among what a node yields."""

    node: str
    leaf: int


@dataclass(frozen=True)
class Bound:
    """A stage's argument and the cell behind it."""

    argument: str
    cell: str


@dataclass(frozen=True, eq=False)
class Node:
    """One operation of the loop."""

    id: str
    kind: Kind
    name: str
    inputs: tuple[Any, ...]
    """For each argument a pytree with `Ref` leaves."""
    output: Tree
    """The shapes of what one execution yields."""
    reads: tuple[Bound, ...] = ()
    writes: tuple[Bound, ...] = ()
    operation: Operation | None = None
    """What is asked of the environment or a store, for nodes of those kinds."""
    times: int = 1
    """Executions in one pass: the steps of an unroll."""
    every: int = 1
    """It runs in every so many passes."""
    function: Any = None
    """The stage, for nodes of that kind."""
    role: Role = "computing"
    domain: Side = "collect"
    index: int = 0
    """Its place in the graph."""

    @property
    def sources(self) -> Iterator[Ref]:
        """Every array it takes."""
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
    """Acting without exploring: not part of the loop, run by whoever evaluates or shows."""

    nodes: tuple[Node, ...]
    action: Tree
    """Where its action comes from: a tree of `Ref`."""

    @property
    def reads(self) -> tuple[Bound, ...]:
        """What it reads, each cell once."""
        return tuple({bound.cell: bound for node in self.nodes for bound in node.reads}.values())


@dataclass(frozen=True, eq=False)
class Domain:
    """Nodes that learn at one rate: what some stores give, and what is computed from it."""

    nodes: tuple[Node, ...]
    collected: int
    """Transitions of one collecting pass, over all environments."""

    @cached_property
    def sources(self) -> tuple[Node, ...]:
        """The nodes that take from a store."""
        return tuple(node for node in self.nodes if node.kind == "store")

    @cached_property
    def taken(self) -> tuple[Sample | Take, ...]:
        """How each of them does."""
        return tuple(node.operation for node in self.sources if isinstance(node.operation, Sample | Take))

    @property
    def replays(self) -> bool:
        """Whether all it learns from was sampled, so that several passes may run as one program."""
        return all(isinstance(operation, Sample) for operation in self.taken)

    @cached_property
    def frames(self) -> int:
        """Transitions that one pass learns from."""
        return sum(operation.frames(self.collected) for operation in self.taken)

    @property
    def staleness(self) -> int:
        """How many versions behind the actor of what it takes may have been; sampled ones may be any number."""
        return min((operation.staleness for operation in self.taken if isinstance(operation, Take)), default=0)

    @property
    def rate(self) -> Fraction:
        """Learning passes for each transition collected."""
        return min(operation.rate(self.collected) for operation in self.taken)

    @property
    def begins(self) -> int:
        """Collecting passes after which learning is let begin."""
        return max(-(-operation.after // self.collected) for operation in self.taken)

    def due(self, passes: int) -> int:
        """Learning passes that so many collecting passes allow."""
        return min(operation.due(self.collected, passes) for operation in self.taken)

    def needed(self, learned: int) -> int:
        """Collecting passes that so many learning passes need."""
        return max(operation.needed(self.collected, learned) for operation in self.taken)


@dataclass(frozen=True, eq=False)
class Graph:
    """What one symbolic call of a loop recorded."""

    algorithm: str
    spec: EnvSpec
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    cells: dict[str, Tree]
    """The shapes of each cell: what its readers see, without the optimiser's state."""
    play: Play

    @cached_property
    def compiled(self) -> dict[Any, Any]:
        """Programs made of this graph: shared by all runs that have it, and let go with the last of them."""
        return {}

    @cached_property
    def by_id(self) -> dict[str, Node]:
        return {node.id: node for node in self.nodes}

    def where(self, **wanted: Any) -> tuple[Node, ...]:
        """The nodes whose attributes are as given: `where(role="acting")`."""
        return tuple(n for n in self.nodes if all(getattr(n, name) == value for name, value in wanted.items()))

    def only(self, name: str) -> Node:
        """The one node of a name, such as `env.step`."""
        (node,) = self.where(name=name)
        return node

    @property
    def collected(self) -> int:
        """Transitions of one collecting pass, over all environments."""
        return self.spec.num_envs * self.only("env.step").times

    @cached_property
    def domains(self) -> tuple[Domain, ...]:
        """The learning domains, in the loop's order: nodes that data flows between, from a store on."""
        sets: list[list[Node]] = []
        for node in self.where(domain="learn"):
            takes = {ref.node for ref in node.sources}
            joined = [held for held in sets if any(other.id in takes for other in held)]
            sets = [held for held in sets if held not in joined] + [[*(n for held in joined for n in held), node]]
        sets = sorted((sorted(held, key=lambda node: node.index) for held in sets), key=lambda held: held[0].index)
        return tuple(Domain(tuple(held), self.collected) for held in sets)

    @property
    def domain(self) -> Domain:
        """The learning domain, where there is one."""
        (domain,) = self.domains
        return domain

    @property
    def source(self) -> Node:
        """Where the learning domain begins: the node that takes from the store."""
        (node,) = self.domain.sources
        return node

    @property
    def sink(self) -> Node:
        """Where the collecting domain ends: the node that fills the store."""
        (node,) = (node for node in self.where(kind="store", domain="collect"))
        return node

    @property
    def capacity(self) -> int:
        """Transitions that a replay store remembers."""
        operation = self.sink.operation
        assert isinstance(operation, Insert)
        return operation.capacity

    @property
    def stored(self) -> Tree:
        """The shapes of what one pass hands to the store."""
        return next(edge.struct for edge in self.edges if edge.kind in ("replay", "rollout"))

    @property
    def unrolled(self) -> bool:
        """Whether one pass collects a trajectory, `[steps, num_envs, ...]`, rather than a step, `[num_envs, ...]`."""
        operation = self.only("env.step").operation
        return isinstance(operation, Step) and operation.unrolled

    @property
    def env_axis(self) -> int:
        """The axis of environments in what is stored: a rollout store is given trajectories, if only of one step."""
        return 1 if self.on_policy or self.unrolled else 0

    @property
    def on_policy(self) -> bool:
        """Whether it learns from each trajectory as it comes."""
        return not self.domain.replays
