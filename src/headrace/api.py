"""trace and plan; finding algorithms and policies by the names the command line uses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import headrace.graph as graphs
from headrace.algorithms import ALGORITHMS
from headrace.core.algorithm import Algorithm
from headrace.draw.passes import show_passes
from headrace.envs import describe_env, recipe
from headrace.errors import HeadraceError, PlanError, UsageError, nearest, sentence
from headrace.graph import Graph, Plan
from headrace.graph.verify import every_node_once
from headrace.machine import Machine
from headrace.policies import POLICIES
from headrace.settings.objects import load_object


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
    return distribute(
        trace(algorithm, env, env_kwargs=env_kwargs, action_scale=action_scale), policy, replicas, staleness, machine
    )


def distribute(
    graph: Graph,
    policy: str | None = None,
    replicas: int | None = None,
    staleness: int | None = None,
    machine: Machine | None = None,
) -> Plan:
    """Distribute a graph over a machine: cut, fuse, place, verify."""
    machine = machine or Machine.detect()
    return graphs.verify(graphs.fuse(_cut(graph, policy, replicas, staleness, machine), machine.cores), machine)


def passes(algorithm: Any, env: Any, policy: str | None = None, replicas: int | None = None) -> str:
    """The result of each compiler pass on an algorithm, as text."""
    machine = Machine.detect()
    made = _cut(trace(algorithm, env), policy, replicas, None, machine)
    return show_passes(made, graphs.verify(graphs.fuse(made, machine.cores), machine))


def _cut(graph: Graph, policy: str | None, replicas: int | None, staleness: int | None, machine: Machine) -> Plan:
    if staleness is not None and staleness < 0:
        raise UsageError(f"--staleness must be at least 0, got {staleness}.")
    made = find_policy(policy or default_policy(graph))(graph, machine, replicas)
    every_node_once(made, machine)  # first: what comes next relies on the nodes being in fragments
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
