"""What this machine has: cores, memory, devices."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import psutil

from headrace.errors import CapacityError

COMPILED_KEPT = 500
"""Compiled programs kept on disk."""


@dataclass(frozen=True)
class Machine:
    """What a distribution policy may count on."""

    cores: int
    memory: int
    """Bytes of memory in all."""
    devices: tuple[str, ...]
    """JAX devices, as `platform:index`, the processor's after all others."""

    @property
    def host(self) -> str:
        """The device that is the processor itself."""
        return next((device for device in self.devices if device.startswith("cpu:")), self.devices[0])

    @staticmethod
    def detect() -> Machine:
        """This machine, as far as this process may use it."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        # Listing devices opens them; their memory is left to the processes that compute there.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        found = dict.fromkeys([*jax.devices(), *jax.devices("cpu")])
        devices = tuple(f"{_platform(device)}:{device.id}" for device in found)
        return Machine(cores, min(psutil.virtual_memory().total, _limit()), devices)


def _platform(device: Any) -> str:
    """cpu, cuda, rocm or tpu: JAX calls two of these gpu."""
    version = device.client.platform_version.lower()
    return next((kind for kind in ("cuda", "rocm") if device.platform == "gpu" and kind in version), device.platform)


def free_memory() -> int:
    """Bytes that can be allocated now, within the limit of the container, if there is one."""
    return int(min(psutil.virtual_memory().available, _limit() - psutil.Process().memory_info().rss))


def require_memory(what: str, needed: int, remedy: str) -> None:
    """Refuse an allocation that would not fit, before anything is allocated."""
    free = free_memory()
    if needed > 0.9 * free:
        raise CapacityError(f"{what} needs {gib(needed)}, but {gib(free)} is free; {remedy}.")


def gib(number: float) -> str:
    """Bytes as readable text."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.3g} {unit}" if number < 1000 and unit != "B" else f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.4g} TiB"


def keep_compiled() -> None:
    """Cache compiled XLA programs on disk for later runs, unless the user chose a folder for them.

    Compiled code depends on the processor, so a home directory shared by several machines has a folder for each kind.
    """
    if os.environ.get("JAX_COMPILATION_CACHE_DIR") or jax.config.values.get("jax_compilation_cache_dir"):
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kind = hashlib.sha256(processor().encode()).hexdigest()[:12]
    folder = home / "headrace" / f"xla-{jax.__version__}-{kind}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in files[COMPILED_KEPT:]:
            old.unlink(missing_ok=True)
    except OSError:
        return  # without a cache the next start takes a few seconds longer
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def compute_at_once() -> None:
    """Run CPU computations in the calling thread, in processes that belong to headrace.

    Handing it to another thread and back costs a sampler a quarter of its acting (80 us become 105 for 8 environments),
    and more where its core is shared. To be called before JAX is first used.
    """
    jax.config.update("jax_cpu_enable_async_dispatch", False)


def processor() -> str:
    """What kind of processor this is: compiled code and measurements hold for one kind."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else [platform.processor()]
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags"))})) or platform.machine()


def _limit() -> int:
    """The container's limit on memory, or no limit."""
    path = Path("/sys/fs/cgroup/memory.max")
    text = path.read_text().strip() if path.exists() else "max"
    return int(text) if text.isdigit() else 1 << 62
