"""What to measure: tasks for the probes, from the plan that the policy makes by itself."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from headrace.core.algorithm import Algorithm
from headrace.envs import recipe_json
from headrace.errors import ConfigError
from headrace.graph import Plan
from headrace.graph.plan import FUSED_INSERTS
from headrace.settings.objects import object_path
from headrace.settings.values import to_json
from headrace.tune.choice import Choice
from headrace.tune.model import Terms
from headrace.tune.probe import ProbeTask
from headrace.tune.search import Freedom
from headrace.types import tree_bytes

GATHERED = 1 << 28
"""Bytes of the batches gathered for one program, at most: several such live at once."""

SIZES = (1, 2, 4, 8, 16, 32)
"""Environments of a sampler: beyond these acting is a small part of a step, and more gain little."""


def tasks(algorithm: Algorithm[Any], env: Any, plan: Plan, terms: Terms, freedom: Freedom) -> list[ProbeTask]:
    """What to measure: a sampler on the last core, and learners with few and with many threads on the others."""
    usual = Choice.of(plan)
    counts = range(1, terms.cores + 1) if freedom.replicas else (usual.replicas,)
    sizes = {usual.num_envs // n for n in counts if usual.num_envs % n == 0}
    everything = tuple(range(terms.cores))
    common: dict[str, Any] = {
        "algorithm": object_path(type(algorithm)),
        "settings": to_json(algorithm.config),
        "env": recipe_json(env),
        "spec": plan.graph.spec.to_json(),
        "parent": os.getpid(),
    }
    sampler = ProbeTask(
        "collect",
        threads=terms.cores if terms.alone else 1,
        cores=everything if terms.alone else everything[-1:],
        fragments=[asdict(plan.collector)],
        sizes=tuple(sorted({*sizes, *(SIZES if freedom.envs else ())})),
        usual=usual.envs if freedom.envs else usual.num_envs,
        **common,
    )
    made, taken = [sampler], 0
    programs = _programs(algorithm, plan, terms, usual)
    common |= {"fragments": [asdict(one) for one in plan.learners], "programs": programs}
    for threads in _threads(plan, terms):
        first = taken if taken + threads <= terms.cores else 0
        taken = first + threads
        made.append(ProbeTask("learn", threads, cores=everything[first:taken], **common))
    return made


def waves(tasks: Iterable[ProbeTask]) -> list[list[ProbeTask]]:
    """The tasks in as few groups as it takes for no two of a group to share a core."""
    groups: list[list[ProbeTask]] = []
    for task in tasks:
        free = (group for group in groups if not any(set(task.cores) & set(other.cores) for other in group))
        if (group := next(free, None)) is None:
            groups.append(group := [])
        group.append(task)
    return groups


def _threads(plan: Plan, terms: Terms) -> list[int]:
    """Numbers of threads to learn with: powers of two, and what the policy gives by itself."""
    if terms.alone:
        return [len(terms.homes(terms.collector, Choice.of(plan))[0])]
    if any(part.device for part in terms.learners):
        return [1]  # an accelerator needs one to feed it
    most = terms.cores if terms.turns else max(1, terms.cores - 1)
    given = {len(fragment.cores) for fragment in plan.learners if 0 < len(fragment.cores) <= most}
    return sorted({2**i for i in range(most.bit_length())} | given)


def _programs(algorithm: Algorithm[Any], plan: Plan, terms: Terms, usual: Choice) -> tuple[tuple[int, int], ...]:
    """Passes fused and batch sizes to measure: the usual ones first, then other sizes, then fewer and more passes."""
    graph = plan.graph
    if not graph.domains[0].fused:
        return ((1, terms.size),)
    row = sum(tree_bytes(store.row) for store in graph.stores.values())
    sizes = [terms.size]
    if getattr(algorithm.config, "tune_batch_size", False) and usual.batch_size == terms.size:
        sizes += [size for size in (2 * terms.size, 4 * terms.size) if _allowed(algorithm, size)]
    tried = {(repeat, size) for size in sizes for repeat in fusable(usual.repeat, size, terms.per_insert, row)}
    tried.add((usual.repeat, terms.size))

    def later(program: tuple[int, int]) -> tuple[bool, bool, int, int]:
        repeat, size = program
        return program != (usual.repeat, terms.size), repeat != usual.repeat, size, -repeat

    return tuple(sorted(tried, key=later))


def _allowed(algorithm: Algorithm[Any], batch_size: int) -> bool:
    try:
        type(algorithm)(algorithm.config, batch_size=batch_size)
    except ConfigError:
        return False
    return True


def fusable(usual: int, size: int, per_insert: float, row: int) -> list[int]:
    """Numbers of passes worth fusing, about the usual one.

    What is collected between two programs is bounded, so that acting does not lag, and so is the memory of the batches.
    `row` is the bytes of one transition.
    """
    tried = {max(1, usual // 2), usual, 2 * usual, 4 * usual}
    bounds = min(FUSED_INSERTS * per_insert, GATHERED / max(1, row))
    return sorted(repeat for repeat in tried if repeat * size <= bounds) or [1]
