"""Settings: frozen dataclasses whose fields carry their own documentation and refuse nonsense at birth."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import math
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from headrace.errors import ConfigError, sentence
from headrace.schedule import Schedule
from headrace.synonyms import of_setting


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings every algorithm has."""

    num_envs: int = 8
    """Environments stepped side by side, over all replicas together."""

    def __post_init__(self) -> None:
        self.at_least("num_envs", 1)
        self.check()

    def check(self) -> None:
        """Refuse contradictory settings by raising `ConfigError`; called when the config is made."""

    def share(self: C, replicas: int, batches: bool = True) -> C:
        """The settings of one of so many replicas of the whole loop.

        Each has its part of the environments and of what is kept; with `batches`, of every batch too, where their
        gradients are averaged.
        """
        changed: C = dataclasses.replace(self, **self.parts(replicas, batches))
        return changed

    def parts(self, replicas: int, batches: bool) -> dict[str, Any]:
        """What `share` changes."""
        return {"num_envs": self.part("num_envs", replicas)}

    def part(self, name: str, replicas: int) -> int:
        """One of so many equal parts of a setting."""
        value: int = getattr(self, name)
        if value % replicas:
            raise ConfigError(
                f"{name}={value} cannot be divided among {replicas} replicas of the loop; "
                f"set {name} to a multiple of {replicas}."
            )
        return value // replicas

    def at_least(self, name: str, low: float, because: str = "") -> None:
        """Refuse a setting below `low`."""
        value = getattr(self, name)
        if not min(_ends(value)) >= low:
            raise ConfigError(f"{name}={value} must be at least {because or format(low, 'g')}.")

    def above(self, name: str, low: float) -> None:
        """Refuse a setting that is not a finite number above `low`; a schedule may end there."""
        value = getattr(self, name)
        if not (low < _ends(value)[0] < math.inf and min(_ends(value)) >= low):
            raise ConfigError(f"{name}={value} must be above {low:g}.")

    def within(self, name: str, low: float, high: float) -> None:
        """Refuse a setting outside [low, high]."""
        value = getattr(self, name)
        if not all(low <= end <= high for end in _ends(value)):
            raise ConfigError(f"{name}={value} must lie between {low:g} and {high:g}.")


@dataclass(frozen=True, kw_only=True)
class NetConfig(Config):
    """Settings of every algorithm that learns networks."""

    learning_rate: float | Schedule = 3e-4
    """Step size of Adam: a number, or a schedule such as linear:3e-4:0:1e5."""
    gamma: float = 0.99
    """Discount of the future, per step."""
    hidden: tuple[int, ...] = (256, 256)
    """Sizes of the hidden layers."""
    activation: str = "relu"
    """Between the layers: relu, tanh, elu, silu or gelu."""
    encoder: str = "auto"
    """Convolutions over pictures: auto (nature, for few pixels small), nature, impala, small, or flat for none."""
    network: Callable[..., Any] | None = None
    """Builds every network in place of the default MLP: `network(inputs, outputs, key, **hints)`."""

    def check(self) -> None:
        self.within("gamma", 0, 1)
        self.above("learning_rate", 0)
        if any(size < 1 for size in self.hidden):
            raise ConfigError(f"hidden={self.hidden} must be sizes of at least 1.")


