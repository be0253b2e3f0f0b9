"""What was measured and why something was chosen, for a person, in 80 columns."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator

from headrace.tune.choice import Choice, listed, short
from headrace.tune.choice import fused as updates_fused
from headrace.tune.model import GRADIENTS, SAMPLER, TURNS, Costs, Load, Terms

WIDTH = 80

CROWDED = 0.9
"""Below this share of the cores a person is told that other programs have the rest."""


def tables(terms: Terms, costs: Costs) -> str:
    """Every measurement, as a rate."""
    where = f"on {terms.cores} cores" if terms.alone and terms.cores > 1 else "on one core"
    collecting = [["environments of a sampler", *map(str, costs.collect)]]
    collecting += [[f"steps/s {where}", *(short(envs * terms.steps / s) for envs, s in costs.collect.items())]]
    repeats = sorted({repeat for _, _, repeat, _ in costs.learn})
    fused, sizes = repeats != [1], {size for _, _, _, size in costs.learn}
    learning = [["updates fused" if fused else "", *(str(repeat) if fused else "" for repeat in repeats)]]
    for name, threads, size in sorted({(name, threads, size) for name, threads, _, size in costs.learn}):
        found = {k: costs.learn[name, threads, k, size] for k in repeats if (name, threads, k, size) in costs.learn}
        what = f"{'frames/s' if fused else 'steps/s'} {_called(name, terms)}, {threads} thread{'s' * (threads > 1)}"
        what += f", batch {size}" if len(sizes) > 1 else ""
        learning.append([what, *(short(k * size / found[k]) if k in found else "-" for k in repeats)])
    shown = collecting * bool(costs.collect), learning * bool(costs.learn)
    return "\n".join(line for rows in shown for line in _lines(rows) if line)


def _lines(rows: list[list[str]]) -> Iterator[str]:
    """A table as text: names to the left, numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([name.ljust(max(28, widths[0])), *cells]).rstrip()


def sentence(choice: Choice, terms: Terms, load: Load, given: float = 1.0) -> str:
    """The choice, what is expected of it, and what limits it; `given` is what other programs leave of the cores."""
    envs = f"{choice.envs} environment{'s' * (choice.envs > 1)}"
    if terms.alone:
        words = [envs]
    else:
        many = choice.replicas > 1
        cores = itertools.chain.from_iterable(terms.homes(terms.collector, choice))
        words = [f"{choice.replicas} sampler{'s' * many} with {envs}{' each' * many} on {listed(cores)}"]
        words += [f"{_called(part.id, terms)} on {listed(choice.cores[part.id])}" for part in terms.learners]
    if choice.fused:
        words += [updates_fused(choice.repeat)]
        words += [f"batch {choice.batch_size}"] if choice.batch_size is not None else []
    expected = f"{short(choice.expected or 0)} {choice.unit} expected"
    if given < CROWDED:
        expected += f" beside other programs, which leave {given:.0%} of the cores"
    said = f"chosen: {', '.join(words)}: {expected}; {limit(terms, load)}."
    return textwrap.fill(said, WIDTH)


def limit(terms: Terms, load: Load) -> str:
    """What everything waits for."""
    parts = load.on[load.busiest]
    if load.busiest == TURNS:
        collecting, gradients = (parts.get(what, 0.0) / sum(parts.values()) for what in (SAMPLER, GRADIENTS))
        exchange = f", exchanging gradients {gradients:.0%}" if gradients else ""
        return f"collecting takes {collecting:.0%} of the time, learning {1 - collecting - gradients:.0%}{exchange}"
    names = [_called(name, terms) for name in sorted(parts, key=lambda name: -parts[name])]
    if len(names) == 1:
        return f"the {names[0]} is the bottleneck"
    return f"{load.busiest}, shared by {' and '.join(names)}, is the bottleneck"


def _called(name: str, terms: Terms) -> str:
    return "learner" if name != SAMPLER and len(terms.learners) == 1 else name
