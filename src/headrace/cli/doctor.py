"""`headrace doctor`: what this machine has, and what is missing for which extra."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
from pathlib import Path

import jax
from rich.console import Console
from rich.table import Table

from headrace.extras import installing
from headrace.machine import Machine, free_memory, gib
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


def doctor(options: argparse.Namespace) -> int:
    """Print what was found; nothing is changed."""
    machine = Machine.detect()
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2))
    table.add_row("headrace", __version__)
    table.add_row("python", f"{platform.python_version()} on {platform.platform()}")
    table.add_row("cores", f"{machine.cores} usable of {os.cpu_count()}")
    table.add_row("memory", f"{gib(machine.memory)}, {gib(free_memory())} free")
    table.add_row("shared memory", _shared())
    table.add_row("disk", f"{gib(shutil.disk_usage('.').free)} free here")
    table.add_row("devices", f"{', '.join(machine.devices)} ({jax.default_backend()})")
    table.add_row(
        "rendering", os.environ.get("MUJOCO_GL") or "MUJOCO_GL is not set; headless MuJoCo needs egl or osmesa"
    )
    for name in CORE:
        table.add_row(name, importlib.metadata.version(name))
    for extra, packages in EXTRAS.items():
        table.add_row(f"[{extra}]", _extra(extra, packages))
    Console(highlight=False, markup=False, soft_wrap=True).print(table)
    return 0


def _extra(extra: str, packages: tuple[str, ...]) -> str:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        return f"missing {', '.join(missing)}; {installing(extra)}"
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)


def _shared() -> str:
    anonymous = "memfd" if hasattr(os, "memfd_create") else "no memfd"
    folder = Path("/dev/shm")
    return f"{anonymous}, /dev/shm {gib(shutil.disk_usage(folder).free)} free" if folder.exists() else anonymous
