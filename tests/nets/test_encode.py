"""encode: any space as one vector of the width it promises."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from headrace.nets import action_mask, encode, width
from headrace.types import MASK, Box, Dict, Discrete, MultiDiscrete, empty_like, struct

NESTED = Dict((("a", Discrete(2)), ("inner", Dict((("b", Box((2,))), ("c", Box((1,), "uint8")))))))

CASES = [
    (Box((2,)), [[1.5, -2.0]], [[1.5, -2.0]]),
    (Box((2, 2)), [[[1, 2], [3, 4]]], [[1, 2, 3, 4]]),
    (Box(()), [7.0], [[7.0]]),
    (Box((3,), "uint8"), [[0, 51, 255]], [[0.0, 0.2, 1.0]]),
    (Box((1,), "int32"), [[-3]], [[-3.0]]),
    (Box((2,), "bool"), [[True, False]], [[1.0, 0.0]]),
    (Discrete(3), [2], [[0, 0, 1]]),
    (MultiDiscrete((2, 3)), [[1, 0]], [[0, 1, 1, 0, 0]]),
]


@pytest.mark.parametrize(("space", "value", "expected"), CASES)
def test_encode_of_every_space(space, value, expected):
    value = jnp.asarray(value, struct(space).dtype)
    found = encode(space, value)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found.dtype == jnp.float32
    assert width(space) == found.shape[-1]


def test_parts_stand_side_by_side_in_the_order_of_the_space_without_the_mask():
    space = Dict(((MASK, Box((2,), "bool")), ("a", Discrete(2)), ("b", Box((2,)))))
    value = {"b": jnp.asarray([[5.0, 6.0]]), "a": jnp.asarray([1]), MASK: jnp.asarray([[True, False]])}
    np.testing.assert_allclose(encode(space, value), [[0, 1, 5, 6]])
    assert width(space) == 4
    assert action_mask(value).tolist() == [[True, False]]
    assert action_mask(jnp.ones(3)) is None
    assert action_mask({"a": 1}) is None


@pytest.mark.parametrize("space", [*(case[0] for case in CASES), NESTED])
@pytest.mark.parametrize("lead", [(), (5,), (4, 5)])
def test_any_number_of_leading_axes(space, lead):
    value = empty_like(struct(space, *lead))
    assert encode(space, value).shape == (*lead, width(space))
