"""Starting a run: resolve what was asked for, tune, plan, and drive it to its end."""

from __future__ import annotations

import inspect
import math
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec

import equinox as eqx
import jax
import jax.numpy as jnp

from headrace import graph as graphs
from headrace.api import default_policy, distribute, trace
from headrace.core.algorithm import Algorithm
from headrace.draw.words import asked_words
from headrace.envs import recipe
from headrace.errors import CallbackError, CheckpointError, DivergenceError, HeadraceError, UsageError
from headrace.graph import Graph, Plan
from headrace.machine import Machine, keep_compiled, require_memory
from headrace.run import checkpoint
from headrace.run.callbacks import Callback, Callbacks, check_callbacks
from headrace.run.directory import RunConfig, algorithm_record
from headrace.run.display import Display
from headrace.run.run import Run
from headrace.run.session import Session, interruptible
from headrace.run.settle import options_of, settle, tunable
from headrace.run.stop_rule import StopRule
from headrace.run.track import WandbTracker, check_track
from headrace.runtimes import RUNTIMES, default_runtime
from headrace.runtimes.boot import WORKER
from headrace.services.evaluate import Evaluator
from headrace.settings.objects import being_loaded
from headrace.tune import Choice, auto, cached, remember
from headrace.tune import tune as run_tuner
from headrace.tune.refine import refinement
from headrace.types import tree_bytes

NO_TUNE = "HEADRACE_NO_TUNE"
"""Environment variable that disables tuning, as `--no-tune` does."""

P = ParamSpec("P")
Training = Generator[Session, None, Run]
"""A run under way: yields its session wherever the runtime is to be advanced, and returns the run."""


