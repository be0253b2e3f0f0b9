"""A process that measures, on the cores and with the threads of the run to come.

Each measurement is one line of JSON, so whoever started the process may end it at any moment and use what is there. It
goes on measuring until then: what runs beside it is to be measured beside a busy neighbour.
"""

from __future__ import annotations

import json
import os
import signal
import traceback
from dataclasses import asdict, dataclass
from typing import Any, Literal

import jax.numpy as jnp

from headrace.compile.cells import CellLayout, make_cells
from headrace.compile.programs import Programs
from headrace.core.algorithm import Algorithm
from headrace.envs import Recipe, describe_env
from headrace.errors import HeadraceError, sentence
from headrace.graph import Graph, trace
from headrace.machine import compute_at_once, keep_compiled
from headrace.runtimes.boot import end
from headrace.runtimes.places import jax_device
from headrace.settings.objects import load_object
from headrace.settings.values import from_json, override

TASK = "HEADRACE_PROBE"

ROUNDS = 2
"""How often everything is measured before it will do: a neighbour's burst spoils one measurement, not two."""


@dataclass(frozen=True)
class Task:
    """What a process is to measure."""

    role: Literal["collect", "learn"]
    threads: int
    algorithm: str
    settings: dict[str, Any]
    env: dict[str, Any]
    """A `Recipe` as JSON."""
    fragments: list[dict[str, Any]]
    """Whose programs: the collector's, or every learner's."""
    parent: int
    cores: tuple[int, ...] = ()
    """Where, by their order."""
    sizes: tuple[int, ...] = ()
    """Environments of a sampler, to be tried in this order."""
    usual: int = 1
    """Numbers of environments above this are tried only while they gain."""
    programs: tuple[tuple[int, int], ...] = ()
    """Passes fused and batch size of each learning program: the usual one first."""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Task:
        return Task(**json.loads(text))


def main() -> int:
    """Measure until killed. What others print, environments among them, goes to the standard error."""
    # Imported here: they need what is defined above.
    from headrace.tune import collecting, learning

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to decide
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    task = Task.from_json(os.environ.pop(TASK))

    def tell(**values: Any) -> None:
        if os.getppid() != task.parent:
            os._exit(1)  # it is gone, and the kernel did not see to it
        print(json.dumps(values), file=lines, flush=True)

    try:
        compute_at_once()
        keep_compiled()
        roles = {"collect": collecting.collect, "learn": learning.learn}
        roles[task.role](task, tell)
    except HeadraceError as error:
        end(1, str(error))
    except Exception as error:  # noqa: BLE001 - its last line is what a person is shown
        traceback.print_exc()
        end(1, sentence(error))
    return 1


def prepare(task: Task, **settings: Any) -> tuple[Graph, Programs, list[Any]]:
    """The graph, its programs and the cells at the start, as a worker of the run has them."""
    kind: type[Algorithm[Any]] = load_object(task.algorithm)
    algorithm = kind(override(from_json(kind.config_type, task.settings), settings))
    graph = trace(algorithm, describe_env(Recipe.from_json(task.env), algorithm.config.num_envs))
    cells = make_cells(algorithm, graph, 0)
    cell_layout = CellLayout(cells)
    return graph, Programs(graph, cell_layout), [jnp.array(leaf) for leaf in cell_layout.flat(cells)]


def device(task: Task, fragment: dict[str, Any]) -> Any:
    """The JAX device of a fragment."""
    return jax_device(fragment["device"], [other["device"] for other in task.fragments])
