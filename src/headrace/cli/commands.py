"""What each command does."""

from __future__ import annotations

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
from headrace.cli import options
from headrace.cli.bench import bench as run_bench
from headrace.cli.doctor import doctor
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
from headrace.settings.values import described, literal, override

INTERRUPTED = 130
USUAL = 1_000_000
"""Steps to go on by where none were made yet."""
PASSED_ON = ("policy", "runtime", "replicas", "staleness", "steps", "seconds", "until", "out", "tune")
"""What `headrace.train` takes by the same name."""
AUTO = "Whichever of these runs fastest here: measured, predicted, and the best few tried."


def run(asked: Any) -> int:
    """Carry out a command; a user's mistake is one sentence on the standard error and exit code 2."""
    commands: dict[type, Callable[[Any], int]] = {
        options.Train: train,
        options.Eval: evaluate,
        options.Export: export,
        options.Compare: compare,
        options.Graph: graph,
        options.Policies: policies,
        options.Algorithms: algorithms,
        options.Tune: tune,
        options.Bench: bench,
        options.Doctor: doctor,
    }
    try:
        return commands[type(asked)](asked)
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


def train(asked: options.Train) -> int:
    resume = None if asked.resume is None else find_run(asked.resume)
    made, env = (configured(asked), environment(asked)) if resume is None else resumed(asked, resume)
    runs = _starter(asked)(
        made,
        env,
        resume=resume,
        callbacks=[load_object(path) for path in asked.callbacks],
        progress=False if asked.quiet else None,
        **{name: getattr(asked, name) for name in PASSED_ON},
        **asked.options,
    )
    for done in runs:
        _tell(done, asked)
    if len(runs) == 1:
        _hint(runs[0])
    else:
        print(f"seeds: {runs[0].path.parent}\ncompare: headrace compare {runs[0].path.parent} --out curves.png")
        _hint(runs[0], runs[0].path.parent)
    return INTERRUPTED if any(done.interrupted for done in runs) else 0


def _starter(asked: options.Train) -> Callable[..., list[Run]]:
    """What trains: one run, or several seeds of it."""
    if asked.seeds is not None and asked.resume is not None:
        raise ConfigError("--resume goes on with the seeds in its folder; leave --seeds away.")
    if asked.seeds is not None:
        first = asked.seed or 0
        return partial(train_seeds, seeds=range(first, first + asked.seeds))
    if asked.resume is not None and seed_folders(asked.resume):
        return train_seeds
    return lambda *given, **named: [launch.train(*given, seed=asked.seed, **named)]


def _tell(done: Run, asked: options.Train) -> None:
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
    films = f"*.{asked.options.get('record_format', 'mp4')}"
    if "record_every" in asked.options and not any((done.path / "videos").glob(films)):
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


def evaluate(asked: options.Eval) -> int:
    if asked.episodes < 1:
        raise ConfigError(f"--episodes must be at least 1, got {asked.episodes}.")
    if asked.record:
        check_file(asked.record)
    named = name_own(asked.algorithm, asked.env, asked.network, settings(asked))
    # All are loaded before any is played: a wrong one among them is refused at once.
    found = [find_run(run) for run in asked.runs]
    folders = [folder for run in found for folder in seed_folders(run) or [run]]
    runs = [load_run(folder, named, asked.best) for folder in folders]
    files = film_names(asked.record, [run.path for run in runs]) if asked.record else []
    for i, run in enumerate(runs):
        score = run.evaluate(asked.episodes)
        print(
            f"{f'{run.path}: ' if len(runs) > 1 else ''}{run.algorithm.name} on {run.graph.spec.id}: "
            f"return {score.mean_reward:.1f} ± {score.std_reward:.1f}, "
            f"length {score.mean_ep_length:.1f} over {len(score.returns)} episodes"
        )
        if asked.record:
            print(f"recorded {record(run, files[i])} frames: {files[i]}")
    return 0


def export(asked: options.Export) -> int:
    named = name_own(asked.algorithm, asked.env, asked.network, settings(asked))
    loaded = load_run(find_run(asked.run), named, asked.best, "export")
    file = loaded.export(asked.out or loaded.path / f"actor.{asked.format}", asked.format)
    print(f"{loaded.algorithm.name} on {loaded.graph.spec.id}: {file}")
    return 0


def compare(asked: options.Compare) -> int:
    if asked.out is not None:
        check_picture(asked.out)
    paths = [path for run in asked.runs for path in (seed_folders(run) or [find_run(run)])]
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
    if asked.out is not None:
        draw(groups, asked.out)
        print(f"drawn: {asked.out}")
    return 0


def graph(asked: options.Graph) -> int:
    if asked.passes:
        if asked.format != "text":
            raise ConfigError(f"--passes is text; leave --format {asked.format} away.")
        print(api.passes(configured(asked), environment(asked), asked.policy, asked.replicas))
        return 0
    how: Any = {"replicas": asked.replicas, "staleness": asked.staleness}
    print(render(api.plan(configured(asked), environment(asked), asked.policy, **how), asked.format))
    return 0


def tune(asked: options.Tune) -> int:
    how: Any = {"replicas": asked.replicas, "staleness": asked.staleness}
    launch.tuned(configured(asked), environment(asked), asked.policy, seconds=asked.seconds, anew=True, **how)
    return 0


def bench(asked: options.Bench) -> int:
    if run_bench(configured(asked), environment(asked), asked):
        return 0
    print("headrace: interrupted; what was measured until then is above.", file=sys.stderr)
    return INTERRUPTED


def policies(asked: options.Policies) -> int:
    rows = [(name, _first_line(policy)) for name, policy in POLICIES.items()]
    _table(["policy", "what it does"], [*rows, ("auto", AUTO)])
    print("Your own: --policy path/to/file.py:name (docs/policies.md). `headrace bench ALGO ENV` tries all that fit.")
    return 0


def algorithms(asked: options.Algorithms) -> int:
    if asked.algorithm is None:
        _table(["algorithm", "what it is"], [(name, _first_line(kind)) for name, kind in ALGORITHMS.items()])
        print("`headrace algorithms ALGO` lists the settings of one.")
        return 0
    _table(["setting", "default", "meaning"], described(api.find_algorithm(asked.algorithm).config))
    return 0


def configured(asked: options.What) -> Algorithm[Any]:
    """The algorithm asked for, with its settings."""
    if asked.algorithm is None:
        raise UsageError("give an algorithm and an environment, such as: headrace train sac Pendulum-v1.")
    plain = api.find_algorithm(asked.algorithm)
    return type(plain)(override(plain.config, settings(asked)))


def resumed(asked: options.Train, directory: Path) -> tuple[Algorithm[Any], Any]:
    """The algorithm and the environment of the run to go on with."""
    directory = next(iter(seed_folders(directory)), directory)
    named = name_own(asked.algorithm, environment(asked), settings=settings(asked), policy=asked.policy)
    made, env, _ = restore(directory, RunConfig.read(directory), named, "train")
    return made, env


def settings(asked: options.What | options.Own) -> dict[str, str]:
    """What was given by --set."""
    return dict(_pairs("--set", asked.settings))


def environment(asked: options.What) -> Any:
    """The environment asked for, with its arguments."""
    kwargs = {name: literal(value) for name, value in _pairs("--env-kwargs", asked.env_kwargs)}
    return recipe(asked.env, kwargs | ({"atari": True} if asked.atari else {}), asked.action_scale)


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
