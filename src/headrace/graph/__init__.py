"""The graph of a loop, and the passes that turn it into a plan."""

from headrace.core.symbols import show
from headrace.graph.ir import Edge, Graph, Node
from headrace.graph.plan import Cut, Fragment, Plan, cut, fuse, with_computed, with_staleness
from headrace.graph.trace import trace
from headrace.graph.verify import verify

__all__ = [
    "Cut",
    "Edge",
    "Fragment",
    "Graph",
    "Node",
    "Plan",
    "cut",
    "fuse",
    "show",
    "trace",
    "verify",
    "with_computed",
    "with_staleness",
]
