"""dqn: goals against rlax, exploration against its schedule."""

from __future__ import annotations

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from headrace.algorithms import DQN
from headrace.core import Learned, Schedule, Tracked
from headrace.errors import EnvError
from headrace.types import MASK, Batch, Box, Dict, Discrete, EnvSpec, MultiDiscrete

SPEC = EnvSpec("toy", Box((3,)), Discrete(4), 4)
KEY = jax.random.key(7)


@cache
def made(**settings):
    algorithm = DQN(**({"hidden": (8,)} | settings))
    cells = algorithm.cells(SPEC, jax.random.key(0))
    # A target of its own, or the double estimate could not be told from the plain one.
    return algorithm, cells | {"target": Tracked(algorithm.cells(SPEC, jax.random.key(1))["critic"].module)}


@cache
def batch():
    keys = jax.random.split(jax.random.key(1), 4)
    return Batch(
        obs=jax.random.normal(keys[0], (6, 3)),
        action=jax.random.randint(keys[1], (6,), 0, 4),
        reward=3 * jax.random.normal(keys[2], (6,)),
        discount=jnp.asarray([0.99, 0.0, 0.9, 0.99, 0.0, 0.99]),
        next_obs=jax.random.normal(keys[3], (6, 3)),
        extra={},
    )


def huber(x):
    return np.where(np.abs(x) <= 1, 0.5 * x**2, np.abs(x) - 0.5)


@pytest.mark.parametrize("double", [True, False])
def test_loss_is_huber_of_the_td_error_of_rlax(double):
    dqn, cells = made(double=double)
    b = batch()
    (critic, _, _), metrics = dqn.learn(b, cells["critic"], cells["target"], cells["exploration"])
    now, after = cells["critic"](b.obs), cells["target"](b.next_obs)
    if double:
        oracle = jax.vmap(rlax.double_q_learning)
        errors = oracle(now, b.action, b.reward, b.discount, after, cells["critic"](b.next_obs))
    else:
        errors = jax.vmap(rlax.q_learning)(now, b.action, b.reward, b.discount, after)
    assert float(metrics["loss"]) == pytest.approx(float(huber(np.asarray(errors)).mean()), rel=1e-5)
    taken = np.asarray(now)[np.arange(6), np.asarray(b.action)]
    assert float(metrics["value"]) == pytest.approx(taken.mean(), rel=1e-4)
    assert critic.updates == 1


def test_double_and_plain_goals_differ_here():
    losses = [
        float(dqn.learn(batch(), cells["critic"], cells["target"], cells["exploration"])[1]["loss"])
        for dqn, cells in (made(double=True), made(double=False))
    ]
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_target_moves_by_tau():
    dqn, cells = made(tau=0.25)
    (critic, target, _), _ = dqn.learn(batch(), cells["critic"], cells["target"], cells["exploration"])
    for before, new, now in zip(
        *(jax.tree.leaves(x) for x in (cells["target"].module, critic.module, target.module)), strict=True
    ):
        np.testing.assert_allclose(now, 0.75 * before + 0.25 * new, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("exploration", "expected"),
    [
        (Schedule("exponential", 1.0, 0.05, 4), [1.0, 0.05**0.25, 0.05**0.5, 0.05**0.75, 0.05, 0.05]),
        ("linear:0.9:0.1:4", [0.9, 0.7, 0.5, 0.3, 0.1, 0.1]),
        (0.5, [0.5] * 6),
    ],
)
def test_exploration_follows_its_schedule_and_stays_at_its_end(exploration, expected):
    dqn, cells = made(exploration=exploration)
    learn = eqx.filter_jit(lambda critic, cell: dqn.learn(batch(), critic, cells["target"], cell))
    critic, cell = cells["critic"], cells["exploration"]
    assert float(cell.module) == pytest.approx(expected[0])
    for share in expected[1:]:
        (critic, _, cell), metrics = learn(critic, cell)
        assert float(cell.module) == pytest.approx(share, rel=1e-6)
        assert float(metrics["exploration_rate"]) == float(cell.module)


@pytest.mark.parametrize(("share", "low", "high"), [(0.0, 0.0, 0.0), (0.4, 0.26, 0.34), (1.0, 0.72, 0.78)])
def test_acting_explores_at_the_rate_of_its_cell(share, low, high):
    # A random action of four is the best one in a quarter of the cases.
    dqn, _ = made()
    obs = jnp.zeros((8_000, 3))
    values = jnp.asarray([0.0, 0.0, 1.0, 0.0])
    action = dqn.act(obs, lambda obs: jnp.broadcast_to(values, (len(obs), 4)), jnp.asarray(share), KEY)
    assert action.dtype == jnp.int32
    assert low <= float((action != 2).mean()) <= high


def test_masks_bind_exploring_playing_and_the_goal():
    space = Dict(((MASK, Box((4,), "bool")), ("x", Box((3,)))))
    dqn = DQN(hidden=(8,))
    mask = jnp.tile(jnp.asarray([[False, True, False, True]]), (200, 1))
    obs = {"x": jax.random.normal(KEY, (200, 3)), MASK: mask}

    def critic(obs):
        return jnp.tile(jnp.asarray([[9.0, 1.0, 8.0, 2.0]]), (len(obs["x"]), 1))

    assert set(dqn.act(obs, critic, jnp.asarray(1.0), KEY).tolist()) == {1, 3}
    assert set(dqn.play(obs, critic).tolist()) == {3}
    cells = dqn.cells(EnvSpec("toy", space, Discrete(4), 4), KEY)
    b = Batch(obs, jnp.ones(200, jnp.int32), jnp.zeros(200), jnp.ones(200), obs, {})
    best = np.where(np.asarray(mask), np.asarray(cells["critic"](obs)), -np.inf).max(axis=-1)
    taken = np.asarray(cells["critic"](obs))[:, 1]
    _, metrics = dqn.learn(b, cells["critic"], cells["target"], cells["exploration"])
    assert float(metrics["loss"]) == pytest.approx(float(huber(taken - best).mean()), rel=1e-4)


def test_play_is_the_best_action_and_needs_no_key():
    dqn, cells = made()
    expected = np.asarray(cells["critic"](batch().obs)).argmax(axis=-1)
    assert dqn.play(batch().obs, cells["critic"].module).tolist() == expected.tolist()
    assert not dqn.play.signature.wants_key


def test_cells_start_with_the_target_at_the_critic():
    cells = DQN(hidden=(8,)).cells(SPEC, KEY)
    assert isinstance(cells["critic"], Learned)
    assert eqx.tree_equal(cells["critic"].module, cells["target"].module)


@pytest.mark.parametrize("action", [Box((1,), bounded=True), MultiDiscrete((2, 2))])
def test_refuses_other_actions(action):
    with pytest.raises(EnvError, match=r"DQN needs Discrete actions, this environment has .*; try ppo or sac"):
        DQN().cells(EnvSpec("toy", Box((3,)), action, 4), KEY)
