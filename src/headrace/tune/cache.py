"""Choices remembered, so that the next run of the same on the same machine need not measure again."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax

from headrace.core.algorithm import Algorithm
from headrace.envs import recipe_json
from headrace.errors import HeadraceError
from headrace.files import write_whole
from headrace.machine import Machine, processor
from headrace.settings.objects import object_path
from headrace.settings.values import to_json
from headrace.tune.choice import Choice
from headrace.version import __version__

CHOOSING = 4
"""Counts the ways in which choices were made: what was chosen in an older one is chosen anew."""


def cached(*asked: Any, **more: Any) -> Choice | None:
    """What was chosen before for exactly this, if anything: the arguments are those of `describe`."""
    key = describe(*asked, **more)
    try:
        held = json.loads(_path(key).read_text())
        return Choice.from_json(held["choice"]) if held["of"] == key else None
    except (OSError, ValueError, KeyError, TypeError, HeadraceError):
        return None  # none there, half a file, or one of another version: it is written anew


def remember(choice: Choice, *asked: Any, **more: Any) -> None:
    """Keep a choice for `cached` of the same arguments."""
    key = describe(*asked, **more)
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"of": key, "choice": choice.to_json()}, indent=2))
    except OSError:
        return  # a home that cannot be written costs another measurement, nothing else


def describe(
    algorithm: Algorithm[Any],
    env: Any,
    policy: str,
    machine: Machine,
    replicas: int | None = None,
    staleness: int | None = None,
) -> dict[str, Any]:
    """Everything that a choice depends on."""
    return {
        "processor": processor(),
        "cores": machine.cores,
        "memory_gib": round(machine.memory / 2**30),
        "devices": list(machine.devices),
        "algorithm": object_path(type(algorithm)),
        "settings": to_json(algorithm.config),
        "env": recipe_json(env),
        "policy": policy,
        "replicas": replicas,
        "staleness": staleness,
        "headrace": __version__,
        "choosing": CHOOSING,
        "jax": jax.__version__,
    }


def _path(key: dict[str, Any]) -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
    return home / "headrace" / "tuned" / f"{name}.json"
