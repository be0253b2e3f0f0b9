"""Resolves what to run: options, algorithm and environment, runtime, folder; refuses contradictions."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from headrace.api import default_policy, distribute, find_algorithm, trace
from headrace.core.algorithm import Algorithm
from headrace.envs import Recipe, env_id
from headrace.errors import CheckpointError, UsageError, nearest
from headrace.graph import Graph, Plan
from headrace.run.directory import RunConfig, algorithm_record, env_record, new_directory
from headrace.run.recorded import restore
from headrace.run.run import name_own
from headrace.run.stop_rule import StopRule
from headrace.run.track import check_track
from headrace.runtimes import RUNTIMES, Options, default_runtime
from headrace.services.video import check_file
from headrace.services.window import missing
from headrace.settings.objects import findable
from headrace.settings.schedule import Schedule
from headrace.settings.synonyms import of_option
from headrace.settings.values import askable, override
from headrace.version import __version__


def options_of(given: dict[str, Any], goal: StopRule, others: Collection[str]) -> Options:
    """The options asked for, if there are such and this machine can do them; `others` are what else `train` takes."""
    for name in given:
        if name not in askable(Options):
            every = sorted({*askable(Options)} | {*others} - {"algorithm", "env", "options"})
            raise UsageError(f"train has no option '{name}'{of_option(name, every)} (options: {', '.join(every)}).")
    options = Options(**given)
    if goal.until is not None and not options.evaluate:
        raise UsageError("--until stops at a return that the evaluator sees; leave --no-eval away (--eval to resume).")
    if options.view == "window" and (why := missing()) is not None:
        raise UsageError(f"--view window is not possible here: {why}")
    if options.record_every is not None:
        check_file(f"video.{options.record_format}")
    if options.track is not None:
        check_track(options.track)
    return options


def settle(
    algorithm: Any,
    env: Any,
    policy: str | None,
    runtime: str | None,
    replicas: int | None,
    staleness: int | None,
    seed: int | None,
    out: Any,
    resume: Any,
    network: Any,
    options: Options,
) -> tuple[Algorithm[Any], Any, Graph, RunConfig, Path]:
    """What to run and where, for a new run or one that goes on. The environment is found and described here, once."""
    if out is not None and not str(out):
        raise UsageError("--out is empty; give a folder.")
    if resume is not None:
        if out is not None:
            raise UsageError("--resume goes on in the run's own folder; leave --out away.")
        directory = Path(resume)
        config = RunConfig.read(directory)
        named = name_own(algorithm, env, network, policy=policy)
        made, env, policy = restore(directory, config, named, "train")
        given = {"runtime": runtime, "replicas": replicas, "staleness": staleness, "seed": seed}
        for what, value in given.items():
            if value is not None and value != getattr(config, what):
                raise CheckpointError(
                    f"run {directory} was trained with {what} {getattr(config, what)}, not {value}; leave it out."
                )
        if config.runtime not in RUNTIMES:
            raise CheckpointError(f"run {directory} was trained with runtime {config.runtime}, which is not there.")
        if RUNTIMES[config.runtime].spawns and (hidden := _hidden(made, env)):
            raise UsageError(
                f"{hidden} cannot be found by other processes, in which run {directory} was trained; "
                "define it at the top of a module or file."
            )
        return made, env, trace(made, env), replace(config, policy=policy), directory
    if algorithm is None or env is None:
        raise UsageError("give an algorithm and an environment, such as: headrace train sac Pendulum-v1.")
    made, seed = find_algorithm(algorithm), seed or 0
    if network is not None:
        made = type(made)(override(made.config, {"network": network}))
    hidden, graph = _hidden(made, env), trace(made, env)
    if policy is None and runtime is None and hidden and not graph.spec.pure:
        print(
            f"headrace: {hidden} cannot be found by other processes, so all runs in this one; "
            "define it at the top of a module or file to have every core used.",
            file=sys.stderr,
        )
        policy = "single"
    policy = policy or default_policy(graph)
    if policy == "auto" and hidden:
        raise UsageError(f"{hidden} cannot be found by other processes, so auto has no choice; use single.")
    if runtime is None and not hidden:
        placed = None if policy == "auto" else distribute(graph, policy, replicas, staleness)
        runtime = default_runtime(placed, options)
    runtime = runtime or "inline"
    if runtime not in RUNTIMES:
        raise UsageError(f"there is no runtime '{runtime}'{nearest(runtime, RUNTIMES)} (known: {', '.join(RUNTIMES)}).")
    if RUNTIMES[runtime].spawns and hidden:
        raise UsageError(
            f"{hidden} cannot be found by other processes; define it at the top of a module or file, "
            "or use the inline runtime."
        )
    if not 0 <= seed < 2**63:
        raise UsageError(f"the seed must be a whole number from 0 to 2^63 - 1, got {seed}.")
    name, settings = algorithm_record(made)
    how: Any = {"policy": policy, "runtime": runtime, "replicas": replicas, "staleness": staleness, "seed": seed}
    config = RunConfig(name, settings, headrace=__version__, **how, **env_record(env))
    return made, env, graph, config, new_directory(out, made.name, env_id(env), seed)


def tunable(placed: Plan, policy: str) -> bool:
    """Whether the tuner has something to choose: samplers beside learners, under a built-in policy."""
    return ":" not in policy and placed.beside and len(placed.graph.domains) == 1


def _hidden(algorithm: Algorithm[Any], env: Any) -> str:
    """The name of what other processes do not find by it, in quotes; empty if they find all."""
    settings = [getattr(algorithm.config, field.name) for field in fields(algorithm.config)]
    functions = [value for value in settings if callable(value) and not isinstance(value, Schedule)]
    for thing in (type(algorithm), *functions, env.env if isinstance(env, Recipe) else env):
        if not (isinstance(thing, str) or findable(thing)):
            return repr(getattr(thing, "__qualname__", thing))
    return ""
