"""The interface of fabrics, which open both ends of every cut between fragments and keep the ledger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from headrace.fabric.ledger import Ledger
from headrace.graph.sections import Section, Sections, Stream
from headrace.stores import Store


class Fabric(ABC):
    """The ends of every cut, as one process sees them."""

    sections: Sections
    ledger: Ledger
    published: dict[Section, list[int]]
    """Of each learning section: indices, among the arrays of all cells, of those that other sections read."""
    owned: dict[Section, list[int]]
    """Of each learning section: indices of all arrays of the cells that it writes."""

    @abstractmethod
    def sender(self, stream: Stream, replica: int, group: int = 0) -> Any:
        """The sending end of a stream for a replica: `free(pass)`, `send(pass, step, leaves)`."""

    @abstractmethod
    def receiver(self, stream: Stream, replica: int, group: int = 0) -> Any:
        """The receiving end of a stream for a replica: `ready(pass, step)`, `take(pass)`, `release(pass)`."""

    @abstractmethod
    def store(self, name: str, replica: int) -> Store:
        """A store of the loop; in a data-parallel loop, the replica's own."""

    @abstractmethod
    def weights(self, section: Section) -> Any:
        """The newest version of the cells of a section that others read: `publish`, `read`, `version`."""

    @abstractmethod
    def state(self, section: Section) -> Any:
        """The last saved state of a section, optimisers included: for a successor of its process."""

    @abstractmethod
    def gradients(self, replica: int) -> Any:
        """The queue of gradients from a loop to the fragment that applies them."""

    @abstractmethod
    def scratch(self, section: Section, replica: int, group: int) -> Any:
        """Progress of environments whose steps are streamed to others, for a successor; None where none are."""

    @abstractmethod
    def carried(self) -> dict[str, int]:
        """Bytes sent so far, by what was sent."""
