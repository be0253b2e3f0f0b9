"""mlp: shapes, initial scale, layer norm, ensembles, and the network of a user's own."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headrace.algorithms import DQN
from headrace.errors import ConfigError
from headrace.graph import trace
from headrace.nets import MLP, Ensemble, LayerNorm, Linear, build
from headrace.settings.config import NetConfig
from headrace.types import Box, Discrete, EnvSpec, MultiDiscrete

KEY = jax.random.key(0)


@pytest.mark.parametrize("hidden", [(), (7,), (5, 6, 7)])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_mlp_has_the_layers_asked_for(hidden, layer_norm):
    net = MLP((Box((3,)), Discrete(2)), 4, KEY, hidden=hidden, layer_norm=layer_norm)
    sizes = (5, *hidden, 4)
    assert [layer.weight.shape for layer in net.layers] == list(itertools.pairwise(sizes))
    assert [norm.scale.shape for norm in net.norms] == ([(size,) for size in hidden] if layer_norm else [])
    for lead in ((), (6,), (2, 6)):
        assert net(jnp.zeros((*lead, 3)), jnp.zeros(lead, jnp.int32)).shape == (*lead, 4)


def test_mlp_is_its_equations():
    net = MLP((Box((2,)),), 1, KEY, hidden=(3,), activation="tanh", layer_norm=True)
    x = jnp.asarray([[0.5, -1.0], [2.0, 0.1]])
    inner = x @ net.layers[0].weight + net.layers[0].bias
    normal = (inner - inner.mean(-1, keepdims=True)) / np.sqrt(inner.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(net(x), jnp.tanh(normal) @ net.layers[1].weight, rtol=1e-4, atol=1e-6)


def test_layers_start_orthogonal_with_their_gains():
    net = MLP((Box((8,)),), 8, KEY, hidden=(8,), last_gain=0.01)
    np.testing.assert_allclose(net.layers[0].weight.T @ net.layers[0].weight, 2 * np.eye(8), atol=1e-5)
    np.testing.assert_allclose(net.layers[1].weight.T @ net.layers[1].weight, 1e-4 * np.eye(8), atol=1e-8)
    assert not net.layers[0].bias.any()


def test_other_keys_give_other_weights_and_layers_differ():
    one, other = Linear(4, 4, KEY, 1.0), Linear(4, 4, jax.random.key(1), 1.0)
    assert not jnp.array_equal(one.weight, other.weight)
    net = MLP((Box((4,)),), 4, KEY, hidden=(4, 4), last_gain=2**0.5)
    assert not jnp.array_equal(net.layers[0].weight, net.layers[1].weight)


def test_layer_norm_by_numbers():
    norm = LayerNorm(4)
    x = jnp.asarray([[1.0, 2.0, 3.0, 4.0], [10.0, 10.0, 10.0, 10.0]])
    found = norm(x)
    np.testing.assert_allclose(found[0], (np.arange(1, 5) - 2.5) / np.sqrt(1.25 + 1e-5), rtol=1e-5)
    np.testing.assert_allclose(found[1], 0, atol=1e-6)  # nothing to divide by is not a reason for NaN
    scaled = eqx.tree_at(lambda n: (n.scale, n.shift), norm, (jnp.full(4, 2.0), jnp.full(4, 1.0)))
    np.testing.assert_allclose(scaled(x), 2 * found + 1, rtol=1e-5)
    assert bool(jnp.isfinite(jax.grad(lambda x: norm(x).sum())(x)).all())


def test_ensemble_stacks_its_members_in_front():
    members = [MLP((Box((3,)),), 2, key, hidden=(4,)) for key in jax.random.split(KEY, 3)]
    x = jnp.ones((5, 3))
    both = Ensemble(members)(x)
    assert both.shape == (3, 5, 2)
    for i, member in enumerate(members):
        np.testing.assert_allclose(both[i], member(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("activation", "function"),
    [("relu", jax.nn.relu), ("tanh", jnp.tanh), ("elu", jax.nn.elu), ("silu", jax.nn.silu), ("gelu", jax.nn.gelu)],
)
def test_every_activation_of_the_config(activation, function):
    net = build(NetConfig(hidden=(3,), activation=activation), (Box((2,)),), 1, KEY)
    x = jnp.asarray([[0.3, -0.7]])
    np.testing.assert_allclose(net(x), net.layers[1](function(net.layers[0](x))), rtol=1e-5)


def test_unknown_activation_is_refused_with_the_valid_ones():
    with pytest.raises(ConfigError, match=r"activation='rleu' is not known; did you mean 'relu'\? \(valid: relu, tanh"):
        build(NetConfig(activation="rleu"), (Box((2,)),), 1, KEY)
    with pytest.raises(ConfigError, match="activation='rleu' is not known"):
        trace(DQN(activation="rleu"), EnvSpec("x", Box((2,)), Discrete(2), 8))


def test_a_network_of_ones_own_gets_spaces_outputs_key_and_hints():
    seen = {}

    def network(inputs, outputs, key, **hints):
        seen.update(inputs=inputs, outputs=outputs, **hints)
        return "net"

    config = NetConfig(hidden=(9,), activation="elu", network=network)
    assert build(config, (Box((2,)), MultiDiscrete((2, 2))), 3, KEY, layer_norm=True) == "net"
    assert seen == {
        "inputs": (Box((2,)), MultiDiscrete((2, 2))),
        "outputs": 3,
        "hidden": (9,),
        "activation": "elu",
        "encoder": "auto",
        "layer_norm": True,
    }