@dataclass(frozen=True, kw_only=True)
class ReplayConfig(NetConfig):
    """Settings of every loop that learns from a replay store."""

    batch_size: int = 256
    """Transitions in one update."""
    tune_batch_size: bool = False
    """Whether the tuner may choose batch_size."""
    replay_capacity: int = 1_000_000
    """Transitions remembered."""
    samples_per_insert: float = 16.0
    """Transitions replayed for each one inserted."""
    warmup: int = 1_000
    """Transitions collected before the first update."""
    n_step: int = 1
    """Steps whose rewards are summed before a value stands for the rest."""

    def check(self) -> None:
        NetConfig.check(self)
        self.at_least("batch_size", 1)
        self.at_least("n_step", 1)
        self.at_least("warmup", self.batch_size, f"batch_size={self.batch_size}")
        self.at_least("replay_capacity", self.warmup, f"warmup={self.warmup}")
        self.above("samples_per_insert", 0)

    def parts(self, replicas: int, batches: bool) -> dict[str, Any]:
        kept = {"replay_capacity": self.replay_capacity // replicas, "warmup": -(-self.warmup // replicas)}
        batch = self.part("batch_size", replicas) if batches else self.batch_size
        # A share of the warm-up may be less than the whole batch that is drawn after it.
        kept = {name: max(value, batch) for name, value in kept.items()}
        return NetConfig.parts(self, replicas, batches) | kept | {"batch_size": batch}


@dataclass(frozen=True, kw_only=True)
class TrajectoryConfig(NetConfig):
    """Settings of every loop that learns from each trajectory as it comes."""

    horizon: int = 128
    """Steps of every environment in one trajectory."""

    def check(self) -> None:
        NetConfig.check(self)
        self.at_least("horizon", 1)


@dataclass(frozen=True, kw_only=True)
class RolloutConfig(TrajectoryConfig):
    """Settings of every loop that goes over each trajectory several times, in minibatches."""

    epochs: int = 4
    """How often learning goes over a trajectory."""
    minibatch_size: int = 256
    """Transitions in one update."""

    def check(self) -> None:
        TrajectoryConfig.check(self)
        self.at_least("epochs", 1)
        self.at_least("minibatch_size", 1)
        size = self.horizon * self.num_envs
        if size % self.minibatch_size:
            raise ConfigError(
                f"minibatch_size={self.minibatch_size} must divide horizon * num_envs = "
                f"{self.horizon} * {self.num_envs} = {size}."
            )

    def parts(self, replicas: int, batches: bool) -> dict[str, Any]:
        divided = super().parts(replicas, batches)
        return divided | ({"minibatch_size": self.part("minibatch_size", replicas)} if batches else {})


C = TypeVar("C", bound=Config)

FILE = "headrace_file_"
"""What a module loaded from a file is called."""


def override(config: C, settings: Mapping[str, Any]) -> C:
    """A copy of `config` with other settings; text values are read as the field's type."""
    hints = typing.get_type_hints(type(config))
    known = {field.name for field in dataclasses.fields(config)}
    changes: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(
                f"{type(config).__name__} has no setting '{name}'{of_setting(name, known, _docs(type(config)))} "
                f"(valid: {', '.join(sorted(known))})."
            )
        changes[name] = parse(name, value, hints[name]) if isinstance(value, str) else value
        if isinstance(value, list):
            changes[name] = tuple(value)
        if not fits(changes[name], hints[name]):
            raise ConfigError(f"{name} takes {describe(hints[name])}, got {changes[name]!r}.")
    return dataclasses.replace(config, **changes)


def parse(name: str, text: str, hint: Any) -> Any:
    """Read `text` as a value of type `hint`."""
    if hint is str:
        return text
    if _is_function(hint) and ":" in text:
        return load_object(text)
    if _accepts(hint, Schedule) and ":" in text:
        try:
            return Schedule.parse(text)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
    value = literal(text)
    if value is text:
        if _accepts(hint, str):
            return text
        raise ConfigError(f"{name} takes {describe(hint)}, got '{text}'.")
    if value is None or isinstance(value, bool):
        return value
    if _accepts(hint, tuple):
        return tuple(value) if isinstance(value, list | tuple) else (value,)
    if isinstance(value, float) and _accepts(hint, int) and not _accepts(hint, float) and value.is_integer():
        return int(value)  # 1e6
    return value


def literal(text: str) -> Any:
    """What a person typed as a Python value: a number, a list, true, false, none; the text itself where it is none."""
    plain = {"true": True, "false": False, "none": None}.get(text.lower(), text)
    if not isinstance(plain, str):
        return plain
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        return text


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the type that a field is annotated with."""
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in get_args(hint))
    if origin is typing.Literal:
        return value in get_args(hint)
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(item, get_args(hint)[0]) for item in value)
    if _is_function(hint):
        return callable(value)
    if hint in (None, type(None)):
        return value is None
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return not isinstance(hint, type) or isinstance(value, hint)


def describe(hint: Any) -> str:
    """A type as a person says it."""
    if get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(repr(choice) for choice in get_args(hint))
    if get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(describe(part) for part in get_args(hint))
    if get_origin(hint) is tuple:
        return "a list of whole numbers such as 256,256"
    if _is_function(hint):
        return "a function (module:name)"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "none"}
    names[Schedule] = "a schedule such as linear:3e-4:0:1e5"
    return names.get(hint, str(hint))


def to_json(config: Config) -> dict[str, Any]:
    """The config as plain JSON values; functions become `module:name`."""
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: plain(value) for name, value in values.items()}


def from_json(cls: type[C], values: Mapping[str, Any]) -> C:
    """The config that `to_json` wrote; the functions that it names are loaded, which runs their modules."""
    named = functions(cls, values)
    read = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return override(cls(), read | {name: load_object(path) for name, path in named.items()})


def functions(cls: type[Config], values: Mapping[str, Any]) -> dict[str, str]:
    """The settings among `values` that name a function, and how."""
    hints = typing.get_type_hints(cls)
    return {k: path for k, path in values.items() if isinstance(path, str) and _is_function(hints.get(k))}


@cache
def field_docs(cls: type) -> dict[str, str]:
    """The string under each field, as CleanRL's readers expect to find them."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for here, after in zip(body.body, body.body[1:], strict=False):
            if isinstance(here, ast.AnnAssign) and isinstance(here.target, ast.Name):
                text = after.value.value if _is_text(after) else ""  # type: ignore[attr-defined]
                docs[here.target.id] = inspect.cleandoc(text)
    return docs


def _docs(cls: type) -> dict[str, str]:
    """The documentation of each field, if the source of the class can be read."""
    try:
        return field_docs(cls)
    except (OSError, SyntaxError, TypeError):
        return {}  # typed into an interpreter


def load_object(path: str) -> Any:
    """The object that `module:name` or `path/to/file.py:name` names."""
    module, _, name = path.rpartition(":")
    try:
        with loading(path):
            found: Any = _load_file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    except (ImportError, FileNotFoundError) as error:
        raise ConfigError(f"'{path}' cannot be loaded ({error}); give module:name or path/to/file.py:name.") from None
    except Exception as error:
        raise ConfigError(f"'{path}' cannot be loaded: {sentence(error)}.") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"'{path}' cannot be loaded: there is no '{part}' in {module}.")
        found = getattr(found, part)
    return found


