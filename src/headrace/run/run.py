"""Finished and interrupted runs, for the user."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

import equinox as eqx

import headrace.graph as graphs
from headrace.api import find_kind
from headrace.compile.cells import cell_shapes, is_array_or_shape, make_cells
from headrace.core.algorithm import Algorithm
from headrace.core.cells import Cell
from headrace.envs import describe_env
from headrace.errors import UsageError
from headrace.graph import Graph
from headrace.machine import keep_compiled
from headrace.run import checkpoint
from headrace.run.directory import RunConfig
from headrace.run.export import export_actor
from headrace.run.record import read_metrics
from headrace.run.recorded import Named, restore
from headrace.services.actor import Actor
from headrace.services.evaluate import Evaluator, Score


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
        """Name of the callback that stopped it."""
        self._actor: Actor | None = None

    def __repr__(self) -> str:
        facts = self._facts()
        words = [f"{facts['algorithm']} on {facts['environment']}", f"seed {self.seed}"]
        if "steps" in facts:
            words += [f"{facts['steps']} steps", facts["time"], f"return {facts['return']}"]
        return f"Run({str(self.path)!r}: {', '.join(words)})"

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self._facts().items())
        return f"<table>{''.join(rows)}</table>"

    def _facts(self) -> dict[str, str]:
        found = {"run": str(self.path), "algorithm": self.algorithm.name, "environment": self.graph.spec.id}
        found["seed"] = str(self.seed)
        for last in self.metrics[-1:]:
            score = last.get("eval/mean_reward")
            found |= {"steps": f"{last['time/env_steps']:,}", "time": f"{last['time/elapsed_s']:,.0f} s"}
            found["return"] = "not evaluated" if score is None else f"{score:.1f}"
        return found

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Every line of metrics.jsonl."""
        return read_metrics(self.path)

    @property
    def actor(self) -> Actor:
        """The trained actor: observations in, actions out; made once for the current cells."""
        if self._actor is None or not self._actor.acts_for(self.cells):
            self._actor = Actor(self.graph, self.cells)
        return self._actor

    def evaluate(self, episodes: int = 10) -> Score:
        """Play episodes without exploring."""
        if episodes < 1:
            raise UsageError(f"episodes must be at least 1, got {episodes}.")
        with closing(Evaluator(self.graph, self.cells, self.env, self.seed, episodes)) as evaluator:
            return evaluator.score(self.cells)

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

        A run is data: a class or function of your own that it was made with is not imported because it says so. Pass it
        again, as `algorithm`, `env` or `network`.
        """
        return load_run(path, name_own(algorithm, env, network), best)


def load_run(path: str | Path, named: Named, best: bool = False, command: str = "eval") -> Run:
    """The run in a directory, for a command, with the user's own code in `named`."""
    keep_compiled()
    directory = Path(path)
    config = RunConfig.read(directory)
    algorithm, env, _ = restore(directory, config, named, command)
    graph = graphs.trace(algorithm, describe_env(env, algorithm.config.num_envs))
    # Values come from the checkpoint; the best one has only the actor's.
    cells = make_cells(algorithm, graph, config.seed) if best else cell_shapes(algorithm, graph)
    arrays, static = eqx.partition(cells, is_array_or_shape)
    folder = directory / "best" if best else checkpoint.newest(directory)
    if best:
        played = {bound.cell: arrays[bound.cell].module for bound in graph.play.reads}
        found, _ = checkpoint.load(folder, {"actor": played}, whole=False)
        for name, module in found["actor"].items():
            arrays[name] = eqx.tree_at(lambda cell: cell.module, arrays[name], module)
    else:
        arrays = checkpoint.load(folder, {"cells": arrays}, whole=False)[0]["cells"]
    return Run(directory, algorithm, env, graph, eqx.combine(arrays, static), config.seed)


def name_own(
    algorithm: str | type[Algorithm[Any]] | Algorithm[Any] | None,
    env: Any,
    network: Any = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    policy: str | None = None,
) -> Named:
    """The user's own code that a run was made with, as `Named`."""
    given = algorithm if algorithm is None or isinstance(algorithm, Algorithm) else find_kind(algorithm)
    return Named(given, env, {**settings, **({} if network is None else {"network": network})}, policy)
