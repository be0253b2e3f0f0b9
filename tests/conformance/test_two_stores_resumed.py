"""A loop with two stores goes on after a checkpoint: both counters, the replay, and every bit of a JAX environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from test_two_stores import ENV, PURE, two_trainers

import headrace
from headrace.run import checkpoint


def checkpointed(run: headrace.Run) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The counters and the arrays of a run's newest checkpoint."""
    folder = checkpoint.newest(run.path)
    values = checkpoint.read_values(folder)
    return {k: v for k, v in values.items() if k not in ("elapsed", "best")}, checkpoint.load_file(
        folder / "state.safetensors"
    )


@pytest.mark.parametrize(
    ("policy", "runtime"),
    [
        ("single", "inline"),
        ("multiple_learners", "inline"),
        ("desktop", "processes"),
        ("multiple_learners", "processes"),
    ],
)
def test_a_run_goes_on_with_both_counters_and_its_replay(policy: str, runtime: str, tmp_path: Path) -> None:
    algorithm = two_trainers(replay_capacity=2_000)
    options = {"progress": False, "evaluate": False}
    replicas = None if policy == "single" else 2
    asked = {"policy": policy, "runtime": runtime, "replicas": replicas, "seed": 3, **options}
    whole = headrace.train(algorithm, ENV, steps=1_280, out=tmp_path / "whole", **asked)
    first = headrace.train(algorithm, ENV, steps=672, out=tmp_path / "part", **asked)
    before, held = checkpointed(first)
    assert before["learned_in"] == [112, 21]  # (672 - 64) * 6 / 32 in programs of 8, and one for each trajectory
    second = headrace.train(resume=first.path, algorithm=type(algorithm), steps=1_280, **options)
    after, kept = checkpointed(second)
    assert after == checkpointed(whole)[0]
    assert after["learned_in"] == [224, 40]
    stores = sorted(name for name in held if not name.startswith("['cells']"))
    assert stores == sorted(name for name in kept if not name.startswith("['cells']"))
    assert all(name.startswith("['replay']") for name in stores)
    last = 672 // 4 - 1  # the newest step is cut from what is inserted next: its episodes end there
    for name in (name for name in stores if "rows" in name):
        np.testing.assert_array_equal(kept[name][:, :last], held[name][:, :last])
    for name in (name for name in stores if "written" in name):
        assert (held[name] == 672 // 4).all()
        assert (kept[name] == 1_280 // 4).all()


def test_a_jax_environment_goes_on_to_the_bit(tmp_path: Path) -> None:
    pytest.importorskip("gymnax")
    algorithm, options = two_trainers(), {"progress": False, "evaluate": False}
    whole = headrace.train(algorithm, PURE, steps=1_600, seed=3, out=tmp_path / "whole", **options)
    first = headrace.train(algorithm, PURE, steps=700, seed=3, out=tmp_path / "part", **options)
    second = headrace.train(resume=first.path, algorithm=type(algorithm), steps=1_600, **options)
    (ours, mine), (theirs, other) = checkpointed(second), checkpointed(whole)
    assert ours == theirs
    assert min(ours["learned_in"]) > 0
    assert sorted(mine) == sorted(other)
    for name, array in mine.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
    for a, b in zip(jax.tree.leaves(second.cells), jax.tree.leaves(whole.cells), strict=True):
        if isinstance(a, jax.Array):
            np.testing.assert_array_equal(a, b)
