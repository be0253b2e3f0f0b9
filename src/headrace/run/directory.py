"""The run directory: what was run, how it went, and how to go on.

RUN/config.json       algorithm, settings, environment, policy, runtime, seed
    plan.json         the graph and where its fragments ran
    processes.json    which process ran which nodes
    metrics.jsonl     one JSON object a line
    tensorboard/      the same as TensorBoard events
    checkpoints/      the newest states, replay included
    best/             the actor that the evaluator liked best
    videos/           with --record-every
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from headrace.core.algorithm import Algorithm
from headrace.envs import Recipe, recipe, recipe_json
from headrace.errors import CheckpointError, UsageError
from headrace.files import write_whole
from headrace.run.stop_rule import StopRule
from headrace.settings.objects import object_path
from headrace.settings.values import fits
from headrace.settings.values import to_json as config_to_json

CONFIG = "config.json"
MEMBERS = "processes.json"

WRITTEN = {"env": "env", "kwargs": "env_kwargs", "spec": "env_spec", "action_scale": "action_scale"}
"""Where what `Recipe.to_json` writes is in a config."""

LATEST = "latest"
"""The command line's name for the newest run under runs/."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a run."""

    algorithm: str
    """Where its class is found: `module:name`."""
    settings: dict[str, Any]
    env: str
    policy: str
    runtime: str
    replicas: int | None
    seed: int
    headrace: str
    """The version that started it."""
    staleness: int | None = None
    tuned: dict[str, Any] | None = None
    """What the tuner chose, if it was asked."""
    goal: dict[str, Any] = field(default_factory=dict)
    """When it is over."""
    options: dict[str, Any] = field(default_factory=dict)
    """Other options asked for, such as `--no-eval`."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    env_spec: dict[str, Any] = field(default_factory=dict)
    """Of an environment that was given as an object: its spec, as `Recipe.to_json` writes it."""
    action_scale: float | None = None
    """Bound for actions where the environment gives none."""

    def make_recipe(self, env: Any = None) -> Any:
        """The environment of this run with its arguments; `env` where the user names or gives it."""
        recorded = Recipe.from_json({name: getattr(self, field) for name, field in WRITTEN.items()})
        if env is None and not recorded.spec:
            env = self.env
        if env is None:
            recorded.require_known()
            return recorded
        given = recipe(env)
        asked = given if isinstance(given, Recipe) else Recipe(given)
        own = recorded.spec or asked.spec or asked.kwargs
        scale = self.action_scale if asked.action_scale is None else None
        return recipe(given, None if own else recorded.kwargs, scale)

    def write(self, directory: Path, plan: dict[str, Any]) -> None:
        """Write config.json and plan.json, making the run directory if needed."""
        directory.mkdir(parents=True, exist_ok=True)
        write_whole(directory / CONFIG, json.dumps(asdict(self), indent=2) + "\n")
        write_whole(directory / "plan.json", json.dumps(plan, indent=2) + "\n")

    def check(self) -> None:
        """Refuse a config with wrong types, or with text that a terminal would not show verbatim."""
        for name, hint in get_type_hints(RunConfig).items():
            value = getattr(self, name)
            kind = dict if get_origin(hint) is dict else hint
            if not fits(value, kind):
                raise TypeError(f"{name} is {value!r}")
        if strange := set(self.goal) - {part.name for part in fields(StopRule)}:
            raise ValueError(f"goal has {', '.join(sorted(strange))}")
        texts = [self.algorithm, self.env, self.policy, self.runtime, self.headrace, *self.settings]
        texts += [value for value in self.settings.values() if isinstance(value, str)]
        for text in texts:
            if not text.isprintable():
                raise ValueError(f"{text!r} is not plain text")

    @staticmethod
    def read(directory: Path) -> RunConfig:
        """The config of a run directory. It may come from anyone: nothing that it names is imported."""
        try:
            held = json.loads((directory / CONFIG).read_text())
            if not isinstance(held, dict):
                raise ValueError(f"it holds a {type(held).__name__}, not named values")
            found = RunConfig(**held)
            found.check()
            return found
        except OSError:
            raise CheckpointError(
                f"'{directory}' is not a run: it has no {CONFIG}; give the folder of a run."
            ) from None
        except (ValueError, TypeError) as error:
            raise CheckpointError(
                f"'{directory / CONFIG}' cannot be read ({error}); give the folder of a run."
            ) from None


def find_run(text: str) -> Path:
    """A run by its folder, or as `latest`: the one under runs/ that was started last."""
    if text != LATEST or (Path(text) / CONFIG).exists():
        return Path(text)
    found = [path for depth in ("*", "*/*") for path in Path("runs").glob(f"{depth}/{CONFIG}")]
    if not found:
        raise CheckpointError(f"'{LATEST}' is the newest run under runs/, and there is none; give the folder of a run.")
    return max(found, key=lambda path: (path.stat().st_mtime_ns, path)).parent


def env_record(env: Any) -> dict[str, Any]:
    """An environment as the fields of a `RunConfig` that `make_recipe` reads."""
    written = recipe_json(env)
    return {WRITTEN[name]: value for name, value in written.items()}


def algorithm_record(algorithm: Algorithm[Any]) -> tuple[str, dict[str, Any]]:
    """Where the algorithm's class is found, and its settings as plain JSON."""
    return object_path(type(algorithm)), config_to_json(algorithm.config)


def new_directory(out: str | Path | None, name: str, env: str, seed: int | str) -> Path:
    """Where a new run goes; refuses a folder that holds one already."""
    if out is not None:
        path = Path(out)
        if (path / CONFIG).exists():
            raise UsageError(
                f"'{path}' holds a run already; choose another --out, or go on with it by --resume {path}."
            )
        if path.exists() and not path.is_dir():
            raise UsageError(f"'{path}' is a file; choose another --out.")
        return path
    stamp = time.strftime("%Y%m%d-%H%M%S")
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", env.rpartition("/")[2])
    base = Path("runs") / f"{name}-{safe}-s{seed}-{stamp}"
    return next(p for p in (base, *(base.with_name(f"{base.name}-{i}") for i in range(2, 1000))) if not p.exists())
