"""What this machine has: cores, memory, devices."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import jax
import psutil

from headrace.errors import CapacityError


@dataclass(frozen=True)
class Machine:
    """What a distribution policy may count on."""

    cores: int
    memory: int
    """Bytes of memory in all."""
    devices: tuple[str, ...]
    """JAX devices, as `platform:index`."""

    @staticmethod
    def detect() -> Machine:
        """This machine, as far as this process may use it."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        devices = tuple(f"{device.platform}:{device.id}" for device in jax.devices())
        return Machine(cores, min(psutil.virtual_memory().total, _limit()), devices)


def free_memory() -> int:
    """Bytes that can be had now, within the limit of the container, if there is one."""
    return int(min(psutil.virtual_memory().available, _limit() - psutil.Process().memory_info().rss))


def require_memory(what: str, needed: int, remedy: str) -> None:
    """Refuse an allocation that would not fit, before anything is allocated."""
    free = free_memory()
    if needed > 0.9 * free:
        raise CapacityError(f"{what} needs {gib(needed)}, but {gib(free)} is free; {remedy}.")


def gib(number: float) -> str:
    """Bytes for a person."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.3g} {unit}" if number < 1000 and unit != "B" else f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.4g} TiB"


def _limit() -> int:
    """The container's limit on memory, or no limit."""
    path = Path("/sys/fs/cgroup/memory.max")
    text = path.read_text().strip() if path.exists() else "max"
    return int(text) if text.isdigit() else 1 << 62
