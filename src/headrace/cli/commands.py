"""What each command does."""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from headrace import api
from headrace.algorithms import ALGORITHMS
from headrace.cli.bench import bench as run_bench
from headrace.cli.doctor import doctor
from headrace.cli.parser import as_typed
from headrace.cli.video import film_names, record
from headrace.core.algorithm import Algorithm
from headrace.draw.render import render
from headrace.envs import recipe
from headrace.errors import ConfigError, DivergenceError, HeadraceError, LoopError, UsageError
from headrace.policies import POLICIES
from headrace.run import launch
from headrace.run.compare import groups_of, read_runs
from headrace.run.curves import check_picture, draw
from headrace.run.directory import RunConfig, find_run
from headrace.run.recorded import command_for, restore
from headrace.run.run import Run, load_run, name_own
from headrace.run.seeds import seed_folders, train_seeds
from headrace.services.video import check_file
from headrace.settings.objects import load_object
from headrace.settings.values import field_docs, literal, override, to_json

INTERRUPTED = 130
USUAL = 1_000_000
"""Steps to go on by where none were made yet."""
AUTO = "Whichever of these runs fastest here: measured, predicted, and the best few tried."


def run(options: argparse.Namespace) -> int:
    """Carry out a command; a user's mistake is one sentence on the standard error and exit code 2."""
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "train": train,
        "eval": evaluate,
        "export": export,
        "compare": compare,
        "graph": graph,
        "policies": policies,
        "algorithms": algorithms,
        "tune": tune,
        "bench": bench,
        "doctor": doctor,
    }
    try:
        return commands[options.command](options)
    except HeadraceError as error:
        print(f"headrace: {error}", file=sys.stderr)
        for where in _own_lines(error)[-1:]:
            print(f"  at {where.filename}:{where.lineno}: {where.line}", file=sys.stderr)
        return 1 if isinstance(error, DivergenceError) else 2
    except KeyboardInterrupt as interrupt:
        print(f"headrace: stopped{interrupt or '.'}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output went away (`| head`); leave without a word, as other tools do.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def train(options: argparse.Namespace) -> int:
    """`headrace train`"""
    made, env = (configured(options), environment(options)) if options.resume is None else resumed(options)
    resume = None if options.resume is None else find_run(options.resume)
    runs = _starter(options)(
        made,
        env,
        policy=options.policy,
        runtime=options.runtime,
        replicas=options.replicas,
        staleness=options.staleness,
        steps=options.steps,
        seconds=options.seconds,
        until=options.until,
        out=options.out,
        resume=resume,
        debug=options.debug,
        on_divergence=options.on_divergence,
        eval_every=options.eval_every,
        eval_episodes=options.eval_episodes,
        log_info=options.log_info,
        evaluate=options.eval,
        tune=not options.no_tune,
        view=options.view,
        record_every=options.record_every,
        record_format=options.record_format,
        track=options.track,
        restarts=options.restarts,
        deaths=options.deaths,
        hang_seconds=options.hang_seconds,
        checkpoint_every=options.checkpoint_every,
        callbacks=[load_object(path) for path in options.callbacks],
        progress=False if options.quiet else None,
    )
    for done in runs:
        _tell(done, options)
    if len(runs) == 1:
        _hint(runs[0])
    else:
        print(f"seeds: {runs[0].path.parent}\ncompare: headrace compare {runs[0].path.parent} --out curves.png")
        _hint(runs[0], runs[0].path.parent)
    return INTERRUPTED if any(done.interrupted for done in runs) else 0


def _starter(options: argparse.Namespace) -> Callable[..., list[Run]]:
    """What trains: one run, or several seeds of it."""
    if options.seeds is not None and options.resume is not None:
        raise ConfigError("--resume goes on with the seeds in its folder; leave --seeds away.")
    if options.seeds is not None:
        first = options.seed or 0
        return partial(train_seeds, seeds=range(first, first + options.seeds))
    if options.resume is not None and seed_folders(options.resume):
        return train_seeds
    return lambda *given, **named: [launch.train(*given, seed=options.seed, **named)]


def _tell(done: Run, options: argparse.Namespace) -> None:
    """How a run ended."""
    last = done.metrics[-1]
    score = last["eval/mean_reward"]
    said = "interrupted" if done.interrupted else "reached the goal" if done.reached else "done"
    said = f"stopped by callback '{done.stopped}'" if done.stopped else said
    print(
        f"{said} after {last['time/elapsed_s']:.1f} s, {last['time/env_steps']:,} steps, "
        f"{last['time/updates']:,} updates: "
        f"return {'not evaluated yet' if score is None else format(score, '.1f')}"
    )
    print(f"run: {done.path}")
    if options.record_every is not None and not any((done.path / "videos").glob(f"*.{options.record_format or 'mp4'}")):
        print(
            "headrace: no video was finished; the viewer has a share of a core, so give it a longer run.",
            file=sys.stderr,
        )


def _hint(done: Run, folder: Path | None = None) -> None:
    """What to type next, about a run or the folder of its seeds."""
    # An interrupted run has its goal still before it; another one needs a new one.
    steps = 2 * done.metrics[-1]["time/env_steps"] or USUAL
    further = "" if done.interrupted else f" --steps {steps}"
    play, go_on = (command_for(done.path, command, folder) for command in ("eval", "train"))
    print(f"play:  {play}\ngo on: {go_on}{further}")


def evaluate(options: argparse.Namespace) -> int:
    """`headrace eval`"""
    if options.episodes < 1:
        raise ConfigError(f"--episodes must be at least 1, got {options.episodes}.")
    if options.record:
        check_file(options.record)
    named = name_own(options.algorithm, options.env, options.network, settings(options))
    # All are loaded before any is played: a wrong one among them is refused at once.
    found = [find_run(run) for run in options.runs]
    folders = [folder for run in found for folder in seed_folders(run) or [run]]
    runs = [load_run(folder, named, options.best) for folder in folders]
    files = film_names(options.record, [run.path for run in runs]) if options.record else []
    for i, run in enumerate(runs):
        score = run.evaluate(options.episodes)
        print(
            f"{f'{run.path}: ' if len(runs) > 1 else ''}{run.algorithm.name} on {run.graph.spec.id}: "
            f"return {score.mean_reward:.1f} ± {score.std_reward:.1f}, "
            f"length {score.mean_ep_length:.1f} over {len(score.returns)} episodes"
        )
        if options.record:
            print(f"recorded {record(run, files[i])} frames: {files[i]}")
    return 0


def export(options: argparse.Namespace) -> int:
    """`headrace export`"""
    named = name_own(options.algorithm, options.env, options.network, settings(options))
    loaded = load_run(find_run(options.run), named, options.best, "export")
    file = loaded.export(options.out or loaded.path / f"actor.{options.format}", options.format)
    print(f"{loaded.algorithm.name} on {loaded.graph.spec.id}: {file}")
    return 0


def compare(options: argparse.Namespace) -> int:
    """`headrace compare`"""
    if options.out is not None:
        check_picture(options.out)
    paths = [path for run in options.runs for path in (seed_folders(run) or [find_run(run)])]
    say = partial(print, file=sys.stderr)
    groups = groups_of(read_runs(list(dict.fromkeys(paths)), say), say)
    rows = []
    for group in groups:
        middle, low, high = group.final
        steps, seconds = (min(getattr(run, axis)[-1] for run in group.runs) for axis in ("steps", "seconds"))
        numbers = (f"{middle:.1f}", f"{low:.1f} to {high:.1f}" if len(group.runs) > 1 else "-")
        rows.append((group.name, str(len(group.runs)), *numbers, f"{steps:,.0f}", f"{seconds:.1f}"))
    returns = "return" if groups[0].runs[0].evaluated else "return while training"
    _table(["", "seeds", f"{returns} (IQM)", "95 % interval", "steps", "seconds"], rows)
    if options.out is not None:
        draw(groups, options.out)
        print(f"drawn: {options.out}")
    return 0


def graph(options: argparse.Namespace) -> int:
    """`headrace graph`"""
    if options.passes:
        if options.format != "text":
            raise ConfigError(f"--passes is text; leave --format {options.format} away.")
        print(api.passes(configured(options), environment(options), options.policy, options.replicas))
        return 0
    print(
        render(
            api.plan(
                configured(options),
                environment(options),
                options.policy,
                replicas=options.replicas,
                staleness=options.staleness,
            ),
            options.format,
        )
    )
    return 0


def tune(options: argparse.Namespace) -> int:
    """`headrace tune`"""
    launch.tuned(
        configured(options),
        environment(options),
        options.policy,
        replicas=options.replicas,
        staleness=options.staleness,
        seconds=options.seconds,
        anew=True,
    )
    return 0


def bench(options: argparse.Namespace) -> int:
    """`headrace bench`"""
    if run_bench(configured(options), environment(options), options):
        return 0
    print("headrace: interrupted; what was measured until then is above.", file=sys.stderr)
    return INTERRUPTED


def policies(options: argparse.Namespace) -> int:
    """`headrace policies`"""
    rows = [(name, _first_line(policy)) for name, policy in POLICIES.items()]
    _table(["policy", "what it does"], [*rows, ("auto", AUTO)])
    print("Your own: --policy path/to/file.py:name (docs/policies.md). `headrace bench ALGO ENV` tries all that fit.")
    return 0


def algorithms(options: argparse.Namespace) -> int:
    """`headrace algorithms`"""
    if options.algorithm is None:
        _table(["algorithm", "what it is"], [(name, _first_line(kind)) for name, kind in ALGORITHMS.items()])
        print("`headrace algorithms ALGO` lists the settings of one.")
        return 0
    config = api.find_algorithm(options.algorithm).config
    kind: type = type(config)
    docs = field_docs(kind)
    rows = [(name, as_typed(value), docs.get(name, "")) for name, value in to_json(config).items()]
    _table(["setting", "default", "meaning"], rows)
    return 0


def configured(options: argparse.Namespace) -> Algorithm[Any]:
    """The algorithm asked for, with its settings."""
    if options.algorithm is None:
        raise UsageError("give an algorithm and an environment, such as: headrace train sac Pendulum-v1.")
    plain = api.find_algorithm(options.algorithm)
    return type(plain)(override(plain.config, settings(options)))


def resumed(options: argparse.Namespace) -> tuple[Algorithm[Any], Any]:
    """The algorithm and the environment of the run to go on with."""
    directory = find_run(options.resume)
    directory = next(iter(seed_folders(directory)), directory)
    named = name_own(options.algorithm, environment(options), settings=settings(options), policy=options.policy)
    made, env, _ = restore(directory, RunConfig.read(directory), named, "train")
    return made, env


def settings(options: argparse.Namespace) -> dict[str, str]:
    """What was given by --set."""
    return dict(_pairs("--set", options.settings))


def environment(options: argparse.Namespace) -> Any:
    """The environment asked for, with its arguments."""
    kwargs = {name: literal(value) for name, value in _pairs("--env-kwargs", options.env_kwargs)}
    return recipe(options.env, kwargs | ({"atari": True} if options.atari else {}), options.action_scale)


def _pairs(option: str, given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ConfigError(f"{option} takes KEY=VALUE, got '{text}'.")
        yield name, value


def _own_lines(error: HeadraceError) -> list[traceback.FrameSummary]:
    """Where in the user's own files the cause of a mistake is; a library's lines would not help.

    A mistake in a loop is found where the loop makes it, any other where what it was made from was raised.
    """
    cause = error.__cause__ or (error if isinstance(error, LoopError) else None)
    frames = traceback.extract_tb(cause.__traceback__) if cause is not None else []
    others = (str(Path(__file__).parents[1]), sysconfig.get_path("stdlib"), "<")
    return [frame for frame in frames if not frame.filename.startswith(others) and "-packages" not in frame.filename]


def _table(head: list[str], rows: Sequence[tuple[str, ...]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2))
    for i, name in enumerate(head):
        table.add_column(name, no_wrap=i < len(head) - 1)
    for row in rows:
        table.add_row(*row)
    # Piped, a table is for programs to read: it is not folded to some terminal's width.
    console = Console(highlight=False, markup=False)
    Console(highlight=False, markup=False, width=None if console.is_terminal else 160).print(table)


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").strip().splitlines()[0]