def object_path(value: Any) -> str:
    """`module:name` of a function or class, or `file.py:name` if it was loaded from a file or the script started.

    What has no name by which it can be found again is its own name in angle brackets.
    """
    if not findable(value):
        made_of = getattr(value, "func", value)  # of a partial
        name = getattr(made_of, "__name__", type(made_of).__name__)
        return name if name.startswith("<") else f"<{name}>"
    module = value.__module__
    if module == "__main__" or module.startswith(FILE):
        module = str(Path(sys.modules[module].__file__ or "").resolve())
    return f"{module}:{value.__qualname__}"


def nameless(path: str) -> bool:
    """Whether `object_path` found no name."""
    return "<" in path


def same_object(path: str, other: str) -> bool:
    """Whether two paths name the same thing: a file may have moved, or be imported as a module."""

    def ends(path: str) -> tuple[str, str]:
        module, _, name = path.rpartition(":")
        return (Path(module).stem if module.endswith(".py") else module.rpartition(".")[2]), name

    return ends(path) == ends(other)


def findable(value: Any) -> bool:
    """Whether another process finds this function or class by its path, and finds the same."""
    name = getattr(value, "__qualname__", "<")
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if "<" in name or file is None:
        return False
    # A script may come from where it cannot be read again: the standard input, `-c`, a cell of a notebook.
    return value.__module__ != "__main__" or (Path(file).resolve().suffix == ".py" and Path(file).is_file())


_LOADING: list[str] = []


@contextmanager
def loading(path: str) -> Iterator[None]:
    """Mark what happens inside as the loading of a module for something in it."""
    _LOADING.append(path)
    try:
        yield
    finally:
        _LOADING.pop()


def being_loaded() -> str | None:
    """What is being loaded, if this is called by a module that is."""
    return _LOADING[-1] if _LOADING else None


def _load_file(path: Path) -> Any:
    """A module from a file, once."""
    name = f"{FILE}{abs(hash(path.resolve()))}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def plain(value: Any) -> Any:
    """A setting as JSON has it."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Schedule):
        return str(value)
    return object_path(value) if callable(value) else value


def _ends(value: Any) -> tuple[Any, ...]:
    """Between what a setting lies: itself, or where its schedule starts and ends."""
    return (value.start, value.end) if isinstance(value, Schedule) else (value,)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_function(hint: Any) -> bool:
    if get_origin(hint) in (typing.Union, types.UnionType):
        return any(_is_function(part) for part in get_args(hint))
    return hint is Callable or get_origin(hint) is typing.get_origin(Callable[..., Any])


def _accepts(hint: Any, kind: type) -> bool:
    if get_origin(hint) in (typing.Union, types.UnionType):
        return any(_accepts(part, kind) for part in get_args(hint))
    if get_origin(hint) is typing.Literal:
        return any(isinstance(choice, kind) for choice in get_args(hint))
    return hint is kind or get_origin(hint) is kind