def training(
    algorithm: str | type[Algorithm[Any]] | Algorithm[Any] | None = None,
    env: Any = None,
    *,
    policy: str | None = None,
    runtime: str | None = None,
    replicas: int | None = None,
    staleness: int | None = None,
    steps: int | None = None,
    seconds: float | None = None,
    until: float | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    network: Any = None,
    callbacks: Sequence[Callback] = (),
    tune: bool = True,
    progress: bool | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    action_scale: float | None = None,
    **options: Any,
) -> Training:
    """Train, and return the run.

        run = headrace.train(SAC(batch_size=512), "Pendulum-v1", seconds=60)
        run.evaluate().mean_reward

    The policy is `desktop` unless given (`single` for JAX environments), the runtime `processes` where there is more
    than one fragment (`inline` otherwise), and the seed 0. `network` is the setting of that name. `resume` goes on with
    a run, its replay included, in its own directory, to the same goal and with the same options but for those given; a
    class or function of your own is given again, since what a run names is not imported. `tune` lets the tuner choose
    what is not set, once for each machine, algorithm and environment (at most 20 s). `env_kwargs` are what the
    environment is made with, `action_scale` how far actions reach where it does not bound them. `callbacks` are
    functions that are called with an `Event` at each row of metrics, evaluation and checkpoint. `options` are those of
    `headrace.runtimes.Options`, such as `evaluate`, `log_info`, `checkpoint_every` or `debug`.
    """
    if WORKER in os.environ or being_loaded():
        what = "a process of a run loads your script" if WORKER in os.environ else f"'{being_loaded()}' is loaded"
        raise UsageError(f"train was called while {what}; put the call under: if __name__ == '__main__'.")
    keep_compiled()
    functions = check_callbacks(callbacks)
    before = None if resume is None else RunConfig.read(Path(resume))
    goal, aimed = StopRule.of(steps, seconds, until), (steps, seconds, until) != (None, None, None)
    if before is not None and before.goal and not aimed:
        goal = StopRule(**before.goal)
    kept = {} if before is None else dict(before.options)
    kept |= {name: value for name, value in options.items() if value is not None}
    wanted = options_of(kept, goal, inspect.signature(train).parameters)
    env = recipe(env, env_kwargs, action_scale)
    made, env, graph, config, directory = settle(
        algorithm, env, policy, runtime, replicas, staleness, seed, out, resume, network, wanted
    )
    config = replace(config, goal=asdict(goal), options={name: kept[name] for name in sorted(kept) if name != "debug"})
    if not RUNTIMES[config.runtime].spawns and wanted.has_viewer:
        raise UsageError("--view and --record-every need a process of their own; use the processes runtime.")
    say = (lambda text: None) if progress is False else _say
    asked, given = made, dict[str, Any](replicas=config.replicas, staleness=config.staleness)
    chosen = auto.choose(made, env, graph, say=say, **given) if config.policy == "auto" else config.policy
    # Refused, if it is, before anything is measured.
    whole = distribute(graph, chosen, **given)
    if config.policy == "auto":
        config = replace(config, policy=chosen, runtime=runtime or default_runtime(whole, wanted))
    # A cell with its optimiser's state and what an update computes on the way.
    require_memory("learning networks this large", 6 * tree_bytes(whole.graph.cells), "set hidden to smaller sizes")
    for store in whole.graph.stores.values():
        store.require_memory()
    choice = None if config.tuned is None else Choice.from_json(config.tuned)
    tunes = tune and NO_TUNE not in os.environ and RUNTIMES[config.runtime].spawns and tunable(whole, config.policy)
    if choice is None and resume is None and tunes:
        choice = tuned(made, env, config.policy, graph=graph, say=say, **given)
        made = choice.settle(made)
        config = replace(config, settings=algorithm_record(made)[1], replicas=choice.replicas, tuned=choice.to_json())
        graph = graphs.trace(made, graph.spec.with_envs(made.config.num_envs))
        whole = distribute(graph, config.policy, config.replicas, config.staleness)
    if choice is not None:
        whole = graphs.verify(choice.place(whole), Machine.detect())
    if whole.graph.spec.pure and wanted.log_info:
        raise UsageError("--log-info is for environments stepped on the host; one written in JAX gives no info.")
    for fragment in whole.fragments:
        if fragment.asked:
            say(f"headrace: replicas of '{fragment.id}': {asked_words(fragment)}, because some would share a core.")
    wanted = replace(wanted, steps=goal.steps, videos=str(directory / "videos"))
    running = RUNTIMES[config.runtime](whole, made, env, config.seed, wanted)
    try:

        def evaluator() -> Evaluator:
            return Evaluator(whole.graph, running.cells(), env, config.seed, wanted.eval_episodes)

        elapsed, best, fresh = 0.0, None, resume is None and not directory.exists()
        if resume is not None:
            template, _ = running.state()
            arrays, values = checkpoint.load(checkpoint.newest(directory), template)
            elapsed, best = values.pop("elapsed"), values.pop("best")
            if not aimed and goal.spent(values["env_steps"], elapsed):
                raise UsageError(
                    f"run {directory} went {goal} already; say how far to go on, such as --steps or --until."
                )
            running.restore(arrays, values)
            if config != before:
                config.write(directory, running.plan.to_json())
        else:
            try:
                config.write(directory, running.plan.to_json())
            except OSError as error:
                raise UsageError(f"'{directory}' cannot be written ({error.strerror}); choose another --out.") from None
        refine: Iterator[str | None] = iter(())
        if resume is None and choice is not None and not choice.refined and running.refines:
            made_for = (asked, env, config.policy, Machine.detect(), *given.values())
            when_refined = partial(_refined, choice, made_for, config, running.plan, directory)
            refine = refinement(running, choice, min(d.rate for d in whole.graph.domains if d.fused), when_refined)
        tracker = None if wanted.track is None else WandbTracker(check_track(wanted.track))
        told = Callbacks([*functions, *([tracker] if tracker else [])], directory, asdict(config))
        session = Session(running, directory, goal, elapsed, wanted.checkpoint_every, told)
        session.recorder.best = -math.inf if best is None else best
        session.recorder.log_info = wanted.log_info
        display = Display(f"{made.name} on {config.env}, {config.policy} policy, seed {config.seed}", goal, progress)
        try:
            with interruptible(session):
                yield from session.train(evaluator if wanted.evaluate else None, wanted.eval_every, display, refine)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_left(directory)) from None
        except CallbackError:
            raise  # the session saved everything
        except DivergenceError as error:
            session.log()
            raise DivergenceError(f"{error}; {_last_good(directory)}.") from None
        except HeadraceError:
            if running.progress.learned:
                running.stop(at_once=True)
                session.save()  # keep what was learned until then
            elif fresh:
                shutil.rmtree(directory)  # nothing was trained: leave no half-written run
            raise
        finally:
            display.close()
            session.recorder.close()
            if tracker is not None:
                tracker.close(failed=sys.exc_info()[0] is not None)
        for name in sorted({*wanted.log_info} - session.recorder.met) if session.recorder.recent else ():
            _say(f"headrace: --log-info {name} found nothing: no finished episode had such a number in its last info.")
        # Copies, which are not donated to a program.
        cells = jax.tree.map(lambda leaf: jnp.array(leaf) if eqx.is_array(leaf) else leaf, running.cells())
        run = Run(directory, made, env, whole.graph, cells, config.seed)
    finally:
        running.close()
    run.interrupted, run.reached, run.stopped = session.interrupted, session.reached, told.stopped
    return run


