"""trace: run a loop once with handles that record, and return its graph.

Shapes are never declared: every edge's shape and dtype follow from the environment's spaces through
`jax.eval_shape` of each stage.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import equinox as eqx
import jax
import jax.numpy as jnp

from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell
from headrace.core.handles import Env
from headrace.core.stage import BoundStage, tracing
from headrace.core.symbols import Ref, Symbol, as_struct, is_shape, show
from headrace.errors import HeadraceError, LoopError, nearest
from headrace.graph.ir import Bound, Edge, Graph, Node, Phase, Play, Role
from headrace.graph.symbolic import SymbolicEnv, eval_shape, shapes
from headrace.stores import KINDS, Draw
from headrace.types import EnvSpec, Tree

RESERVED = ("cells", "env", "obs", "tables")
"""Names that checkpoints use for something other than a store."""

_traced: WeakValueDictionary[Any, Graph] = WeakValueDictionary()
"""Graphs in use, by algorithm, settings and environment."""


def trace(algorithm: Algorithm[Any], spec: EnvSpec) -> Graph:
    """Run the loop once symbolically and return its graph; equal calls share a graph and its compiled programs."""
    key = _identity(algorithm, spec)
    graph = None if key is None else _traced.get(key)
    if graph is None:
        tracer = Tracer(algorithm, spec)
        with tracing(tracer):
            algorithm.loop(**_handles(algorithm, tracer))
        graph = tracer.graph()
        _check_rates(graph)
        if key is not None:
            _traced[key] = graph
    return graph


def _check_rates(graph: Graph) -> None:
    """Refuse a domain that combines trajectories with batches that are due less often: trajectories would pile up."""
    for domain in graph.domains:
        taken = [node for node in domain.sources if isinstance(node.operation, Draw) and not node.operation.fused]
        for node in domain.sources if taken else ():
            how: Any = node.operation
            if how.fused and (how.after or how.rate(graph.collected) * graph.collected < 1):
                raise LoopError(
                    f"the loop learns from '{taken[0].store}', each trajectory once, and in the same pass from "
                    f"'{node.store}', so a batch must be due with every pass of {graph.collected} transitions; sample "
                    f"with after=0 and per_insert of at least {how.size / graph.collected:g}, or learn from each in a "
                    "stage of its own."
                )


def _identity(algorithm: Algorithm[Any], spec: EnvSpec) -> Any:
    """The cache key of a graph; None where user code is involved, which may have been edited since it was traced."""
    config, kind = algorithm.config, type(algorithm)
    settings = tuple(getattr(config, field.name) for field in dataclasses.fields(config))
    code = [kind, type(config), *(type(value) for value in settings if callable(value))]
    if not all(each.__module__.startswith("headrace.") for each in code):
        return None
    # repr includes bounds, which comparing spaces ignores.
    key = (kind, type(config), settings, spec, repr(dataclasses.asdict(spec)))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def cells_of(algorithm: Algorithm[Any], spec: EnvSpec) -> dict[str, Cell]:
    """The shapes of an algorithm's cells, by name."""
    with tracing(None):
        cells: dict[str, Cell] = eval_shape(
            lambda key: dict(algorithm.cells(spec, key)), key=jax.eval_shape(lambda: jax.random.key(0))
        )
    return cells


