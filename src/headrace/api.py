"""trace, plan, and finished runs: the same words as on the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import equinox as eqx

import headrace.graph as graphs
from headrace.algorithms import ALGORITHMS
from headrace.compile.cells import cell_shapes, held, make_cells
from headrace.config import load_object
from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell
from headrace.draw.passes import show_passes
from headrace.envs import describe_env, recipe
from headrace.errors import HeadraceError, PlanError, UsageError, nearest, sentence
from headrace.graph import Graph, Plan
from headrace.graph.verify import every_node_once
from headrace.machine import Machine, keep_compiled
from headrace.policies import POLICIES
from headrace.recorded import Named, restore
from headrace.services import checkpoint, summary
from headrace.services.actor import Actor
from headrace.services.evaluate import Evaluator, Score
from headrace.services.export import export_actor
from headrace.services.record import read_metrics
from headrace.services.run import RunConfig


def find_algorithm(algorithm: str | type[Algorithm[Any]] | Algorithm[Any]) -> Algorithm[Any]:
    """An algorithm by its name, `module:Class`, class, or as it is."""
    return algorithm if isinstance(algorithm, Algorithm) else find_kind(algorithm)()


def find_kind(algorithm: str | type[Algorithm[Any]]) -> type[Algorithm[Any]]:
    """The class of an algorithm by its name, `module:Class`, or as it is."""
    if isinstance(algorithm, str):
        found = load_object(algorithm) if ":" in algorithm else ALGORITHMS.get(algorithm.lower())
        if found is None:
            raise UsageError(
                f"there is no algorithm '{algorithm}'{nearest(algorithm, ALGORITHMS)} "
                f"(known: {', '.join(ALGORITHMS)}; your own: module:Class)."
            )
        algorithm = found
    if not (isinstance(algorithm, type) and issubclass(algorithm, Algorithm)):
        raise UsageError(f"{algorithm!r} is not an algorithm; give a name, a class or an instance of Algorithm.")
    return algorithm


def name_own(
    algorithm: str | type[Algorithm[Any]] | Algorithm[Any] | None,
    env: Any,
    network: Any = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    policy: str | None = None,
) -> Named:
    """What the user names of what a run was made with."""
    given = algorithm if algorithm is None or isinstance(algorithm, Algorithm) else find_kind(algorithm)
    return Named(given, env, {**settings, **({} if network is None else {"network": network})}, policy)


def trace(
    algorithm: str | type[Algorithm[Any]] | Algorithm[Any],
    env: Any,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    action_scale: float | None = None,
) -> Graph:
    """Run an algorithm's loop once symbolically and return its graph."""
    made = find_algorithm(algorithm)
    return graphs.trace(made, describe_env(recipe(env, env_kwargs, action_scale), made.config.num_envs))


def plan(
    algorithm: str | type[Algorithm[Any]] | Algorithm[Any],
    env: Any,
    policy: str | None = None,
    *,
    replicas: int | None = None,
    staleness: int | None = None,
    machine: Machine | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    action_scale: float | None = None,
) -> Plan:
    """Distribute an algorithm over a machine: trace, cut, fuse, place, verify.

    The policy is `desktop` unless given, and `single` for a JAX environment, whose whole loop is one program then.
    """
    graph = trace(algorithm, env, env_kwargs=env_kwargs, action_scale=action_scale)
    machine = machine or Machine.detect()
    return graphs.verify(graphs.fuse(_cut(graph, policy, replicas, staleness, machine), machine.cores), machine)


def passes(algorithm: Any, env: Any, policy: str | None = None, replicas: int | None = None) -> str:
    """What each pass made of an algorithm, as text."""
    machine = Machine.detect()
    made = _cut(trace(algorithm, env), policy, replicas, None, machine)
    return show_passes(made, graphs.verify(graphs.fuse(made, machine.cores), machine))


def _cut(graph: Graph, policy: str | None, replicas: int | None, staleness: int | None, machine: Machine) -> Plan:
    if staleness is not None and staleness < 0:
        raise UsageError(f"--staleness must be at least 0, got {staleness}.")
    made = find_policy(policy or default_policy(graph))(graph, machine, replicas)
    every_node_once(made, machine)  # before all else: what comes next looks for the nodes it needs
    return made if staleness is None else graphs.with_staleness(made, staleness)


