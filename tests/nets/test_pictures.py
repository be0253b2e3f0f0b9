"""pictures: what is one, its axes and scale, convolutions against XLA's, encoders by shapes, algorithms on pixels."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headrace.algorithms import ALGORITHMS, DQN, PPO
from headrace.errors import ConfigError
from headrace.graph import trace
from headrace.nets import MLP, Encoder, Normaliser
from headrace.nets.pictures import Conv, PictureEncoder, Residual, convolve, padded, picture, pixels, windows
from headrace.stores.replay import Table
from headrace.types import MASK, Box, Dict, Discrete, EnvSpec, empty_like, struct, transition_struct

KEY = jax.random.key(0)
LAYOUT = ("NHWC", "HWIO", "NHWC")


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [
        ((84, 84, 4), "uint8", (84, 84, 4)),
        ((4, 84, 84), "uint8", (84, 84, 4)),
        ((3, 210, 160), "uint8", (210, 160, 3)),
        ((210, 160, 3), "uint8", (210, 160, 3)),
        ((4, 84, 84, 3), "uint8", (84, 84, 12)),
        ((4, 3, 84, 84), "uint8", (84, 84, 12)),
        ((10, 10, 4), "float32", (10, 10, 4)),
        ((10, 10, 10), "bool", (10, 10, 10)),
        ((7, 7, 3), "uint8", (7, 7, 3)),
        ((6, 7, 2), "uint8", None),
        ((84, 84), "uint8", None),
        ((8, 8, 12), "int32", None),
        ((17,), "float32", None),
    ],
)
def test_what_a_picture_is_and_where_its_channels_are(shape, dtype, size):
    assert picture(Box(shape, dtype)) == size


@pytest.mark.parametrize(("space", "axes"), [(Box((2, 9, 8), "uint8"), (0, 2, 3, 1)), (Box((9, 8, 2), "uint8"), None)])
def test_bytes_become_numbers_from_0_to_1_with_channels_last(space, axes):
    value = np.arange(3 * 144, dtype=np.uint8).reshape(3, *space.shape)
    expected = (value if axes is None else value.transpose(axes)) / np.float32(255)
    np.testing.assert_allclose(pixels(space, jnp.asarray(value)), expected, rtol=1e-6)


def test_a_stack_of_frames_becomes_channels():
    value = np.arange(2 * 8 * 9 * 3).reshape(1, 2, 8, 9, 3).astype(np.float32)
    found = pixels(Box((2, 8, 9, 3)), jnp.asarray(value))
    assert found.shape == (1, 8, 9, 6)
    np.testing.assert_array_equal(found[0, 4, 5], [*value[0, 0, 4, 5], *value[0, 1, 4, 5]])


@pytest.mark.parametrize(
    ("height", "width", "channels", "outputs", "size", "stride"),
    [(20, 20, 1, 8, 8, 4), (23, 31, 3, 5, 4, 2), (10, 11, 4, 3, 3, 2)],
)
def test_convolutions_and_their_gradients_are_xla_s(height, width, channels, outputs, size, stride):
    x = jax.random.normal(KEY, (2, height, width, channels))
    weight = jax.random.normal(jax.random.key(1), (size, size, channels, outputs)) / size

    def oracle(x, weight):
        return jax.lax.conv_general_dilated(x, weight, (stride, stride), "VALID", dimension_numbers=LAYOUT)

    np.testing.assert_allclose(convolve(x, weight, stride), oracle(x, weight), rtol=1e-3, atol=1e-4)
    ways = (lambda w: convolve(x, w, stride), lambda w: oracle(x, w))
    mine, theirs = (jax.grad(lambda w, f=f: jnp.sum(f(w) ** 2))(weight) for f in ways)
    np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-2)


def test_pooling_is_xla_s():
    x = jax.random.normal(KEY, (2, 11, 12, 3))
    edges = [(0, 0), (1, 1), (1, 1), (0, 0)]
    expected = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), edges)
    found = jnp.max(jnp.stack(windows(padded(x, 1, -jnp.inf), 3, 2)), axis=0)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("kind", "shape", "layers", "width"),
    [
        ("auto", (84, 84, 4), [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64)], 512),
        ("nature", (4, 84, 84), [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64)], 512),
        ("small", (84, 84, 1), [(8, 8, 1, 16), (4, 4, 16, 32)], 256),
        ("auto", (10, 10, 4), [(3, 3, 4, 16)], 128),
        ("small", (10, 10, 4), [(3, 3, 4, 16)], 128),
    ],
)
def test_the_encoders_have_the_layers_of_their_papers(kind, shape, layers, width):
    encoder = eqx.filter_eval_shape(PictureEncoder, Box(shape, "uint8"), kind, KEY)
    assert [section.weight.shape for section in encoder.sections] == layers
    assert encoder.width == width
    assert encoder.dense.weight.shape[0] == {84: {64: 3136, 32: 2592}, 10: {16: 1024}}[max(shape)][layers[-1][-1]]
    seen = struct(encoder.space, 2, 3)
    assert eqx.filter_eval_shape(lambda net, x: net(x), encoder, seen).shape == (2, 3, width)


def test_impala_is_three_sections_of_two_residual_blocks():
    encoder = eqx.filter_eval_shape(PictureEncoder, Box((16, 16, 3), "uint8"), "impala", KEY)
    assert [type(section) for section in encoder.sections] == [Residual] * 3
    assert [section.first.weight.shape[-1] for section in encoder.sections] == [16, 32, 32]
    assert encoder.dense.weight.shape == (2 * 2 * 32, 256)
    half = eqx.filter_eval_shape(lambda section, x: section(x), encoder.sections[0], jnp.ones((1, 16, 16, 3)))
    assert half.shape == (1, 8, 8, 16)


def test_convolutions_start_orthogonal():
    flat = Conv(4, 6, 3, KEY).weight.reshape(-1, 6)
    np.testing.assert_allclose(flat.T @ flat, 2 * np.eye(6), atol=1e-5)


def test_pictures_stand_beside_vectors_and_masks_are_left_out():
    space = Dict(((MASK, Box((2,), "bool")), ("camera", Box((10, 10, 3), "uint8")), ("speed", Box((2,)))))
    encoder = Encoder((space, Discrete(4)), "auto", KEY)
    assert list(encoder.pictures) == ["0/camera"]
    assert encoder.width == 128 + 2 + 4
    value = empty_like(struct(space, 5))
    assert eqx.filter_eval_shape(encoder, value, np.ones(5, np.int32)).shape == (5, 134)
    assert Encoder((space,), "flat", KEY).width == 302
    net = eqx.filter_eval_shape(lambda key: MLP((space,), 3, key, hidden=(8,)), KEY)
    assert net.layers[0].weight.shape == (130, 8)


def test_a_network_without_pictures_is_what_it_was():
    one, other = (MLP((Box((3,)),), 2, KEY, hidden=(4,), encoder=kind) for kind in ("auto", "flat"))
    for mine, theirs in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert [leaf.shape for leaf in jax.tree.leaves(one)] == [(3, 4), (4,), (4, 2), (2,)]


@pytest.mark.parametrize("name", sorted(set(ALGORITHMS) - {"mappo"}))
def test_every_algorithm_sees_pixels_through_convolutions_and_keeps_them_as_bytes(name):
    action = Box((2,), bounded=True) if name in ("sac", "td3") else Discrete(3)
    graph = trace(ALGORITHMS[name](), EnvSpec("pixels", Box((84, 84, 4), "uint8"), action, 8))
    shapes = [leaf.shape for leaf in jax.tree.leaves(graph.cells["actor" if "actor" in graph.cells else "critic"])]
    assert (8, 8, 4, 32) in shapes
    assert (3136, 512) in shapes
    assert max(shape[0] for shape in shapes if shape) < 84 * 84 * 4


def test_a_replay_table_keeps_bytes_as_bytes():
    graph = trace(DQN(num_envs=2), EnvSpec("pixels", Box((8, 8, 1), "uint8"), Discrete(3), 2))
    table = Table(transition_struct(graph.spec, jax.ShapeDtypeStruct((2,), jnp.int32), {}), 1, 10)
    assert table.rows.obs.dtype == table.rows.next_obs.dtype == np.uint8
    assert not Normaliser(Box((8, 8, 1), "uint8")).moments


def test_an_encoder_that_is_unknown_or_does_not_fit_is_refused_with_a_sentence():
    tiny = EnvSpec("x", Box((10, 10, 4), "uint8"), Discrete(2), 8)
    with pytest.raises(
        ConfigError, match=r"encoder='natur' is not known; did you mean 'nature'\? \(valid: auto, nature"
    ):
        trace(PPO(encoder="natur"), tiny)
    with pytest.raises(
        ConfigError, match=r"encoder='nature' needs pictures of at least 36 x 36, got 10 x 10; try small"
    ):
        trace(PPO(encoder="nature"), tiny)
