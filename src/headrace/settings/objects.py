"""Classes and functions of the user's own, by the names under which other processes find them."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError, sentence

FILE = "headrace_file_"
"""What a module loaded from a file is called."""


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
