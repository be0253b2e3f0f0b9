"""types: shapes of spaces and sizes of trees."""

from __future__ import annotations

import json
from dataclasses import astuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headrace.types import (
    Box,
    Dict,
    Discrete,
    EnvSpec,
    MultiDiscrete,
    empty_like,
    struct,
    transition_struct,
    tree_bytes,
)


def shape(*sizes, dtype="float32"):
    return jax.ShapeDtypeStruct(sizes, jnp.dtype(dtype))


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Box((3,)), shape(4, 3)),
        (Box((84, 84, 3), "uint8"), shape(4, 84, 84, 3, dtype="uint8")),
        (Box(()), shape(4)),
        (Discrete(5), shape(4, dtype="int32")),
        (MultiDiscrete((2, 3, 4)), shape(4, 3, dtype="int32")),
        (Dict((("a", Box((2,))), ("b", Discrete(3)))), {"a": shape(4, 2), "b": shape(4, dtype="int32")}),
    ],
)
def test_struct_of_every_space(space, expected):
    assert struct(space, 4) == expected


def test_struct_takes_any_number_of_batch_axes():
    assert struct(Box((3,))) == shape(3)
    assert struct(Box((3,)), 16, 4) == shape(16, 4, 3)


def test_transition_struct_and_its_bytes():
    spec = EnvSpec("Pendulum-v1", Box((3,)), Box((1,), bounded=True), 4)
    step = transition_struct(spec, struct(spec.action, 4), {"log_prob": shape(4)})
    assert (step.obs, step.next_obs) == (shape(4, 3), shape(4, 3))
    assert step.action == shape(4, 1)
    assert step.reward == shape(4)
    assert step.terminated == step.truncated == shape(4, dtype="bool")
    assert tree_bytes(step) == 4 * (12 + 4 + 4 + 1 + 1 + 12 + 4)


@pytest.mark.parametrize(("dtype", "each"), [("float32", 4), ("uint8", 1), ("bool", 1), ("int32", 4), ("bfloat16", 2)])
def test_tree_bytes_by_dtype(dtype, each):
    assert tree_bytes({"x": shape(3, 5, dtype=dtype), "y": shape(dtype=dtype)}) == 16 * each


def test_empty_like_puts_axes_in_front():
    made = empty_like({"x": shape(3, dtype="uint8")}, 7, 2)
    assert made["x"].shape == (7, 2, 3)
    assert made["x"].dtype == np.uint8


def test_with_envs_changes_only_the_number():
    spec = EnvSpec("x", Box((3,)), Discrete(2), 4, pure=True, agents=2)
    assert spec.with_envs(9) == EnvSpec("x", Box((3,)), Discrete(2), 9, pure=True, agents=2)


@pytest.mark.parametrize(
    "space",
    [
        Box((3,), "float32", True, (-1.0, -np.inf, 0.0), (1.0, np.inf, np.inf), (3, 1)),
        Discrete(np.int64(4), 2),
        MultiDiscrete((2, 3), (1, 0), (1, 2)),
        Dict((("map", Box((4, 4), "uint8")), ("more", Dict((("mode", Discrete(2)),))))),
    ],
)
def test_a_description_comes_back_from_json_as_it_was(space) -> None:
    spec = EnvSpec("Some-v0", space, space, 3, agents=2)
    text = json.dumps(spec.to_json(), default=lambda number: number.item())
    assert repr(astuple(EnvSpec.from_json(json.loads(text)))) == repr(astuple(spec)).replace("np.int64(4)", "4")
