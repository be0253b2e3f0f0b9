"""Rebuilds what a run recorded. A run is data, perhaps from someone else: nothing is imported because it says so.

Built-in algorithms and policies, and environments of installed packages, are found by the names it recorded. A file,
class or function of the user's own must be named again by the user, and must match the record.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

from headrace.algorithms import ALGORITHMS
from headrace.core.algorithm import Algorithm
from headrace.envs import EnvLike, Recipe, env_id, is_installed_env, recipe
from headrace.errors import CheckpointError, EnvError, UsageError
from headrace.policies import POLICIES
from headrace.run.directory import RunConfig, env_record
from headrace.settings.objects import nameless, object_path, same_object
from headrace.settings.values import from_json, functions, parse, plain

OPTIONS = ("algorithm", "env", "network", "policy")
"""Settings with an option of their own on the command line and in Python; others are given by --set."""

BUILT_IN: dict[str, type[Algorithm[Any]]] = {object_path(kind): kind for kind in ALGORITHMS.values()}


@dataclass(frozen=True)
class Named:
    """The user's own code that a run was made with, named by the user."""

    algorithm: type[Algorithm[Any]] | Algorithm[Any] | None = None
    env: EnvLike | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are functions, and others to compare with the record."""
    policy: str | None = None


def restore(
    directory: Path, config: RunConfig, named: Named, command: str = "eval"
) -> tuple[Algorithm[Any], EnvLike, str]:
    """The algorithm, the environment and the policy of a run; `command` is the command line's, for messages."""
    return _Recorded(directory, config, named, command).restore()


def command_for(directory: Path, command: str, folder: Path | None = None) -> str:
    """What to type for a command on a run, or on the folder of its seeds, with all user code named."""
    recorded = _Recorded(folder or directory, RunConfig.read(directory), Named(), command)
    try:
        recorded.look()
    except EnvError:  # an object whose class or wrappers are not Gymnasium's own
        recorded.missing["env"] = "<object>"
    return recorded.typed()


