"""`headrace bench`: how fast each policy runs, row by row."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from headrace import api
from headrace.cli.options import Bench
from headrace.core.algorithm import Algorithm
from headrace.errors import ConfigError, HeadraceError
from headrace.policies import POLICIES
from headrace.tune.trial import try_out

WARM = 5.0
"""Seconds that a policy goes before it is measured, at most."""


def bench(algorithm: Algorithm[Any], env: Any, asked: Bench) -> bool:
    """Print a row for each policy as soon as it is measured; whether all were, before somebody interrupted."""
    if not asked.seconds > 0:
        raise ConfigError(f"--seconds must be above 0, got {asked.seconds}.")
    names = [asked.policy] if asked.policy else list(POLICIES)
    width = max(len(name) for name in ("policy", *names))
    head = True
    try:
        for i, name in enumerate(names):
            try:
                plan = api.plan(algorithm, env, name, staleness=asked.staleness, replicas=asked.replicas)
                with _status(f"{name} ({i + 1} of {len(names)})" if len(names) > 1 else name) as say:
                    speed = try_out(plan, algorithm, env, seconds=asked.seconds, warm=min(WARM, asked.seconds), say=say)
            except HeadraceError as error:
                if asked.policy:
                    raise
                row = ("-", "-", str(error))
            else:
                busy = ", ".join(f"{process} {share:.0%}" for process, share in speed.busy.items())
                row = (f"{speed.env_steps:,.0f}", f"{speed.update_frames:,.0f}", busy)
            if head:
                print(f"{'policy':<{width}}  {'env steps/s':>12}  {'update frames/s':>15}  share of a core")
                head = False
            print(f"{name:<{width}}  {row[0]:>12}  {row[1]:>15}  {row[2]}", flush=True)
    except KeyboardInterrupt:
        return False
    return True


@contextmanager
def _status(what: str) -> Iterator[Any]:
    """Say what is being done: beside a spinner in a terminal, in lines elsewhere."""
    console = Console(stderr=True, highlight=False, markup=False)
    if not console.is_terminal:
        yield lambda text: print(f"{what}: {text}", file=sys.stderr, flush=True)
        return
    with console.status(f"{what}: starting") as status:
        yield lambda text: status.update(f"{what}: {text}")
