"""The labels of a plan, the same in text and drawing."""

from __future__ import annotations

import jax
from jax.tree_util import keystr

from headrace.graph.ir import Edge, Node
from headrace.graph.plan import Fragment

SHORT = (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"))


def shape_words(edge: Edge, most: int = 4) -> list[str]:
    """The arrays of an edge as `obs f32[8,17]`, at most `most`; those of a cell without their names."""
    leaves = jax.tree_util.tree_leaves_with_path(edge.struct)
    names = ["" if edge.kind == "cell" else keystr(path, simple=True, separator=".") for path, _ in leaves]
    words = [f"{name} {_array(leaf)}".strip() for name, (_, leaf) in zip(names, leaves, strict=True)]
    return words[:most] + ([f"… {len(words) - most} more"] if len(words) > most else [])


def often_words(node: Node) -> str:
    """How often a node runs, unless it is once in every pass."""
    return " ".join([f"x{node.times}"] * (node.times > 1) + [f"every {node.every}"] * (node.every > 1))


def place_words(fragment: Fragment, separator: str) -> str:
    """Where a fragment runs, how many passes are fused, and whether replicas were merged."""
    fused = [f"{fragment.repeat} passes fused"] if fragment.repeat > 1 else []
    fewer = [asked_words(fragment)] if fragment.asked else []
    return separator.join([fragment.place, fragment.device, *fused, *fewer])


def asked_words(fragment: Fragment) -> str:
    """That replicas which would have shared cores were merged."""
    return f"asked for {fragment.asked}, fused into {fragment.replicas}"


def _array(leaf: jax.ShapeDtypeStruct) -> str:
    name = str(leaf.dtype)
    long, short = next((pair for pair in SHORT if name.startswith(pair[0])), ("", ""))
    return f"{short}{name.removeprefix(long)}[{','.join(map(str, leaf.shape))}]"
