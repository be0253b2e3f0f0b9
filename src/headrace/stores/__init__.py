"""What stands between collecting and learning. A kind of store is one file, and one line here."""

from headrace.stores import replay, rollout
from headrace.stores.base import Draw, Fill, Kind, Leaves, Store

KINDS: tuple[Kind, ...] = (replay.KIND, rollout.KIND)

__all__ = ["KINDS", "Draw", "Fill", "Kind", "Leaves", "Store"]
