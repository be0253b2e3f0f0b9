"""Every algorithm under every policy in every runtime: what runs, what is refused and why. Written to docs.

python tests/conformance/matrix.py > docs/conformance.md
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import headrace
from headrace.algorithms import ALGORITHMS
from headrace.core.algorithm import Algorithm
from headrace.errors import HeadraceError
from headrace.graph import Plan
from headrace.policies import POLICIES
from headrace.runtimes import Options, Runtime, inline
from headrace.runtimes.processes import Processes

RUNTIMES = ("inline", "processes")
ROLLOUT = {"num_envs": 4, "horizon": 8, "hidden": (16,)}
REPLAY = {"num_envs": 4, "warmup": 64, "batch_size": 32, "hidden": (16,), "replay_capacity": 500}
SPREAD = "pettingzoo:mpe2.simple_spread_v3"
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "ppo": (ROLLOUT | {"minibatch_size": 16, "epochs": 2}, "CartPole-v1"),
    "a3c": (ROLLOUT, "CartPole-v1"),
    "impala": (ROLLOUT, "CartPole-v1"),
    "mappo": (ROLLOUT | {"minibatch_size": 16, "epochs": 2, "share_parameters": False}, SPREAD),
    "dqn": (REPLAY, "CartPole-v1"),
    "sac": (REPLAY, "Pendulum-v1"),
    "td3": (REPLAY, "Pendulum-v1"),
}
PURE = {"CartPole-v1": "gymnax:CartPole-v1", "Pendulum-v1": "gymnax:Pendulum-v1"}
"""What `device_only` is tried with."""

LEARNED = 4
"""Learning passes that each is given, at least."""


def case(name: str, policy: str) -> tuple[Algorithm[Any], str]:
    settings, env = CASES[name]
    return ALGORITHMS[name](**settings), PURE.get(env, env) if policy == "device_only" else env


def placed(name: str, policy: str, staleness: int | None = None, replicas: int | None = None) -> Plan:
    algorithm, env = case(name, policy)
    return headrace.plan(algorithm, env, policy, replicas=replicas, staleness=staleness)


def runs(name: str, policy: str, runtime: str) -> str:
    """`runs`, or the sentence with which it is refused before anything is started."""
    try:
        plan = placed(name, policy)
        learned(name, plan, policy, runtime)
    except HeadraceError as error:
        return str(error)
    return "runs"


def learned(name: str, plan: Plan, policy: str, runtime: str, passes: int = LEARNED) -> tuple[int, list[np.ndarray]]:
    """The cells after at least so many learning passes, and how many there were."""
    algorithm, env = case(name, policy)
    steps = None
    if runtime == "processes":
        steps = steps_for(plan, passes)
    running = make(plan, algorithm, env, runtime, steps)
    try:
        go(running, passes, steps)
        return running.progress.learned, arrays(running)
    finally:
        running.close()


def make(plan: Plan, algorithm: Algorithm[Any], env: str, runtime: str, steps: int | None) -> Runtime:
    if runtime == "inline":
        return inline(plan, algorithm, env, 3)
    return Processes(plan, algorithm, env, 3, Options(evaluate=False, steps=steps, hang_seconds=600))


def steps_for(plan: Plan, passes: int) -> int:
    """Environment steps after which so many learning passes have run."""
    graph, shares = plan.graph, plan.shares
    domain = graph.domains[0]
    if not domain.fused:
        return passes * graph.collected
    how = domain.draws[0]
    needed = passes * how.size / how.per_insert * max(1, shares)
    rounds = -(-(how.after + needed + how.size * shares) // graph.collected)
    return int(rounds) * graph.collected


def go(running: Runtime, passes: int, steps: int | None) -> None:
    """In processes all that is collected is learned from before it is looked at, so that it is always the same."""
    end = time.monotonic() + 600
    while running.progress.learned < passes or (steps is not None and running.progress.env_steps < steps):
        assert time.monotonic() < end, running.progress
        running.advance()
    if steps is not None:
        running._finish()  # type: ignore[attr-defined]


def arrays(running: Runtime) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(running.cells()) if isinstance(leaf, jax.Array)]


def lines_changed() -> str:
    """What the algorithm files add up to: the same for every cell, because there is one checkout."""
    folder = Path(headrace.__file__).parent / "algorithms"
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py"))))
    return digest.hexdigest()[:12]


class Elsewhere:
    """A process that computes the cells of the inline runtime on two devices, as processes that have one core each do.

    XLA's products are not the same to the bit with one thread and with several, nor for two replicas in one batch and
    on a device each. Both sides are compiled alike: with an operation at a time, as tests have it, the bits are others.
    """

    def __init__(self, folder: Path):
        self.out = folder / "cells.npz"
        flags = compiled_as_for_users() + " --xla_cpu_multi_thread_eigen=false"
        path = os.pathsep.join([str(Path(headrace.__file__).parents[1]), str(Path(__file__).parent)])
        self.process = subprocess.Popen(
            [sys.executable, "-c", "import matrix; matrix.serve()"],
            env=os.environ | {"XLA_FLAGS": f"{flags} --xla_force_host_platform_device_count=2", "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def cells(self, name: str, policy: str, passes: int) -> list[np.ndarray]:
        """The cells after so many learning passes."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, policy, passes, str(self.out)]) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "saved\n"
        with np.load(self.out) as held:
            return [held[f"arr_{i}"] for i in range(len(held.files))]

    def close(self) -> None:
        self.process.communicate()


def compiled_as_for_users() -> str:
    """XLA's flags; with HEADRACE_LONG=1 without the one by which tests have it compile an operation at a time."""
    flags = os.environ.get("XLA_FLAGS", "")
    return flags.replace("--xla_cpu_use_fusion_emitters=false", "") if os.environ.get("HEADRACE_LONG") == "1" else flags


def serve() -> None:
    """Compute what is asked for, a line each: one process for all, which imports and traces once."""
    importlib.import_module("headrace.graph.trace")._traced = {}
    for line in sys.stdin:
        name, policy, passes, out = json.loads(line)
        number, found = learned(name, placed(name, policy, staleness=0), policy, "inline", passes)
        assert number == passes
        np.savez(out, *found)
        print("saved", flush=True)


def table() -> str:
    before = lines_changed()
    lines = [
        "# Every algorithm under every policy",
        "",
        "Written by `python tests/conformance/matrix.py`, which runs each pair inline and in real processes.",
        "`make test` plans all of them, runs a part and compares with this table; `HEADRACE_LONG=1` runs all.",
        "One checkout ran all of it, so",
        "**0 lines of any algorithm were changed** to place it.",
        "",
        "| algorithm | " + " | ".join(f"`{policy}`" for policy in POLICIES) + " |",
        "|---|" + "---|" * len(POLICIES),
    ]
    reasons: dict[str, str] = {}
    for name in CASES:
        cells = []
        for policy in POLICIES:
            found = {runtime: runs(name, policy, runtime) for runtime in RUNTIMES}
            print(name, policy, found, file=sys.stderr, flush=True)
            cells.append(", ".join(mark(found[runtime], runtime, name, policy, reasons) for runtime in RUNTIMES))
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    assert lines_changed() == before
    lines += ["", "i: inline, p: processes. Refused, with the reason that a user reads (exit code 2):", ""]
    return "\n".join([*lines, *(f"{number}. {reason}" for reason, number in reasons.items())])


def mark(found: str, runtime: str, name: str, policy: str, reasons: dict[str, str]) -> str:
    if found == "runs":
        return runtime[0]
    number = reasons.setdefault(found, str(len(reasons) + 1))
    return f"({number})"


if __name__ == "__main__":
    print(table())
