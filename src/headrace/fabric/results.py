"""What services leave for others in the memory of a run."""

from __future__ import annotations

import jax
import numpy as np

from headrace.compile.cells import CellLayout
from headrace.graph import Graph
from headrace.shm.latest import Latest
from headrace.shm.memory import Arena

FRAME = (480, 640, 3)
"""Room for a picture; larger ones are made to fit."""


class Results:
    """What services have found last."""

    def __init__(self, arena: Arena, graph: Graph, layout: CellLayout, episodes: int):
        self.played = [i for bound in graph.play.reads for i in layout.modules[bound.cell]]
        """Where the arrays stand of what plays."""
        counts = jax.ShapeDtypeStruct((2,), np.int64)
        table = jax.ShapeDtypeStruct((3, episodes), np.float64)
        self.score = Latest(arena, [table, counts, *(layout.structs[i] for i in self.played)])
        """The newest evaluation: returns, lengths, successes (NaN where none is said); version and environment steps;
        the actor that played."""
        self.frame = Latest(arena, [jax.ShapeDtypeStruct(FRAME, np.uint8), jax.ShapeDtypeStruct((5,), np.float64)])
        """The newest picture: pixels; height, width, episode, step, return so far."""
