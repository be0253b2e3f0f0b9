"""How an environment is made: its name and arguments, as a run records them and sends them to its processes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec, WrapperSpec

from headrace.errors import EnvError, UsageError
from headrace.settings.objects import object_path

TUPLE = "tuple"
"""JSON knows no tuples; one is written as {"tuple": [...]}."""


@dataclass(frozen=True)
class Recipe:
    """An environment with arguments, or one that was given as an object and is made again from its spec."""

    env: str | Callable[..., Any]
    kwargs: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    """The fields of a `gymnasium.envs.registration.EnvSpec`: arguments and wrappers are in it."""
    action_scale: float | None = None
    """Bound for actions where the environment gives none."""

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes: the environment by its name, the rest as plain JSON."""
        return {
            "env": env_id(self.env),
            "kwargs": _written(self.kwargs),
            "spec": _written(self.spec),
            "action_scale": self.action_scale,
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Recipe:
        return Recipe(values["env"], _read(values["kwargs"]), _read(values["spec"]), values["action_scale"])

    def require_known(self) -> None:
        """Refuse a spec from a recorded run unless it names only Gymnasium's own classes: making it runs code."""
        known = gym.registry.get(self.spec["id"])
        parts = [wrapper["entry_point"] for wrapper in self.spec["additional_wrappers"]]
        if known is not None and known.entry_point == self.spec["entry_point"]:
            parts = [part for part in parts if not part.startswith("gymnasium.wrappers.")]
        else:
            parts = [self.spec["entry_point"]]
        if parts:
            raise EnvError(
                f"'{self.env}' is made by {parts[0]}, which is not Gymnasium's own; "
                f"pass the environment once more, as env=."
            )

    def gym_spec(self) -> EnvSpec:
        """The spec as Gymnasium has it."""
        wrappers = tuple(WrapperSpec(**wrapper) for wrapper in self.spec["additional_wrappers"])
        return EnvSpec(**self.spec | {"additional_wrappers": wrappers})


def recipe(env: Any, kwargs: Mapping[str, Any] | None = None, action_scale: float | None = None) -> Any:
    """The environment with these arguments; an object of Gymnasium's becomes a recipe to make it again."""
    if isinstance(env, gym.Env):
        env = Recipe(*_remade(env))
    if not isinstance(kwargs, Mapping | None):
        raise UsageError(f"env_kwargs takes a dict of arguments by name, got {kwargs!r}.")
    if not kwargs and action_scale is None:
        return env
    if env is None:
        raise UsageError(
            "--env-kwargs and --action-scale need the environment they are for; a resumed run keeps its own."
        )
    asked = env if isinstance(env, Recipe) else Recipe(env)
    if kwargs and asked.spec:
        raise UsageError("--env-kwargs are for an environment that headrace makes; the one given is made already.")
    if action_scale is not None and not 0 < action_scale < math.inf:
        raise UsageError(f"--action-scale must be above 0, got {action_scale}.")
    for name, value in (kwargs or {}).items():
        try:
            _written(value)
        except ValueError as error:
            raise UsageError(
                f"--env-kwargs takes numbers, text, None and lists, tuples or dicts of them, but '{name}' holds "
                f"{error}; pass a function that makes the environment instead."
            ) from None
    scale = asked.action_scale if action_scale is None else action_scale
    return dataclasses.replace(asked, kwargs=asked.kwargs | dict(kwargs or {}), action_scale=scale)


def recipe_json(env: Any) -> dict[str, Any]:
    """Any environment as JSON; what has no arguments too."""
    return (env if isinstance(env, Recipe) else Recipe(env)).to_json()


def env_id(env: Any) -> str:
    """What to call an environment in logs and runs; a function becomes `module:name`, or `<name>` where it has none."""
    if isinstance(env, Recipe):
        env = env.env
    return env if isinstance(env, str) else object_path(env)


def _remade(env: gym.Env[Any, Any]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The id and spec of an environment that was given as an object, if more like it can be made."""
    kind, advice = type(env.unwrapped).__name__, "pass a class or function that makes it instead."
    spec = env.spec
    if spec is None:
        raise EnvError(f"a {kind} was given that has no spec, so no more like it can be made; {advice}")
    # Environments that render are made separately, with their own mode.
    spec = dataclasses.replace(spec, kwargs={k: v for k, v in spec.kwargs.items() if k != "render_mode"})
    parts: list[EnvSpec | WrapperSpec] = [spec, *spec.additional_wrappers]
    for part in parts:
        name = part.name
        if part.kwargs is None:
            raise EnvError(
                f"'{spec.id}' was given inside {name}, a wrapper that does not keep its arguments "
                f"(gymnasium.utils.RecordConstructorArgs), so no more like it can be made; {advice}"
            )
        if not isinstance(part.entry_point, str) or part.entry_point.startswith("__main__:"):
            raise EnvError(f"'{spec.id}' is made by {name}, which other processes cannot find; {advice}")
    fields = dataclasses.asdict(spec)
    plain = {name: fields[name] for name in fields if name not in ("namespace", "name", "version")}
    plain |= {"vector_entry_point": None, "additional_wrappers": list(plain["additional_wrappers"])}
    try:
        _written(plain)
    except ValueError as error:
        raise EnvError(f"'{spec.id}' was made with {error}, which cannot be written down; {advice}") from None
    return spec.id, {}, plain


def _written(value: Any) -> Any:
    """A value as JSON; raises ValueError naming what cannot be written."""
    match value:
        case np.generic():
            return _written(value.item())
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_written(item) for item in value]
        case tuple():
            return {TUPLE: [_written(item) for item in value]}
        case dict() if all(isinstance(key, str) for key in value) and set(value) != {TUPLE}:
            return {key: _written(item) for key, item in value.items()}
        case _:
            raise ValueError(f"a {type(value).__name__}")


def _read(value: Any) -> Any:
    match value:
        case list():
            return [_read(item) for item in value]
        case dict() if set(value) == {TUPLE}:
            return tuple(_read(item) for item in value[TUPLE])
        case dict():
            return {key: _read(item) for key, item in value.items()}
        case _:
            return value
