"""Which environments come from installed packages: a recorded run may name these, because their code is not its own."""

from __future__ import annotations

import site
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym

from headrace.envs.make import import_for
from headrace.settings.objects import nameless

OF_ANOTHER = ("GymV21Environment", "GymV26Environment")
"""Ids of Gymnasium's whose arguments name another environment, module and all."""


def is_installed_env(env: str) -> bool:
    """Whether `env` is an id of an installed package: making it runs no file of the user's own.

    A function of an installed module is none: what a run may have called is what was registered as an environment.
    """
    prefix, colon, rest = env.partition(":")
    if nameless(env) or prefix.endswith(".py"):
        return False
    if env.startswith("ALE/"):  # known to Gymnasium once ale_py is imported
        return _harmless("ale_py")
    if not colon:  # looked up in Gymnasium's registry only
        return not env.startswith(OF_ANOTHER)
    if prefix in ("envpool", "gymnax", "brax"):
        return _harmless(prefix)
    if prefix == "pettingzoo":
        return _harmless(prefix, rest)
    if not is_installed(prefix):
        return False
    import_for(prefix, env)
    return rest in gym.registry and not rest.startswith(OF_ANOTHER)


def is_installed(module: str) -> bool:
    """Whether a module, and every package around it, lies where packages are installed.

    Not what the current folder, a script's folder, PYTHONPATH or an editable install adds: these are the user's own.
    """
    parts = module.split(".")
    if "__main__" in parts:
        return False  # importing it runs the package's program
    return all(_lies_in_packages(".".join(parts[: i + 1])) for i in range(len(parts)))


def _lies_in_packages(module: str) -> bool:
    try:
        spec = find_spec(module)  # imports the packages around it, which were looked at before
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = list(spec.submodule_search_locations or ()) + ([spec.origin] if spec.has_location and spec.origin else [])
    folders = _folders()
    return bool(places) and all(any(Path(place).resolve().is_relative_to(f) for f in folders) for place in places)


def _folders() -> set[Path]:
    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    # `site` counts the whole installation as one of them on some systems, the standard library included.
    return {Path(folder).resolve() for folder in found if Path(folder).name.endswith("-packages")}


def _harmless(package: str, *parts: str) -> bool:
    # Of a package that is missing no code can run, and making the environment says what to install.
    return find_spec(package) is None or all(map(is_installed, (package, *parts)))