class Tracer:
    """Records nodes as the loop calls its handles and stages."""

    def __init__(self, algorithm: Algorithm[Any], spec: EnvSpec, beside: Sequence[Node] = ()):
        self.algorithm = algorithm
        self.spec = spec
        self.beside = beside
        """Nodes recorded by another tracer, whose ids are in use."""
        self.nodes: list[Node] = []
        self.flows: list[Edge] = []
        self.times = 1
        self.kept: dict[str, Tree] = {}
        """The shapes of what is put into each store."""
        self.cells = cells_of(algorithm, spec)

    def add(self, kind: Any, name: str, inputs: dict[str, Any], output: Tree, **more: Any) -> Tree:
        """Record a node and return its output as symbols."""
        taken = sum(node.name == name for node in (*self.beside, *self.nodes))
        node_id = name if not taken else f"{name}#{taken + 1}"
        refs = jax.tree.map(lambda leaf: leaf.ref if isinstance(leaf, Symbol) else leaf, tuple(inputs.values()))
        self.nodes.append(Node(node_id, kind, name, refs, output, times=self.times, **more))
        for what, value in inputs.items():
            self._flow(node_id, what, value)
        return self.symbols(node_id, output)

    def keep(self, store: str, value: Tree) -> None:
        """Remember the shapes put into a store; a store is filled once, so that its rows have one shape."""
        if store in self.kept:
            raise LoopError(f"the loop fills '{store}' twice; fill it once, or use two stores.")
        if store in RESERVED:
            raise LoopError(f"a store cannot be called '{store}', as a checkpoint calls something else; rename it.")
        self.kept[store] = value

    def symbols(self, node_id: str, output: Tree) -> Tree:
        leaves, tree = jax.tree.flatten(output)
        return jax.tree.unflatten(tree, [Symbol(Ref(node_id, i), leaf) for i, leaf in enumerate(leaves)])

    def _flow(self, target: str, what: str, value: Any) -> None:
        symbols = [leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, Symbol)]
        for source in dict.fromkeys(symbol.ref.node for symbol in symbols):
            own = jax.tree.map(
                lambda leaf, source=source: (
                    leaf.struct if isinstance(leaf, Symbol) and leaf.ref.node == source else None
                ),
                value,
            )
            self.flows.append(Edge(source, target, what, own, "data"))

    def stage(self, stage: BoundStage, data: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Record a stage, called by the loop with data only."""
        signature, name = stage.signature, stage.name
        every = options.pop("every", 1)
        if not (isinstance(every, int) and every >= 1):
            raise LoopError(f"stage '{name}' is called with every={every}; it must be a whole number of at least 1.")
        own = ", ".join(signature.data) or "no data"
        for word in options:
            if word not in signature.data:
                raise LoopError(
                    f"stage '{name}' takes no '{word}' from the loop{nearest(word, (*signature.data, 'every'))} "
                    f"(it takes {own}; cells and the key are passed by headrace)."
                )
        inputs = dict(zip(signature.data, data, strict=False)) | options
        if len(data) + len(options) != len(signature.data) or set(inputs) != set(signature.data):
            raise LoopError(
                f"the loop calls stage '{name}' with {len(data) + len(options)} value(s), but it takes {own}; "
                "cells and the key are passed by headrace."
            )
        for cell in map(stage.cell, signature.cells):
            if cell not in self.cells:
                raise LoopError(
                    f"stage '{name}' asks for the cell '{cell}', which cells() does not make"
                    f"{nearest(cell, self.cells)} (cells: {', '.join(sorted(self.cells))})."
                )
        inputs = {what: inputs[what] for what in signature.data}
        output = self.shapes_of(stage, inputs)
        return self.add(
            "stage",
            name,
            inputs,
            output,
            reads=tuple(Bound(argument, stage.cell(argument)) for argument in signature.reads),
            writes=tuple(Bound(argument, stage.cell(argument)) for argument in signature.writes),
            every=every,
            function=stage,
        )

    def shapes_of(self, stage: BoundStage, inputs: dict[str, Any]) -> Tree:
        """The output shapes of a stage; of one that writes cells, those of its metrics."""
        signature, name = stage.signature, stage.name
        arguments = {what: jax.tree.map(as_struct, value) for what, value in inputs.items()}
        arguments |= {argument: self.cells[stage.cell(argument)].module for argument in signature.reads}
        arguments |= {argument: self.cells[stage.cell(argument)] for argument in signature.writes}
        if signature.wants_key:
            arguments["key"] = jax.eval_shape(lambda: jax.random.key(0))
        try:
            with tracing(None):
                result = eval_shape(stage, **arguments)
        except HeadraceError:
            raise
        except Exception as error:
            given = ", ".join(f"{what} {show(value)}" for what, value in inputs.items())
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise LoopError(f"stage '{name}' cannot run on {given or 'no data'}: {reason}.") from error
        if not signature.writes:
            return result
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            raise LoopError(f"stage '{name}' writes cells, so it must return (cells, metrics), got {show(result)}.")
        written = result[0] if len(signature.writes) > 1 else (result[0],)
        if not isinstance(written, tuple) or len(written) != len(signature.writes):
            raise LoopError(
                f"stage '{name}' must return the cells {', '.join(signature.writes)}, in this order, got "
                f"{_kind(written)}."
            )
        for cell, value in zip(map(stage.cell, signature.writes), written, strict=True):
            was = self.cells[cell]
            if not isinstance(value, type(was)):
                raise LoopError(
                    f"stage '{name}' returned {_kind(value)} where the cell '{cell}' itself was expected, a "
                    f"{type(was).__name__}; return it as it was given, or as its own methods change it."
                )
            if shapes(value) != shapes(was):
                raise LoopError(
                    f"stage '{name}' returns the cell '{cell}' as {show(value)}, but it was {show(was)}; "
                    "a cell keeps its structure, shapes and dtypes."
                )
        metrics: Tree = jax.tree.map(
            lambda leaf: leaf if is_shape(leaf) else jax.eval_shape(jnp.asarray, leaf), result[1]
        )
        return metrics

    def graph(self) -> Graph:
        """Infer roles, add the edges that cells, stores and the environment's state imply, and check the graph."""
        self._complete()
        learning = self._downstream([n.id for n in self.nodes if isinstance(n.operation, Draw)])
        acting = self._downstream([n.id for n in self.nodes if n.name == "env.observe"])
        step = next(i for i, node in enumerate(self.nodes) if node.name == "env.step")

        def settled(index: int, node: Node) -> Node:
            domain: Phase = "learn" if node.id in learning else "collect"
            role: Role = "computing"
            if node.kind != "stage":
                role = "environment" if node.kind == "env" else "storing"
            elif node.writes:
                role = "learning"
            elif node.id in acting and domain == "collect" and index < step:
                role = "acting"
            return dataclasses.replace(node, role=role, domain=domain, index=index)

        nodes = tuple(settled(index, node) for index, node in enumerate(self.nodes))
        cells = {name: eqx.filter(cell.module, is_shape) for name, cell in self.cells.items()}
        edges = (*self.flows, *self._implied(nodes, cells))
        return Graph(self.algorithm.name, self.spec, nodes, edges, cells, self._play())

    def _play(self) -> Play:
        """Trace `play`, apart from the graph: it must work for any number of environments."""
        try:
            *before, step = self._played(self.spec.with_envs(self.spec.num_envs + 1))
        except LoopError as error:
            self._played(self.spec)  # raises the real error if it fails for this number too
            raise LoopError(
                f"play of {type(self.algorithm).__name__} acts for {self.spec.num_envs} environments only, but other "
                "numbers are evaluated and shown; keep num_envs out of what it reads and returns."
            ) from error
        nodes = [node for node in before if node.kind == "stage"]
        for node in nodes:
            if node.writes:
                raise LoopError(
                    f"play of {type(self.algorithm).__name__} calls stage '{node.name}', which writes "
                    f"'{node.writes[0].cell}'; what plays only reads."
                )
        first = len(self.nodes)
        return Play(tuple(dataclasses.replace(n, index=first + i) for i, n in enumerate(nodes)), step.inputs[0])

    def _played(self, spec: EnvSpec) -> list[Node]:
        """The nodes that `play` records for an environment spec, with the cells of the loop."""
        tracer = Tracer(self.algorithm, self.spec, [node for node in self.nodes if node.kind == "stage"])
        tracer.spec = spec
        with tracing(tracer):
            env = SymbolicEnv(tracer, "env")
            env.step(self.algorithm.play(env.observe()))
        return tracer.nodes

    def _implied(self, nodes: tuple[Node, ...], cells: dict[str, Tree]) -> list[Edge]:
        edges = []
        writer: dict[str, str] = {}
        for node in nodes:
            for bound in node.writes:
                if bound.cell in writer:
                    raise LoopError(
                        f"stages '{writer[bound.cell]}' and '{node.id}' both write the cell '{bound.cell}'; "
                        "let one of them write it, or make it two cells."
                    )
                writer[bound.cell] = node.id
        for node in nodes:
            for bound in node.reads:
                if bound.cell in writer:
                    edges.append(Edge(writer[bound.cell], node.id, bound.cell, cells[bound.cell], "cell"))
        for node in nodes:
            if isinstance(node.operation, Draw):
                kind: Any = node.operation.kind
                what = "transition" if kind == "replay" else "trajectory"
                edges.append(Edge(node.operation.filler, node.id, what, self.kept[node.store], kind))
        edges.append(Edge("env.step", "env.observe", "state", (), "state"))
        return edges

    def _downstream(self, starts: list[str]) -> set[str]:
        found = set(starts)
        for node in self.nodes:
            if any(ref.node in found for ref in node.sources):
                found.add(node.id)
        return found

    def _complete(self) -> None:
        """Refuse an incomplete loop."""
        names = [node.name for node in self.nodes]
        who = f"the loop of {type(self.algorithm).__name__}"
        if names.count("env.step") != 1:
            raise LoopError(
                f"{who} must step its environment once (env.step or env.unroll), got {names.count('env.step')}."
            )
        draws = [node for node in self.nodes if isinstance(node.operation, Draw)]
        if not draws:
            raise LoopError(f"{who} must take from a store (sample or take); what it collects is not learned from.")
        twice = next((node for node in draws if node.id != node.name), None)
        if twice is not None:
            raise LoopError(f"{who} takes from '{twice.store}' twice; take once and give that to several stages.")
        unread = [store for store in self.kept if store not in {node.store for node in draws}]
        if unread:
            raise LoopError(f"{who} fills the store '{unread[0]}', but nothing takes from it; remove it.")
        if not any(node.writes for node in self.nodes):
            raise LoopError(f"{who} never learns: no stage it calls writes a cell.")
        learning = self._downstream([node.id for node in draws])
        for node in self.nodes:
            if node.writes and node.id not in learning:
                raise LoopError(
                    f"stage '{node.id}' writes '{node.writes[0].cell}' while collecting; "
                    "call it on what the store gives (sample or take)."
                )
            if node.id in learning and (node.kind == "env" or (node.kind == "store" and node not in draws)):
                raise LoopError(f"{who} uses what the store gives in {node.name}; a store is for stages that learn.")
            past = next((ref.node for ref in node.sources if ref.node not in learning), None)
            if node.id in learning and past is not None:
                raise LoopError(
                    f"stage '{node.id}' is called on what the store gives and on what {past} gives, which does not "
                    "pass through the store; keep it with the transition (extra) and call the stage on the batch."
                )
        for node in draws:
            if not any(other.writes for other in self.nodes if other.id in self._downstream([node.id])):
                raise LoopError(
                    f"{who} takes from '{node.store}', but no stage that learns is called on it; remove it."
                )


def _kind(value: Any) -> str:
    """The kind of a value, for an error message."""
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return show(value) if hasattr(value, "shape") else f"a {type(value).__name__}"


def _handles(algorithm: Algorithm[Any], tracer: Tracer) -> dict[str, Any]:
    """A tracing handle for each argument of the loop, by its annotation."""
    makers: dict[Any, Callable[[str], Any]] = {Env: lambda name: SymbolicEnv(tracer, "env")}
    makers |= {kind.handle: partial(kind.symbolic, tracer) for kind in KINDS}
    hints = inspect.get_annotations(type(algorithm).loop, eval_str=True)
    names = list(inspect.signature(algorithm.loop).parameters)
    for name in names:
        if hints.get(name) not in makers:
            raise LoopError(
                f"the loop of {type(algorithm).__name__} does not say what '{name}' is; "
                f"annotate it as Env, Replay or Rollout."
            )
    return {name: makers[hints[name]](name) for name in names}