def _left(directory: Path) -> str:
    try:
        checkpoint.newest(directory)
    except CheckpointError:
        return f" at once; there was no checkpoint yet (--checkpoint-every), {directory} has its metrics alone."
    return f" at once; what came after the last checkpoint is lost. Go on with: headrace train --resume {directory}"


def _last_good(directory: Path) -> str:
    try:
        kept = f"the last good checkpoint is {checkpoint.newest(directory)}"
    except CheckpointError:
        kept = "there was no checkpoint yet (--checkpoint-every)"
    return f"{kept}; lower learning_rate, or go on all the same with --on-divergence warn"


def drive(training: Training, session: Session | None = None) -> Run:
    """Drive a training to its end; `session` is what it yielded last, if it was begun."""
    try:
        session = session or next(training)
        while True:
            try:
                session.runtime.advance()
            except BaseException as error:
                training.throw(error)  # it saves what can be saved, and raises
                raise
            session = next(training)
    except StopIteration as end:
        run: Run = end.value
        return run
    finally:
        training.close()


def driven(begin: Callable[P, Training]) -> Callable[P, Run]:
    """A function that drives a training to its end and returns the run."""

    @wraps(begin)
    def train(*given: P.args, **named: P.kwargs) -> Run:
        return drive(begin(*given, **named))

    return train


train = driven(training)


def tuned(
    algorithm: Algorithm[Any],
    env: Any,
    policy: str | None = None,
    *,
    replicas: int | None = None,
    staleness: int | None = None,
    seconds: float = 20.0,
    graph: Graph | None = None,
    anew: bool = False,
    say: Callable[[str], Any] = print,
) -> Choice:
    """What the tuner chooses for this machine: as remembered, or measured (always measured with `anew`)."""
    machine = Machine.detect()
    graph = graph or trace(algorithm, env)
    policy = policy or default_policy(graph)
    found = None if anew else cached(algorithm, env, policy, machine, replicas, staleness)
    if found is not None:
        say(f"tuned before: {found}")
        return found
    asked = {"replicas": replicas, "staleness": staleness}
    return run_tuner(algorithm, env, policy, machine, seconds=seconds, graph=graph, say=say, **asked)


def _refined(
    choice: Choice,
    made_for: tuple[Any, ...],
    config: RunConfig,
    whole: Plan,
    directory: Path,
    repeat: int,
    measured: float,
) -> None:
    """Save the choice that was best on the running system, for this run and later runs like it."""
    frozen = replace(choice, repeat=repeat, refined=True, measured=round(measured, 1))
    try:
        replace(config, tuned=frozen.to_json()).write(directory, frozen.place(whole).to_json())
    except OSError as error:
        _say(f"headrace: could not write {directory} ({error.strerror}); training goes on.")
    if choice.expected is not None:  # else too little was measured, and the next run measures again
        remember(frozen, *made_for)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
