"""Runs side by side: the interquartile mean over seeds and its bootstrap interval, against steps and against time.

The definitions are rliable's (Agarwal et al., 2021, "Deep reinforcement learning at the edge of the statistical
precipice"): the interquartile mean is the mean without the lowest and the highest quarter of the scores, the interval
the 2.5th to 97.5th percentile of what it is when the seeds of each group are drawn again with replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import UsageError
from headrace.run.directory import RunConfig
from headrace.run.record import read_metrics

Floats = NDArray[np.float64]

RESAMPLES = 2_000
"""Bootstrap resamples, as rliable uses for its figures."""

POINTS = 100
"""Points of a curve: more than a picture of this size can resolve."""

EVALUATED, TRAINED = RETURNS = "eval/mean_reward", "rollout/ep_rew_mean"

INCIDENTAL = {"seed", "headrace", "settings", "tuned", "goal", "options"}
"""Config fields that may differ between the seeds of one training."""


@dataclass(frozen=True)
class Trained:
    """The data of a run that a comparison needs."""

    path: Path
    config: RunConfig
    steps: Floats
    seconds: Floats
    returns: Floats
    """Returns of the evaluations, or of training episodes where there were none."""
    evaluated: bool


@dataclass(frozen=True)
class Curve:
    """The interquartile mean over seeds and its interval, at points along an axis."""

    at: Floats
    middle: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class SeedGroup:
    """Runs that differ in nothing but their seed."""

    name: str
    runs: tuple[Trained, ...]

    @property
    def final(self) -> tuple[float, float, float]:
        """Interquartile mean of the last returns, and its interval."""
        last = np.array([[run.returns[-1]] for run in self.runs])
        low, high = interval(last)
        return float(interquartile_mean(last)[0]), float(low[0]), float(high[0])

    def curve(self, axis: str) -> Curve:
        """Returns against `steps` or `seconds`, as far as every seed went; a return holds until the next one."""
        along = [getattr(run, axis) for run in self.runs]
        first = max(line[0] for line in along)
        at = np.linspace(first, max(first, min(line[-1] for line in along)), POINTS)
        held = [np.searchsorted(line, at, side="right") - 1 for line in along]
        scores = np.array([run.returns[index] for run, index in zip(self.runs, held, strict=True)])
        return Curve(at, interquartile_mean(scores), *interval(scores))


def interquartile_mean(scores: Floats) -> Floats:
    """The mean over the first axis without its lowest and highest quarter: `scipy.stats.trim_mean(scores, 0.25)`."""
    cut = int(0.25 * len(scores))
    kept: Floats = np.sort(scores, axis=0)[cut : len(scores) - cut].mean(axis=0)
    return kept


def interval(scores: Floats, share: float = 0.95, resamples: int = RESAMPLES) -> tuple[Floats, Floats]:
    """The percentile bootstrap interval of the interquartile mean over the first axis, the seeds."""
    drawn = np.random.default_rng(0).integers(len(scores), size=(resamples, len(scores)))
    means = interquartile_mean(np.swapaxes(scores[drawn], 0, 1))
    tail = 100 * (1 - share) / 2
    low, high = np.percentile(means, [tail, 100 - tail], axis=0)
    return low, high


def read_runs(paths: Sequence[Path], say: Callable[[str], object] = print) -> list[Trained]:
    """The returns of runs over time: of their evaluations if all have some, else of training episodes.

    Runs without any are left out.
    """
    configs = {path: RunConfig.read(path) for path in paths}  # refuses a folder that is not a run
    rows = {path: read_metrics(path) for path in paths}
    short = [path for path, of in rows.items() if not any(row.get(key) is not None for row in of for key in RETURNS)]
    if len(short) == len(rows):
        raise UsageError(f"run {short[0]} has no returns to compare yet; train it for longer.")
    for path in short:
        say(f"left out: run {path} has no returns to compare yet.")
        del rows[path]
    evaluated = all(any(row.get(EVALUATED) is not None for row in of) for of in rows.values())
    return [_read(path, configs[path], of, evaluated) for path, of in rows.items()]


def _read(path: Path, config: RunConfig, rows: list[dict[str, Any]], evaluated: bool) -> Trained:
    key = EVALUATED if evaluated else TRAINED
    told = [row for row in rows if row.get(key) is not None]
    if evaluated:
        told = [row for i, row in enumerate(told) if i == 0 or _score(row) != _score(told[i - 1])]
    if not told:  # it has evaluations, but another run has none
        raise UsageError(f"run {path} has evaluations alone, but others have none; compare it with runs that have.")

    def column(name: str) -> Floats:
        return np.array([row[name] for row in told], np.float64)

    return Trained(path, config, column("time/env_steps"), column("time/elapsed_s"), column(key), evaluated)


def _score(row: dict[str, Any]) -> tuple[Any, ...]:
    """A value that is different for each evaluation."""
    return row.get("eval/version"), row[EVALUATED], row.get("eval/std_reward")


def groups_of(runs: Sequence[Trained], say: Callable[[str], object] = print) -> list[SeedGroup]:
    """Group runs that differ only in their seed; names include what differs where they would be ambiguous.

    Of several runs of one seed the last counts: the same seed is not independent evidence.
    """
    held: dict[str, dict[int, Trained]] = {}
    for run in runs:
        seeds = held.setdefault(repr(_what(run.config)), {})
        if run.config.seed in seeds:
            say(f"left out: run {seeds[run.config.seed].path} has the seed of {run.path}, which counts.")
        seeds[run.config.seed] = run
    members = [list(seeds.values()) for seeds in held.values()]
    whats = [_what(group[0].config) for group in members]
    return [SeedGroup(_name(what, whats), tuple(group)) for what, group in zip(whats, members, strict=True)]


def _what(config: RunConfig) -> dict[str, Any]:
    """The config without what may differ between seeds."""
    fields = {name: value for name, value in asdict(config).items() if name not in INCIDENTAL}
    return fields | config.settings | {"algorithm": config.algorithm.rpartition(":")[2]}


def _name(what: dict[str, Any], others: Sequence[dict[str, Any]]) -> str:
    rivals = [other for other in others if (other["algorithm"], other["env"]) == (what["algorithm"], what["env"])]
    differs = [key for key in what if any(other.get(key) != what[key] for other in rivals)]
    details = ", ".join(str(what[key]) if key == "policy" else f"{key} {what[key]}" for key in differs[:3])
    return f"{what['algorithm']} on {what['env']}" + (f" ({details})" if details else "")
