"""Measuring in one run: A/B/B/A, medians, nothing else running."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path


def confine(cores: int) -> None:
    """Keep this process and XLA's threads to some cores; call it before JAX is imported."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:cores]))
    if cores == 1:
        os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_multi_thread_eigen=false"
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(cores)


def speed_ratio(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> float:
    """How much faster ours is: the median over rounds, in each of which both ran, A/B then B/A."""
    taken = in_turn({"ours": ours, "theirs": theirs}, rounds)
    return statistics.median(b / a for a, b in zip(taken["ours"], taken["theirs"], strict=True))


def interleaved(parts: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each part, run in turn, forwards and backwards."""
    return {name: statistics.median(times) for name, times in in_turn(parts, rounds).items()}


def in_turn(parts: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """The seconds of each part in each round."""
    taken: dict[str, list[float]] = {name: [] for name in parts}
    for name in parts:
        parts[name]()
    for i in range(rounds):
        for name in list(parts) if i % 2 == 0 else reversed(list(parts)):
            began = time.perf_counter()
            parts[name]()
            taken[name].append(time.perf_counter() - began)
    return taken


def report(name: str, figures: dict[str, object]) -> None:
    """Print figures, and keep them in bench/results with the day and the machine."""
    for what, value in figures.items():
        print(f"{what:>42}  {value:.3f}" if isinstance(value, float) else f"{what:>42}  {value}")
    record = {"day": time.strftime("%Y-%m-%d"), "machine": machine(), **figures}
    path = Path(__file__).parent / "results" / f"{name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")


def machine() -> str:
    model = next((line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "")
    return f"{model.partition(':')[2].strip()}, {os.cpu_count()} cores, {platform.system()}"