class _Recorded:
    def __init__(self, directory: Path, config: RunConfig, named: Named, command: str):
        self.directory, self.config, self.named, self.command = directory, config, named, command
        self.missing: dict[str, str] = {}

    def restore(self) -> tuple[Algorithm[Any], EnvLike, str]:
        kind, settings, env, policy = self.look()
        if kind is None or env is None or self.missing:
            raise UsageError(self._what_to_type())
        if isinstance(self.named.algorithm, Algorithm):
            return self.named.algorithm, env, policy
        return kind(from_json(kind.config_type, settings)), env, policy

    def look(self) -> tuple[type[Algorithm[Any]] | None, dict[str, Any], EnvLike | None, str]:
        """Find what can be found of the run; the rest is in `missing`."""
        config, named = self.config, self.named
        kind = self._kind()
        settings = self._settings(kind)
        env = self._env()
        if named.policy is not None:
            self._check("policy", named.policy, config.policy)
        elif self.command == "train" and config.policy not in (*POLICIES, "auto"):
            self.missing["policy"] = config.policy
        return kind, settings, env, named.policy if named.policy is not None else config.policy

    def _kind(self) -> type[Algorithm[Any]] | None:
        given, recorded = self.named.algorithm, self.config.algorithm
        if given is None:
            if recorded not in BUILT_IN:
                self.missing["algorithm"] = recorded
            return BUILT_IN.get(recorded)
        kind = type(given) if isinstance(given, Algorithm) else given
        self._check("algorithm", object_path(kind), recorded)
        return kind

    def _settings(self, kind: type[Algorithm[Any]] | None) -> dict[str, Any]:
        """The recorded settings, with the functions that the user gave in place of their names."""
        recorded, given = dict(self.config.settings), dict(self.named.settings)
        if kind is None:  # which are functions is unknown without the class: these look like it
            paths = {name: path for name, path in recorded.items() if isinstance(path, str) and _is_path(path)}
            self.missing |= {name: path for name, path in paths.items() if name not in given}
            return recorded
        if isinstance(self.named.algorithm, Algorithm):
            given = vars(self.named.algorithm.config) | given
        paths, hints = functions(kind.config_type, recorded), get_type_hints(kind.config_type)
        default = kind.config_type()
        for name, value in given.items():
            found = parse(name, value, hints[name]) if isinstance(value, str) and name in hints else value
            if name in paths and callable(found):
                self._check(name, object_path(found), paths[name])
                recorded[name] = found
            elif plain(found) != recorded.get(name):
                self._refuse(name, plain(found), recorded.get(name))
        for name, path in paths.items():
            if name in given:
                continue
            if not nameless(path) and plain(getattr(default, name)) == path:
                recorded[name] = getattr(default, name)
            else:
                self.missing[name] = path
        return recorded

    def _env(self) -> Any:
        config = self.config
        given = recipe(self.named.env)
        if given is not None:
            self._check("env", env_id(given), config.env)
            if isinstance(given, Recipe) and self.command == "train":  # playing with other arguments is allowed
                for what, value in env_record(given).items():
                    if what != "env" and value and value != getattr(config, what):
                        self._refuse(what, value, getattr(config, what))
            return config.make_recipe(given)
        if is_installed_env(config.env):
            return config.make_recipe()
        self.missing["env"] = config.env
        return None

    def _check(self, what: str, given: str, recorded: str) -> None:
        """Refuse what differs from the record; objects without a name cannot be compared."""
        if not (nameless(given) or nameless(recorded) or same_object(given, recorded)):
            self._refuse(what, given, recorded)

    def _refuse(self, what: str, given: Any, recorded: Any) -> NoReturn:
        raise CheckpointError(
            f"run {self.directory} was trained with {what} {recorded}, not {given}; name that one, or leave it out."
        )

    def _what_to_type(self) -> str:
        """The sentence for what only the user may name, with the whole command; what a run recorded is text in it."""
        own = ", ".join(f"{what} '{path}'" for what, path in self.missing.items())
        unnamed = " and ".join(what for what, path in self.missing.items() if nameless(path))
        why = f" (its {unnamed} had no name that could be recorded: put it into a file)" if unnamed else ""
        return (
            f"run {self.directory} was made with code of your own, which runs only if you name it: {own}{why}. "
            f"If you trust it, type: {self.typed()} (in Python: {self._called()})."
        )

    def typed(self) -> str:
        """The command, with what the user has to name."""
        shown = {
            what: "FILE.py:NAME" if nameless(path) else path for what, path in (self._given() | self.missing).items()
        }
        words = ["headrace", self.command]
        if self.command == "train" and self.missing:
            kind, config = BUILT_IN.get(self.config.algorithm), self.config
            words += [shown.pop("algorithm", config.algorithm if kind is None else kind.__name__.lower())]
            words += [shown.pop("env", config.env)]
        words += ["--resume"] if self.command == "train" else []
        words += [str(self.directory)]
        for what, path in shown.items():
            own_word = what in OPTIONS and not (what == "network" and self.command == "train")
            words += [f"--{what}", path] if own_word else ["--set", f"{what}={path}"]
        return shlex.join(words)

    def _given(self) -> dict[str, str]:
        """What the user has named already, as recorded."""
        named, config = self.named, self.config
        recorded = {"algorithm": config.algorithm, "env": config.env, "policy": config.policy} | config.settings
        given = {"algorithm": named.algorithm, "env": named.env, "policy": named.policy} | dict(named.settings)
        return {what: str(recorded[what]) for what, value in given.items() if value is not None and what in recorded}

    def _called(self) -> str:
        names = {what: _last(path) for what, path in (self._given() | self.missing).items()}
        own = {what: name for what, name in names.items() if what not in OPTIONS}
        if own:
            names["algorithm"] = f"{_last(self.config.algorithm)}({', '.join(f'{k}={v}' for k, v in own.items())}, ...)"
        given = ", ".join(f"{what}={name}" for what, name in names.items() if what in OPTIONS)
        where = repr(str(self.directory))
        return f"train(resume={where}, {given})" if self.command == "train" else f"Run.load({where}, {given})"


def _is_path(text: str) -> bool:
    module, _, name = text.rpartition(":")
    return nameless(text) or (
        name.isidentifier() and (module.endswith(".py") or module.replace(".", "").isidentifier())
    )


def _last(path: str) -> str:
    """The probable name of an object in the user's script."""
    name = path.rpartition(":")[2].rpartition(".")[2]
    return name if name.isidentifier() else "..."
