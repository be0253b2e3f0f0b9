"""Results of the evaluator and the viewer in the memory of a run."""

from __future__ import annotations

import jax
import numpy as np

from headrace.compile.cells import CellLayout
from headrace.graph import Graph
from headrace.shm.latest import Latest
from headrace.shm.memory import Arena

FRAME = (480, 640, 3)
"""Size of the image buffer; larger images are scaled down."""


class Results:
    """The newest score and image."""

    def __init__(self, arena: Arena, graph: Graph, layout: CellLayout, episodes: int):
        self.played = [i for bound in graph.play.reads for i in layout.modules[bound.cell]]
        """Indices of the arrays that `play` reads."""
        counts = jax.ShapeDtypeStruct((2,), np.int64)
        table = jax.ShapeDtypeStruct((3, episodes), np.float64)
        self.score = Latest(arena, [table, counts, *(layout.structs[i] for i in self.played)])
        """The newest evaluation: returns, lengths, successes (NaN where not reported); version and environment steps;
        the actor that played."""
        self.frame = Latest(arena, [jax.ShapeDtypeStruct(FRAME, np.uint8), jax.ShapeDtypeStruct((5,), np.float64)])
        """The newest picture: pixels; height, width, episode, step, return so far."""
