"""What carries data between the fragments of a plan. A fabric opens the ends of every cut and keeps the ledger."""

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
    """Of each learning section: where the arrays stand, among those of all cells, that others read."""
    owned: dict[Section, list[int]]
    """Of each learning section: where all arrays of the cells stand that it writes."""

    @abstractmethod
    def sender(self, stream: Stream, replica: int, group: int = 0) -> Any:
        """Where a replica hands over what a node yields: `free(pass)`, `send(pass, step, leaves)`."""

    @abstractmethod
    def receiver(self, stream: Stream, replica: int, group: int = 0) -> Any:
        """Where a replica takes it: `ready(pass, step)`, `take(pass)`, `release(pass)`."""

    @abstractmethod
    def store(self, name: str, replica: int) -> Store:
        """A store of the loop; of one that is replicated as a whole, the replica's own."""

    @abstractmethod
    def weights(self, section: Section) -> Any:
        """What others read of the cells that a section writes, the newest version: `publish`, `read`, `version`."""

    @abstractmethod
    def state(self, section: Section) -> Any:
        """All that a section writes, its optimisers included, as it last kept it: for its successor."""

    @abstractmethod
    def gradients(self, replica: int) -> Any:
        """From a loop that sends its gradients, to the one place that applies them: a queue."""

    @abstractmethod
    def scratch(self, section: Section, replica: int, group: int) -> Any:
        """Where environments whose steps others see keep how far they are; None where nobody else does."""

    @abstractmethod
    def carried(self) -> dict[str, int]:
        """Bytes that have crossed so far, by what crosses."""
