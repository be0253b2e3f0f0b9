"""What the sections of one process share, above all the cells: its own, and the newest version of those of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax

from headrace.compile.programs import Programs
from headrace.fabric.base import Fabric
from headrace.graph.sections import Section
from headrace.shm.memory import fence
from headrace.types import Array


class Cells:
    """All arrays of all cells, flat."""

    def __init__(self, flat: Sequence[Array], readers: Iterable[CellReader] = ()):
        self.flat = list(flat)
        self.readers = list(readers)

    def refresh(self) -> bool:
        """Read what others have published since; returns whether there was anything."""
        if not self.readers:
            return False
        fence()  # after the counter that announced the data
        fresh = False
        for reader in self.readers:
            fresh |= reader.read(self.flat)
        return fresh

    @property
    def version(self) -> int:
        """The newest version read."""
        return max((reader.version for reader in self.readers), default=0)

    def lag(self) -> int:
        """Versions published since."""
        return max((reader.latest.version - reader.version for reader in self.readers), default=0)


class Workspace(NamedTuple):
    """What all sections of one process work with."""

    fabric: Fabric
    programs: Programs
    cells: Cells
    seed: int
    jit: Callable[..., Any] = jax.jit


class CellReader:
    """The newest version of the cells that one section writes."""

    def __init__(self, latest: Any, places: Sequence[int]):
        self.latest, self.places = latest, places
        self.version = 0

    def read(self, flat: list[Array]) -> bool:
        """Copy a newer version into `flat`; returns whether there was one."""
        if self.latest.version <= self.version or (newer := self.latest.read(newer_than=self.version)) is None:
            return False
        self.version, arrays = newer
        # Copied, because a learning program may donate the buffers it reads.
        for place, array in zip(self.places, jax.device_put(arrays, may_alias=False), strict=True):
            flat[place] = array
        return True


def readers(fabric: Fabric, cells: Iterable[str], but: str | None = None) -> list[CellReader]:
    """For each section that writes some of these cells, but for those of one fragment: its newest version."""
    wanted = set(cells)
    found: list[Section] = [
        section
        for section in fabric.sections.learning
        if section.fragment.id != but and wanted & set(section.written) and fabric.published[section]
    ]
    return [CellReader(fabric.weights(section), fabric.published[section]) for section in found]
