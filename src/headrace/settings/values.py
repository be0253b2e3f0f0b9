"""Settings as they are typed and as JSON: read, checked against their types, written, documented."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

from headrace.errors import ConfigError
from headrace.settings.config import Config
from headrace.settings.objects import load_object, object_path
from headrace.settings.schedule import Schedule
from headrace.settings.synonyms import of_setting

C = TypeVar("C", bound=Config)


@dataclass(frozen=True)
class Typed:
    """How a field is typed on the command line, where its name and type do not say: `Annotated[str, Typed("DIR")]`."""

    metavar: str | None = None
    """What stands for the value in the help."""
    like: str | None = None
    """A value to show to whoever typed something else."""
    flag: str | None = None
    """The option, where it is not the field's name; empty where nobody may set it."""
    again: bool = False
    """Whether a list is given one at a time, by the option again."""


def override(config: C, settings: Mapping[str, Any]) -> C:
    """A copy of `config` with other settings; text values are read as the field's type."""
    kind: type = type(config)
    hints = typing.get_type_hints(kind)
    known = {field.name for field in dataclasses.fields(config)}
    changes: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in known:
            raise ConfigError(
                f"{kind.__name__} has no setting '{name}'{of_setting(name, known, field_docs(kind))} "
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
    if len(kinds(hint)) > 1:
        return any(fits(value, part) for part in kinds(hint))
    if get_origin(hint) is typing.Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(fits(item, get_args(hint)[0]) for item in value)
    if _is_function(hint):
        return callable(value)
    if hint in (int, float):  # a whole number does for both, a truth value for neither
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return not isinstance(hint, type) or isinstance(value, hint)


def describe(hint: Any) -> str:
    """A type as a person says it."""
    if get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(repr(choice) for choice in get_args(hint))
    if len(kinds(hint)) > 1:
        return " or ".join(map(describe, kinds(hint)))
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
    return override(cls(), {**values, **{name: load_object(path) for name, path in named.items()}})


def functions(cls: type[Config], values: Mapping[str, Any]) -> dict[str, str]:
    """The settings among `values` that name a function, and how."""
    hints = typing.get_type_hints(cls)
    return {k: path for k, path in values.items() if isinstance(path, str) and _is_function(hints.get(k))}


def askable(cls: type) -> dict[str, tuple[dataclasses.Field[Any], Any, Typed]]:
    """The fields of a dataclass that a person may set, with the type of each and how it is typed."""
    hints, marked = typing.get_type_hints(cls), typing.get_type_hints(cls, include_extras=True)
    found = {}
    for field in dataclasses.fields(cls):
        (how,) = getattr(marked[field.name], "__metadata__", (Typed(),))
        if how.flag != "":
            found[field.name] = (field, hints[field.name], how)
    return found


@cache
def field_docs(cls: type) -> dict[str, str]:
    """The string under each field, as CleanRL's readers expect to find them; none where the source cannot be read."""
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, SyntaxError, TypeError):
            continue  # typed into an interpreter
        assert isinstance(body, ast.ClassDef)
        for pair in zip(body.body, body.body[1:], strict=False):
            match pair:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docs[name] = inspect.cleandoc(text)
    return docs


def described(config: Config) -> list[tuple[str, str, str]]:
    """Each setting: its name, its value as it may be typed, and what it means."""
    kind: type = type(config)
    docs = field_docs(kind)
    typed = {k: ",".join(map(str, v)) if isinstance(v, list) else str(v) for k, v in to_json(config).items()}
    return [(name, value, docs.get(name, "")) for name, value in typed.items()]


def plain(value: Any) -> Any:
    """A setting as JSON has it."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, Schedule):
        return str(value)
    return object_path(value) if callable(value) else value


def kinds(hint: Any) -> tuple[Any, ...]:
    """The types that a type stands for: those of a union, or itself."""
    return get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _is_function(hint: Any) -> bool:
    return any(kind is Callable or get_origin(kind) is get_origin(Callable[..., Any]) for kind in kinds(hint))


def _accepts(hint: Any, kind: type) -> bool:
    choices = [choice for part in kinds(hint) if get_origin(part) is typing.Literal for choice in get_args(part)]
    return any(isinstance(choice, kind) for choice in choices) or any(kind in (k, get_origin(k)) for k in kinds(hint))
