"""Resolves what to run: options, algorithm and environment, runtime, folder; refuses contradictions."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from headrace.api import default_policy, find_algorithm, plan, trace
from headrace.core.algorithm import Algorithm
from headrace.envs import Recipe, env_id, recipe_json
from headrace.errors import CheckpointError, UsageError, nearest
from headrace.graph import Plan
from headrace.run.directory import RunConfig, algorithm_record, new_directory
from headrace.run.recorded import restore
from headrace.run.run import name_own
from headrace.run.stop_rule import StopRule
from headrace.run.track import check_track
from headrace.runtimes import RUNTIMES, Options
from headrace.services.video import check_file
from headrace.services.window import missing
from headrace.settings.objects import findable
from headrace.settings.schedule import Schedule
from headrace.settings.synonyms import of_option
from headrace.settings.values import describe, fits, override
from headrace.version import __version__

CHECKPOINT_EVERY = 300.0
"""Default seconds between two checkpoints."""


def options_of(asked: dict[str, Any], goal: StopRule, others: Collection[str]) -> tuple[Options, float]:
    """The options asked for, if they make sense, and the seconds between checkpoints.

    `others` are the names of what else `train` takes.
    """
    given = dict(asked)
    checkpoint_every = given.pop("checkpoint_every", CHECKPOINT_EVERY)
    known = {field.name for field in fields(Options)} - {"videos"}
    for name in given:
        if name not in known:
            every = sorted(known | {*others} - {"algorithm", "env", "options"})
            raise UsageError(f"train has no option '{name}'{of_option(name, every)} (options: {', '.join(every)}).")
    hints = get_type_hints(Options)
    for name, value in given.items():
        if not fits(value, hints[name]) and not (fits(0, hints[name]) and fits(value, float)):  # 1e4 is 10000
            raise UsageError(f"--{name.replace('_', '-')} takes {describe(hints[name])}, got {value!r}.")
    options = Options(**given)
    if not fits(checkpoint_every, float):
        raise UsageError(f"--checkpoint-every takes a number, got {checkpoint_every!r}.")
    above = {name: getattr(options, name) for name in ("eval_episodes", "eval_every", "record_every", "hang_seconds")}
    for name, value in (above | {"checkpoint_every": checkpoint_every}).items():
        if value is not None and not value > 0:
            raise UsageError(f"--{name.replace('_', '-')} must be above 0, got {value}.")
    for name in ("restarts", "deaths"):
        if getattr(options, name) < 0:
            raise UsageError(f"--{name} must be at least 0, got {getattr(options, name)}.")
    if goal.until is not None and not options.evaluate:
        raise UsageError("--until stops at a return that the evaluator sees; leave --no-eval away (--eval to resume).")
    if options.on_divergence not in ("stop", "warn"):
        raise UsageError(f"--on-divergence is stop or warn, got '{options.on_divergence}'.")
    if options.view not in ("off", "ring", "window"):
        raise UsageError(f"--view is off, ring or window, got '{options.view}'.")
    if options.view == "window" and (why := missing()) is not None:
        raise UsageError(f"--view window is not possible here: {why}")
    if options.record_every is not None:
        check_file(f"video.{options.record_format}")
    if isinstance(options.log_info, str):
        raise UsageError(f"log_info takes a list of names, got {options.log_info!r}.")
    for name in options.log_info:
        if name in ("ep_rew_mean", "ep_len_mean", "success_rate"):
            raise UsageError(f"--log-info {name} would take the place of rollout/{name}; leave it out.")
    if options.track is not None:
        check_track(options.track)
    return options, checkpoint_every


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
) -> tuple[Algorithm[Any], Any, RunConfig, Path]:
    """What to run and where, for a new or a resumed run."""
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
        if config.runtime == "processes" and (hidden := _hidden(made, env)):
            raise UsageError(
                f"{_called(hidden[0])} cannot be found by other processes, in which run {directory} was trained; "
                "define it at the top of a module or file."
            )
        return made, env, replace(config, policy=policy), directory
    if algorithm is None or env is None:
        raise UsageError("give an algorithm and an environment, such as: headrace train sac Pendulum-v1.")
    made, seed = find_algorithm(algorithm), seed or 0
    if network is not None:
        made = type(made)(override(made.config, {"network": network}))
    hidden = _hidden(made, env)
    if policy is None and runtime is None and hidden and not trace(made, env).spec.pure:
        print(
            f"headrace: {_called(hidden[0])} cannot be found by other processes, so all runs in this one; "
            "define it at the top of a module or file to have every core used.",
            file=sys.stderr,
        )
        policy = "single"
    graph = trace(made, env)
    policy = policy or default_policy(graph)
    if policy == "auto" and hidden:
        raise UsageError(f"{_called(hidden[0])} cannot be found by other processes, so auto has no choice; use single.")
    if runtime is None and not hidden:
        placed = None if policy == "auto" else plan(made, env, policy, replicas=replicas, staleness=staleness)
        runtime = runtime_for(placed, options)
    runtime = runtime or "inline"
    if runtime == "processes" and hidden:
        raise UsageError(
            f"{_called(hidden[0])} cannot be found by other processes; define it at the top of a module or file, "
            "or use the inline runtime."
        )
    if runtime not in RUNTIMES:
        raise UsageError(f"there is no runtime '{runtime}'{nearest(runtime, RUNTIMES)} (known: {', '.join(RUNTIMES)}).")
    if not 0 <= seed < 2**63:
        raise UsageError(f"the seed must be a whole number from 0 to 2^63 - 1, got {seed}.")
    name, settings = algorithm_record(made)
    written = recipe_json(env)
    config = RunConfig(
        name,
        settings,
        written["env"],
        policy,
        runtime,
        replicas,
        seed,
        __version__,
        staleness,
        env_kwargs=written["kwargs"],
        env_spec=written["spec"],
        action_scale=written["action_scale"],
    )
    return made, env, config, new_directory(out, made.name, env_id(env), seed)


def runtime_for(placed: Plan | None, options: Options) -> str:
    """The default runtime of a plan, or of a plan still to be chosen."""
    alone = placed is not None and placed.alone
    return "inline" if (alone and not options.has_viewer) or options.debug else "processes"


def tunable(placed: Plan, policy: str) -> bool:
    """Whether the tuner has something to choose: samplers beside learners, under a built-in policy."""
    return ":" not in policy and placed.beside and len(placed.graph.domains) == 1


def _hidden(algorithm: Algorithm[Any], env: Any) -> list[Any]:
    """What other processes cannot import by name."""
    named = (type(algorithm), *_functions(algorithm), env.env if isinstance(env, Recipe) else env)
    return [thing for thing in named if not (isinstance(thing, str) or findable(thing))]


def _functions(algorithm: Algorithm[Any]) -> list[Any]:
    """The functions among its settings."""
    values = [getattr(algorithm.config, field.name) for field in fields(algorithm.config)]
    return [value for value in values if callable(value) and not isinstance(value, Schedule)]


def _called(thing: Any) -> str:
    return repr(getattr(thing, "__qualname__", thing))
