"""Stores between collecting and learning. A kind of store is one file, and one line here."""

from headrace.stores import replay, rollout
from headrace.stores.base import Draw, Fill, Leaves, Store, StoreKind

KINDS: tuple[StoreKind, ...] = (replay.KIND, rollout.KIND)

__all__ = ["KINDS", "Draw", "Fill", "Leaves", "Store", "StoreKind"]
