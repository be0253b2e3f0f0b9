"""Checkpoints: safetensors and a JSON manifest, written to a temporary folder, then renamed. Nothing is unpickled.

RUN/checkpoints/000000012288/manifest.json      counters, names, sizes and sums of the files
                            /state.safetensors  every array by name
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from headrace.errors import CheckpointError
from headrace.types import Tree

FORMAT = 1
KEPT = 2
"""Checkpoints of a run that are kept: the newest and one before it."""

ARRAYS = "state.safetensors"
MANIFEST = "manifest.json"
REMEDY = "remove that folder to use the one before it, or start a new run"


def save(folder: Path, arrays: Tree, values: dict[str, Any]) -> Path:
    """Write `folder` atomically; raises OSError if it cannot be written."""
    temporary = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        leaves = jax.tree_util.tree_leaves_with_path(arrays)
        save_file({jax.tree_util.keystr(path): _data(leaf) for path, leaf in leaves}, temporary / ARRAYS)
        files = {ARRAYS: {"bytes": (temporary / ARRAYS).stat().st_size, "sha256": _sum(temporary / ARRAYS)}}
        (temporary / MANIFEST).write_text(json.dumps({"format": FORMAT, "files": files, "values": values}, indent=2))
        for name in (ARRAYS, MANIFEST):
            _flush(temporary / name)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
        _flush(folder.parent)
    except BaseException as error:  # a full disk, or a second Ctrl-C
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, SafetensorError):  # its own error for one of the system
            raise OSError(str(error).rpartition("I/O error: ")[2]) from None
        raise
    return folder


def load(folder: Path, like: Tree, whole: bool = True) -> tuple[Tree, dict[str, Any]]:
    """The arrays, arranged as `like` is, and the plain values of a checkpoint; `whole` if `like` is all of it."""
    values = read_values(folder)
    found = load_file(folder / ARRAYS)
    leaves, tree = jax.tree_util.tree_flatten_with_path(like)
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    missing = [name for name in names if name not in found]
    if missing or (whole and len(found) != len(names)):
        what = missing[0] if missing else next(name for name in found if name not in names)
        raise CheckpointError(
            f"checkpoint {folder} was written by another algorithm or other settings ('{what}' does not match); "
            "resume with the settings in the run's config.json."
        )
    restored = []
    for name, (_, leaf) in zip(names, leaves, strict=True):
        array = found[name] if not _is_key(leaf) else jax.random.wrap_key_data(jnp.asarray(found[name]))
        if array.dtype != leaf.dtype or (array.shape != leaf.shape and not _grows(name)):
            raise CheckpointError(
                f"checkpoint {folder} holds {name} as {array.dtype}{list(array.shape)}, these settings make it "
                f"{leaf.dtype}{list(leaf.shape)}; resume with the settings in the run's config.json."
            )
        restored.append(array)
    return jax.tree.unflatten(tree, restored), values


def _grows(name: str) -> bool:
    """Whether an array is part of a store, which holds fewer rows at first."""
    return "['rows']" in name and not name.startswith("['cells']")


def read_values(folder: Path) -> dict[str, Any]:
    """The plain values of a checkpoint, after checking that its files are complete."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        version, values = manifest["format"], dict(manifest["values"])
        size, checksum = manifest["files"][ARRAYS]["bytes"], manifest["files"][ARRAYS]["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"checkpoint {folder} has no readable manifest ({error}); {REMEDY}.") from None
    if version != FORMAT:
        raise CheckpointError(f"checkpoint {folder} has format {version}, this headrace reads {FORMAT}; {REMEDY}.")
    path = folder / ARRAYS
    found = path.stat().st_size if path.exists() else 0
    if found != size:
        raise CheckpointError(f"checkpoint {folder} is truncated: {ARRAYS} has {found:,} of {size:,} bytes; {REMEDY}.")
    if _sum(path) != checksum:
        raise CheckpointError(f"checkpoint {folder} is corrupt: {ARRAYS} does not match its checksum; {REMEDY}.")
    return values


def newest(run: Path) -> Path:
    """The newest checkpoint of a run."""
    found = sorted(path for path in (run / "checkpoints").glob("[0-9]*") if path.is_dir())
    if not found:
        raise CheckpointError(f"run {run} has no checkpoint; give the folder of a run that was trained for a while.")
    return found[-1]


def prune(run: Path) -> None:
    """Remove all but the newest checkpoints."""
    for old in sorted((run / "checkpoints").glob("[0-9]*"))[:-KEPT]:
        shutil.rmtree(old)


def _data(leaf: Any) -> Any:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf, order="C")


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
