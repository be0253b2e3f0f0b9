"""Tests share what XLA compiles, within a run and with the next."""

from __future__ import annotations

import gc
import importlib
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "xla"))
os.environ.setdefault("HEADRACE_NO_TUNE", "1")  # tests/tune asks for it; elsewhere it would only take time
# All of it: hundreds of small operations that are compiled one by one are the same in every process of every test.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# Most of the time goes into compiling small programs that run a few times; this takes more than half of it away.
FLAGS = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()

# What JAX keeps is looked through again and again, for next to nothing: a twentieth of the time.
gc.set_threshold(100_000, 50, 100)

# Ctrl-C means what it does in a terminal, also where these run in the background of a shell, which has it ignored.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is not a mistake: no example has a time limit.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

LONGEST = (
    "test_conformance",
    "test_faults",
    "test_random_plans",
    "test_faulty_commands",
    "test_learning",
    "test_two_stores_resumed",
    "test_random_processes",
    "test_two_stores",
    "test_pace",
    "test_examples",
    "test_learning_from_pixels",
    "test_mappo",
    "test_resume",
    "test_tune",
    "test_actor",
    "test_export",
    "test_a3c",
)
"""Begun first, so that at the end no process waits for another one's long file."""


def pytest_collection_modifyitems(items: list) -> None:
    order = {name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))


@pytest.fixture(autouse=True, scope="session")
def _graphs_stay() -> None:
    """Equal graphs are traced and compiled once, also where nobody has them any more: a third of the time."""
    importlib.import_module("headrace.graph.trace")._traced = {}