def find_policy(policy: str) -> Callable[[Graph, Machine, int | None], Plan]:
    """A policy by its name, or one of the user's own: `file.py:name` or `module:name`."""
    if policy in POLICIES:
        return POLICIES[policy]
    if policy == "auto":
        raise UsageError(
            "policy 'auto' chooses by running: use it with train; `headrace bench ALGO ENV` shows them all."
        )
    if ":" not in policy:
        raise UsageError(
            f"there is no policy '{policy}'{nearest(policy, POLICIES)} "
            f"(known: {', '.join(POLICIES)}, auto; your own: file.py:name)."
        )
    function = load_object(policy)
    if not callable(function):
        raise UsageError(f"'{policy}' is not a policy; it must be a function of (graph, machine, replicas).")
    takes_replicas = len(inspect.signature(function).parameters) > 2

    def own(graph: Graph, machine: Machine, replicas: int | None) -> Plan:
        if replicas is not None and not takes_replicas:
            raise UsageError(
                f"policy '{policy}' takes no replicas; give it a third argument, or leave --replicas away."
            )
        try:
            made = function(graph, machine, replicas) if takes_replicas else function(graph, machine)
        except HeadraceError:
            raise
        except (Exception, SystemExit) as error:
            raise PlanError(f"policy '{policy}' raised {sentence(error)}.") from error
        if not isinstance(made, Plan):
            raise PlanError(
                f"policy '{policy}' returned a {type(made).__name__}; return what headrace.graph.cut(...) gives."
            )
        return made

    return own


def default_policy(graph: Graph) -> str:
    """The policy of a run that asks for none."""
    return "single" if graph.spec.pure else "desktop"


class Run:
    """A finished or interrupted run."""

    def __init__(
        self, path: Path, algorithm: Algorithm[Any], env: Any, graph: Graph, cells: dict[str, Cell], seed: int
    ):
        self.path = path
        self.algorithm = algorithm
        self.env = env
        self.graph = graph
        self.cells = cells
        self.seed = seed
        self.interrupted = False
        self.reached = False
        self.stopped: str | None = None
        """The callback that stopped it."""
        self._actor: Actor | None = None

    def __repr__(self) -> str:
        return summary.as_line(self._facts())

    def _repr_html_(self) -> str:
        return summary.as_html(self._facts())

    def _facts(self) -> dict[str, str]:
        return summary.facts(self.path, self.algorithm.name, self.graph.spec.id, self.seed)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Every line of metrics.jsonl."""
        return read_metrics(self.path)

    @property
    def actor(self) -> Actor:
        """The trained actor: observations in, actions out; made once for the cells as they are."""
        if self._actor is None or not self._actor.acts_for(self.cells):
            self._actor = Actor(self.graph, self.cells)
        return self._actor

    def evaluate(self, episodes: int = 10) -> Score:
        """Play episodes without exploring."""
        if episodes < 1:
            raise UsageError(f"episodes must be at least 1, got {episodes}.")
        evaluator = Evaluator(self.graph, self.cells, self.env, self.seed, episodes)
        try:
            return evaluator.score(self.cells)
        finally:
            evaluator.close()

    def export(self, path: str | Path, format: str | None = None) -> Path:
        """Write the actor as "onnx" or "stablehlo", or as the file's name ends: observations in, actions out."""
        export_actor(self.graph, self.cells, Path(path), format)
        return Path(path)

    @staticmethod
    def load(
        path: str | Path,
        env: Any = None,
        best: bool = False,
        *,
        algorithm: str | type[Algorithm[Any]] | Algorithm[Any] | None = None,
        network: Any = None,
    ) -> Run:
        """The run in a directory, as its newest checkpoint (or its best evaluation) left it.

        A run is data: a class or function of your own that it was made with is not imported because it says so. Give it
        anew, as `algorithm`, `env` or `network`.
        """
        return load_run(path, name_own(algorithm, env, network), best)


def load_run(path: str | Path, named: Named, best: bool = False, command: str = "eval") -> Run:
    """The run in a directory, for a command, with what the user names of it."""
    keep_compiled()
    directory = Path(path)
    config = RunConfig.read(directory)
    algorithm, env, _ = restore(directory, config, named, command)
    graph = graphs.trace(algorithm, describe_env(env, algorithm.config.num_envs))
    # The numbers come from the checkpoint; the best has but those of the actor.
    cells = make_cells(algorithm, graph, config.seed) if best else cell_shapes(algorithm, graph)
    arrays, static = eqx.partition(cells, held)
    folder = directory / "best" if best else checkpoint.newest(directory)
    if best:
        played = {bound.cell: arrays[bound.cell].module for bound in graph.play.reads}
        found, _ = checkpoint.load(folder, {"actor": played}, whole=False)
        for name, module in found["actor"].items():
            arrays[name] = eqx.tree_at(lambda cell: cell.module, arrays[name], module)
    else:
        arrays = checkpoint.load(folder, {"cells": arrays}, whole=False)[0]["cells"]
    return Run(directory, algorithm, env, graph, eqx.combine(arrays, static), config.seed)
