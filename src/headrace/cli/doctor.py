"""`headrace doctor`: what this machine has, and what is missing for which extra."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path

import jax
import psutil

from headrace.cli.options import Doctor
from headrace.extras import installing
from headrace.machine import Machine, free_memory, gib
from headrace.run.directory import MEMBERS, RunConfig, find_run
from headrace.version import __version__

CORE = ("jax", "equinox", "optax", "gymnasium", "numpy", "safetensors", "tensorboardX")

EXTRAS: dict[str, tuple[str, ...]] = {
    "mujoco": ("mujoco", "imageio"),
    "video": ("imageio_ffmpeg",),
    "envpool": ("envpool",),
    "atari": ("ale_py", "cv2"),
    "jaxenvs": ("gymnax", "brax"),
    "marl": ("pettingzoo", "mpe2"),
    "export": ("jax2onnx", "onnx", "onnxruntime"),
    "track": ("wandb",),
    "optuna": ("optuna",),
    "plot": ("matplotlib",),
}


def doctor(asked: Doctor) -> int:
    """Print what was found; nothing is changed."""
    if asked.run is not None:
        return _members(asked.run)
    machine = Machine.detect()
    sources = importlib.metadata.packages_distributions()  # of modules: cv2 came with opencv-python-headless
    rows = {
        "headrace": __version__,
        "python": f"{platform.python_version()} on {platform.platform()}",
        "cores": f"{machine.cores} usable of {os.cpu_count()}",
        "memory": f"{gib(machine.memory)}, {gib(free_memory())} free",
        "shared memory": _shared(),
        "disk": f"{gib(shutil.disk_usage('.').free)} free here",
        "devices": f"{', '.join(machine.devices)} ({jax.default_backend()})",
        "rendering": os.environ.get("MUJOCO_GL") or "MUJOCO_GL is not set; headless MuJoCo needs egl or osmesa",
        **{name: importlib.metadata.version(name) for name in CORE},
        **{f"[{extra}]": _extra(extra, packages, sources) for extra, packages in EXTRAS.items()},
    }
    width = max(map(len, rows))
    for name, said in rows.items():  # never wrapped: some of it is there to be copied
        print(f"{name:{width}}  {said}")
    return 0


def _members(run: str) -> int:
    """Which process of a run executes which nodes, beside what its plan says."""
    directory = find_run(run)
    RunConfig.read(directory)  # refused where it is not a run
    path = directory / MEMBERS
    if not path.exists():
        print(f"{directory} ran in one process: {', '.join(_planned(directory, None))}")
        return 0
    for member in json.loads(path.read_text()):
        planned = _planned(directory, member["fragment"])
        pid = int(member["pid"])
        lives = psutil.pid_exists(pid) and "headrace" in " ".join(psutil.Process(pid).cmdline())
        cores = ",".join(str(core) for core in member["cores"])
        print(f"{member['name']}  pid {pid} ({'running' if lives else 'ended'})  {member['device']}, cores {cores}")
        nodes = member["nodes"] or ["(has run nothing yet)"]
        print(f"  {member['fragment']}.{member['replica']}: {', '.join(nodes)}")
        if member["nodes"] and sorted(member["nodes"]) != sorted(planned):
            print(f"  not as drawn: the plan has {', '.join(planned)}")
    return 0


def _planned(directory: Path, fragment: str | None) -> list[str]:
    plan = json.loads((directory / "plan.json").read_text())
    return [
        node
        for one in plan["fragments"] + plan.get("services", [])
        if fragment in (None, one["id"])
        for node in one["nodes"]
    ]


def _extra(extra: str, packages: tuple[str, ...], sources: Mapping[str, list[str]]) -> str:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        return f"missing {', '.join(missing)}; {installing(extra)}"
    return ", ".join(f"{name} {importlib.metadata.version(sources[name][0])}" for name in packages)


def _shared() -> str:
    anonymous = "memfd" if hasattr(os, "memfd_create") else "no memfd"
    folder = Path("/dev/shm")
    return f"{anonymous}, /dev/shm {gib(shutil.disk_usage(folder).free)} free" if folder.exists() else anonymous
