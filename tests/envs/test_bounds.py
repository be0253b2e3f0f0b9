"""Bounds of actions, dimension by dimension: a finite one is never violated, and a missing one is no surprise."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace import PPO, SAC, TD3, train
from headrace.cli import main
from headrace.envs import HostedJaxEnv, make, recipe
from headrace.envs.jax_env import BatchedEnv, SingleEnv
from headrace.envs.spaces import Actions
from headrace.errors import EnvError, UsageError
from headrace.types import Box, native_action

from .scripted import Counter

INF = np.inf
LOW, HIGH = np.array([0, -INF, -2, -INF], np.float32), np.array([INF, INF, 2, 7], np.float32)
OPTIONS = {"policy": "single", "progress": False, "eval_episodes": 2}


class Target(gym.Env[Any, Any]):
    """One step; the best action is 3, in a space without bounds."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Box(-INF, INF, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), -0.1 * float((action[0] - 3) ** 2), True, False, {}


class Mixed(gym.Env[Any, Any]):
    """Bounds of every kind; remembers the extremes of what was sent."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(LOW, HIGH)
    least, most = np.full(4, INF), np.full(4, -INF)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        np.minimum(self.least, action, out=self.least)
        np.maximum(self.most, action, out=self.most)
        return np.zeros(2, np.float32), float(action.sum()), False, True, {}


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=4, max_size=4), st.sampled_from([None, 0.5, 3.0]))
def test_no_action_leaves_a_finite_bound(action: list[float], scale: float | None) -> None:
    actions = Actions(spaces.Box(LOW, HIGH), "mixed", 1, scale)
    sent = actions.decode(np.array([action], np.float32))
    assert ((sent >= LOW) & (sent <= HIGH)).all()
    assert np.array_equal(native_action(actions.space, np.array([action], np.float32)), sent)


def test_each_dimension_is_mapped_by_its_own_bounds() -> None:
    env = make(lambda: Counter(9, spaces.Box(LOW, HIGH)), 1)
    assert env.spec.action == Box((4,))
    for action, plain, scaled in (
        ([-1, -1, -1, -1], [0, -1, -2, 5], [0, -3, -2, 1]),
        ([0, 0, 0, 0], [1, 0, 0, 6], [3, 0, 0, 4]),
        ([1, 1, 1, 1], [2, 1, 2, 7], [6, 3, 2, 7]),
        ([5, 5, 5, 5], [6, 5, 2, 7], [6, 3, 2, 7]),
    ):
        for scale, wanted in ((None, plain), (3.0, scaled)):
            actions = Actions(spaces.Box(LOW, HIGH), "mixed", 1, scale)
            assert actions.decode(np.array([action], np.float32)).tolist() == [wanted]
            assert native_action(actions.space, jnp.array([action], jnp.float32), jnp).tolist() == [wanted]
            assert actions.space.bounded == (scale is not None)  # type: ignore[union-attr]


def test_an_actor_keeps_the_bounds_of_a_space_of_float64() -> None:
    space = Actions(spaces.Box(np.array([0.1]), np.array([0.7]), dtype=np.float64), "narrow").space
    for action in (-1, 1):
        assert 0.1 <= float(native_action(space, np.array([[action]], np.float32))[0, 0]) <= 0.7


class Push(SingleEnv):
    """Pays the action it is given."""

    observation = Box((1,))
    action = Box((1,), bounded=True)

    def reset(self, key: Any) -> Any:
        return np.float32(0), np.zeros(1, np.float32)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        return state, np.zeros(1, np.float32), action[0], False, False


def test_a_jax_environment_gets_no_more_than_it_says() -> None:
    env = HostedJaxEnv(BatchedEnv("push", Push(), 2))
    env.reset(0)
    assert env.step(np.array([[5.0], [-5.0]], np.float32)).reward.tolist() == [1.0, -1.0]


@pytest.mark.parametrize("algorithm", [SAC, TD3])
def test_squashed_actions_need_a_scale_where_there_are_no_bounds(algorithm: Any) -> None:
    said = f"{algorithm.__name__} squashes actions into bounds, and in this environment action 0 of 1 has not both"
    with pytest.raises(EnvError, match=f"{said}; set --action-scale to how far actions may reach, or try ppo"):
        headrace.trace(algorithm, Target)
    assert headrace.trace(algorithm, Target, action_scale=5).spec.action == Box((1,), bounded=True)


def test_a_scale_that_means_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EnvError, match=r"'Pendulum-v1' has no actions without bounds, .*; leave --action-scale away"):
        make(recipe("Pendulum-v1", None, 2.0), 1)
    with pytest.raises(EnvError, match="scales its actions itself"):
        make(recipe(lambda n: BatchedEnv("push", Push(), n), None, 2.0), 1)
    with pytest.raises(UsageError, match="--action-scale must be above 0, got 0"):
        recipe(Target, None, 0.0)
    assert main(["graph", "sac", "Pendulum-v1", "--action-scale", "2"]) == 2
    assert "leave --action-scale away" in capsys.readouterr().err


def test_ppo_never_sends_what_a_bound_forbids(tmp_path: Any) -> None:
    tiny = {"num_envs": 4, "horizon": 32, "minibatch_size": 64, "epochs": 1, "hidden": (8,), "learning_rate": 0.1}
    run = train(PPO(**tiny), Mixed, steps=512, out=tmp_path / "run", evaluate=False, **OPTIONS)
    assert Mixed.least[0] == 0
    assert (Mixed.least[2], Mixed.most[2], Mixed.most[3]) == (-2, 2, 7)
    assert Mixed.most[1] > 2
    assert Mixed.action_space.contains(run.actor(np.zeros(2, np.float32)))


@pytest.mark.parametrize("algorithm", [SAC, TD3])
def test_with_a_scale_the_best_action_is_found(algorithm: Any, tmp_path: Any) -> None:
    tiny = {"num_envs": 8, "hidden": (64,), "batch_size": 64, "warmup": 200, "learning_rate": 3e-3}
    run = train(
        algorithm(samples_per_insert=64.0, policy_delay=1, **tiny),
        Target,
        action_scale=5,
        steps=1_000,
        out=tmp_path / "run",
        evaluate=False,
        **OPTIONS,
    )
    assert float(run.actor(np.zeros(1, np.float32))[0]) == pytest.approx(3, abs=0.5)
    assert headrace.Run.load(run.path, Target).env.action_scale == 5
