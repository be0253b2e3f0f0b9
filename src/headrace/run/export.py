"""Exports the actor as ONNX, or as StableHLO serialised by JAX.

Inputs and outputs are in the environment's own spaces: normaliser and bounds are part of the model. The batch size is
open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import DictKey

from headrace.compile.rng import PassRng
from headrace.core.cells import Cell
from headrace.errors import UsageError, sentence
from headrace.extras import needed
from headrace.files import write_whole
from headrace.graph import Graph
from headrace.services.evaluate import Player
from headrace.types import Dict, Discrete, MultiDiscrete, Space, from_native_obs, native_action, native_obs
from headrace.version import __version__

FORMATS = ("onnx", "stablehlo")

OPSET = 18
"""Of ONNX: old enough for runtimes of 2023, new enough for everything an actor computes."""

PLATFORMS = ("cpu", "cuda", "rocm", "tpu")

TRIED = 16
"""Observations on which an exported actor is compared with the original before it is written."""

TOLERANCE = 1e-4


def export_actor(graph: Graph, cells: Mapping[str, Cell], file: Path, form: str | None = None) -> None:
    """Write the actor that these cells make; refuses with a sentence, and writes nothing, what cannot be exported."""
    form = form or file.suffix.removeprefix(".")
    if form not in FORMATS:
        raise UsageError(f"an actor is exported as {' or '.join(FORMATS)}, got '{form}'.")
    if not file.parent.is_dir():
        raise UsageError(f"the folder '{file.parent}' is not there; make it, or choose another file.")
    random = [node.id for node in graph.play.nodes if node.function.signature.wants_key]
    if random:
        raise UsageError(
            f"stage '{random[0]}' plays with a random key; what is exported has none: let play take no key."
        )
    player = Player(graph, cells)
    inputs, play = _inputs(graph), _function(graph, player)
    data, exported = (_onnx if form == "onnx" else _stablehlo)(graph, play, inputs)
    _compare(exported, play, graph.spec.observation, form)
    try:
        write_whole(file, data)
    except OSError as error:
        raise UsageError(f"'{file}' cannot be written ({error.strerror}); choose another file.") from None


def _inputs(graph: Graph) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes of one observation, by the names of its parts."""
    leaves = jax.tree_util.tree_leaves_with_path(native_obs(graph.spec.observation))
    return {
        ".".join(key.key for key in path if isinstance(key, DictKey)) or "observation": leaf for path, leaf in leaves
    }


def _function(graph: Graph, player: Player) -> Callable[..., Any]:
    """`play(part, ...)`: from the parts of a batch of observations to actions as the environment takes them."""
    read = player.programs.reader(player.play.nodes, player.play.action)
    rng = PassRng(jnp.asarray(player.bases), jnp.uint32(0))
    seen = graph.spec.observation
    whole = jax.tree.structure(native_obs(seen))

    def play(*parts: Any) -> Any:
        obs = jax.tree.leaves(from_native_obs(seen, jax.tree.unflatten(whole, parts)))
        return native_action(graph.spec.action, read(player.modules, {"env.observe": obs}, rng), jnp)

    return play


Exported = tuple[bytes, Callable[..., Any]]
"""A file's content, and a function that runs it."""


def _onnx(graph: Graph, play: Callable[..., Any], inputs: dict[str, jax.ShapeDtypeStruct]) -> Exported:
    jax2onnx, onnxruntime = (needed(package, "export", "exporting") for package in ("jax2onnx", "onnxruntime"))
    batches = [jax.ShapeDtypeStruct(("batch", *leaf.shape), leaf.dtype) for leaf in inputs.values()]
    logging.getLogger("onnx_ir").setLevel(logging.ERROR)  # it warns about intended omissions
    try:
        model = jax2onnx.to_onnx(
            play, batches, model_name="actor", opset=OPSET, input_names=list(inputs), output_names=["action"]
        )
        model.producer_name, model.producer_version = "headrace", __version__
        model.doc_string = f"plays {graph.spec.id} without exploring; actions as the environment takes them"
        data = model.SerializeToString()
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    except Exception as error:  # a converter may raise anything on operations it does not support
        raise UsageError(
            f"this actor cannot be exported as onnx ({sentence(error)}); try --format stablehlo."
        ) from error
    return data, lambda *parts: session.run(["action"], dict(zip(inputs, parts, strict=True)))[0]


def _stablehlo(graph: Graph, play: Callable[..., Any], inputs: dict[str, jax.ShapeDtypeStruct]) -> Exported:
    needed("flatbuffers", "export", "exporting")  # in which JAX writes it
    from jax import export

    (batch,) = export.symbolic_shape("batch")
    arguments = [jax.ShapeDtypeStruct((batch, *leaf.shape), leaf.dtype) for leaf in inputs.values()]
    try:
        data = bytes(export.export(jax.jit(play), platforms=PLATFORMS)(*arguments).serialize())
    except Exception as error:
        raise UsageError(f"this actor cannot be exported as stablehlo: {sentence(error)}.") from error
    return data, export.deserialize(bytearray(data)).call


def _compare(exported: Callable[..., Any], play: Callable[..., Any], seen: Space, form: str) -> None:
    """Refuse an export whose actions differ from the original's: converters may have bugs."""
    parts = jax.tree.leaves(_sample(np.random.default_rng(0), seen))
    for count in (1, TRIED):
        some = [part[:count] for part in parts]
        theirs, ours = np.asarray(exported(*some)), np.asarray(play(*some))
        if theirs.shape != ours.shape:
            raise UsageError(f"the {form} actor gives {theirs.shape}, the original {ours.shape}: it is not written.")
        apart = np.abs(theirs.astype(float) - ours) > TOLERANCE * np.maximum(1.0, np.abs(ours))
        if np.mean(apart) > 0.1:  # of discrete actions one may be so close that rounding decides
            raise UsageError(f"the {form} actor does not play as the original does; it is not written.")


def _sample(draw: np.random.Generator, space: Space) -> Any:
    leaf = native_obs(space)
    match space:
        case Dict(items):
            return {name: _sample(draw, part) for name, part in items}
        case Discrete(n, start):
            return (start + draw.integers(0, n, TRIED)).astype(np.int32)
        case MultiDiscrete(counts, start):
            chosen = np.asarray(start or 0) + draw.integers(0, counts, (TRIED, len(counts)))
            return chosen.astype(np.int32).reshape(TRIED, *leaf.shape)
    shape = (TRIED, *leaf.shape)
    if np.issubdtype(leaf.dtype, np.floating):
        return draw.normal(size=shape).astype(leaf.dtype)
    most = 256 if leaf.dtype == np.uint8 else 2
    return np.ones(shape, leaf.dtype) if leaf.dtype == bool else draw.integers(0, most, shape).astype(leaf.dtype)
