"""The same training with several seeds: one program over a JAX environment, one after the other elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from headrace.api import find_algorithm
from headrace.envs import env_id, recipe
from headrace.errors import HeadraceError, UsageError
from headrace.run.directory import CONFIG, new_directory
from headrace.run.launch import Training, drive, training
from headrace.run.run import Run
from headrace.run.session import EVAL_SHARE, Session
from headrace.runtimes.together import SeedBatch, alike


def train_seeds(
    algorithm: Any = None,
    env: Any = None,
    seeds: int | Sequence[int] = 5,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> list[Run]:
    """Train with several seeds (0 to `seeds` - 1, or those listed), and return the runs.

        runs = headrace.train_seeds("ppo", "gymnax:CartPole-v1", seeds=5, steps=500_000)

    Each is a run of its own, OUT/seed-0 and so on, by default in runs/ALGO-ENV-s0-4-TIME. Over a JAX environment in one
    process they are one program; elsewhere they run one after the other. `options` are those of `train`. Ctrl-C ends
    all of them, `until` and `event.stop()` the seed that they are about, and an error all of them, saved as they are.
    `resume` goes on with every seed in a folder.
    """
    if options.pop("seed", None) is not None:
        raise UsageError("give the seeds themselves, such as seeds=range(3, 8), and no seed.")
    if resume is not None:
        if out is not None:
            raise UsageError("--resume goes on in the folder of the seeds; leave --out away.")
        asked: list[dict[str, Any]] = [{"algorithm": algorithm, "resume": path} for path in seed_folders(resume)]
        if not asked:
            raise UsageError(f"'{resume}' holds no seeds; give a folder with seed-0 and so on in it.")
    else:
        numbers = list(range(seeds) if isinstance(seeds, int) else seeds)
        if not numbers or len(set(numbers)) < len(numbers):
            raise UsageError(f"--seeds takes at least 1 seed, and no seed twice; got {seeds}.")
        if options.get("policy") == "auto":
            raise UsageError("auto may choose another policy for each seed; name one (`headrace bench` tries them).")
        if algorithm is None or env is None:
            raise UsageError("give an algorithm and an environment, such as: headrace train sac Pendulum-v1 --seeds 5.")
        folder = _folder(out, find_algorithm(algorithm).name, env_id(recipe(env, options.get("env_kwargs"))), numbers)
        asked = [{"algorithm": algorithm, "seed": n, "out": folder / f"seed-{n}"} for n in numbers]

    def begin(i: int, progress: bool | None) -> Training:
        return training(env=env, progress=progress, **asked[i], **options)

    with ExitStack() as stack:
        trainings = [begin(0, progress)]
        started = [_start(trainings[0], stack)]
        if len(asked) == 1 or not alike(_loops(started)):
            runs = [_finish(trainings[0], started[0])]
            for i in range(1, len(asked)):
                if not runs[-1].interrupted:
                    runs.append(drive(begin(i, progress)))
            return runs
        if progress is not False:
            print(f"headrace: {len(asked)} seeds in one program; the first is shown.", file=sys.stderr, flush=True)
        for i in range(1, len(asked)):
            trainings.append(begin(i, False))
            started.append(_start(trainings[i], stack))
        if not alike(_loops(started)):
            return [_finish(*both) for both in zip(trainings, started, strict=True)]
        return _in_step(trainings, cast(list[Session], started))


def _start(one: Training, stack: ExitStack) -> Session | Run:
    """A training advanced to its first cycle, or its run if there is nothing to do; closed with the stack."""
    stack.callback(one.close)
    try:
        return next(one)
    except StopIteration as end:
        run: Run = end.value
        return run


def _finish(one: Training, started: Session | Run) -> Run:
    return started if isinstance(started, Run) else drive(one, started)


def _loops(started: Sequence[Session | Run]) -> list[Any]:
    return [one.runtime if isinstance(one, Session) else None for one in started]


def _in_step(trainings: Sequence[Training], sessions: Sequence[Session]) -> list[Run]:
    """Drive all of them with one program until the last has ended."""
    loops: list[Any] = [session.runtime for session in sessions]
    together = SeedBatch(loops)
    for session in sessions:
        session.eval_share = EVAL_SHARE / len(sessions)
    going, runs, failed = list(range(len(loops))), dict[int, Run](), list[HeadraceError]()
    while going:
        together.advance([loops[i] for i in going])
        for i in list(going):
            try:
                try:
                    together.take(loops[i])
                except HeadraceError as error:
                    trainings[i].throw(error)
                next(trainings[i])
                continue
            except StopIteration as end:
                runs[i] = end.value
            except HeadraceError as error:
                failed.append(error)
                for session in sessions:
                    session.interrupted = True
            going.remove(i)
    if failed:
        raise failed[0]
    return [runs[i] for i in sorted(runs)]


def seed_folders(folder: str | Path) -> list[Path]:
    """The runs in a folder of seeds, in the order of the seeds; none if it is not one."""
    found = {path.parent for path in Path(folder).glob(f"seed-*/{CONFIG}")}
    return sorted((path for path in found if path.name[5:].isdigit()), key=lambda path: int(path.name[5:]))


def _folder(out: str | Path | None, name: str, env: str, numbers: list[int]) -> Path:
    label = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
    folder = new_directory(out, name, env, label)
    if seed_folders(folder):
        raise UsageError(f"'{folder}' holds seeds already; choose another --out, or go on with --resume {folder}.")
    return folder
