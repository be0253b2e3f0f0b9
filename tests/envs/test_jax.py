from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headrace.envs import BatchedEnv, Episode, HostedJaxEnv, JaxEnv, SingleEnv, make, recipe
from headrace.envs.brax_env import make_brax
from headrace.envs.gymnax_env import GymnaxEnv
from headrace.errors import EnvError
from headrace.types import Box, Discrete


class JaxCounter(SingleEnv):
    """Shows (start, time), pays `time`; the action terminates, step 3 truncates."""

    observation = Box((2,))
    action = Discrete(2)

    def reset(self, key: Any) -> Any:
        start = jax.random.uniform(key)
        return {"start": start, "time": 0}, jnp.array([start, 0.0])

    def step(self, state: Any, action: Any, key: Any) -> Any:
        time = state["time"] + 1
        obs = jnp.array([state["start"], time])
        return {**state, "time": time}, obs, 1.0 * time, action == 1, time >= 3


def pure(env: str, num_envs: int) -> JaxEnv:
    made = make(env, num_envs)
    assert isinstance(made, JaxEnv)
    return made


def runner(env: JaxEnv) -> Any:
    """Whole trajectories, `run(actions)`, in one compiled scan."""

    @jax.jit
    def run(key: Any, actions: Any) -> Any:
        start, walk = jax.random.split(key)
        state, first = env.reset(start)

        def body(state: Any, now: Any) -> Any:
            action, key = now
            state, step, finished = env.step(state, action, key)
            return state, (step, finished)

        return first, jax.lax.scan(body, state, (actions, jax.random.split(walk, len(actions))))[1]

    return lambda actions: jax.device_get(run(jax.random.key(0), actions))


def roll(env: JaxEnv, actions: Any) -> Any:
    return runner(env)(actions)


@pytest.mark.parametrize("cheap_reset", [True, False])
def test_batches_reset_and_account_exactly(cheap_reset: bool) -> None:
    env = BatchedEnv("counter", JaxCounter(), 2, cheap_reset=cheap_reset)
    assert env.spec.pure
    assert env.spec.num_envs == 2
    actions = jnp.array([[0, 0], [0, 1], [1, 0], [0, 0], [0, 0]])
    first, (step, finished) = roll(env, actions)
    assert step.next_obs[..., 1].tolist() == [[1, 1], [2, 2], [3, 1], [1, 2], [2, 3]]
    assert step.obs[..., 1].tolist() == [[1, 1], [2, 0], [0, 1], [1, 2], [2, 0]]
    assert step.reward.tolist() == [[1, 1], [2, 2], [3, 1], [1, 2], [2, 3]]
    assert np.argwhere(step.terminated).tolist() == [[1, 1], [2, 0]], "also at the limit"
    assert np.argwhere(step.truncated).tolist() == [[4, 1]]
    assert finished.done.tolist() == (step.terminated | step.truncated).tolist()
    assert finished.reward.tolist() == [[0, 0], [0, 3], [6, 0], [0, 0], [0, 6]]
    assert finished.length.tolist() == [[0, 0], [0, 2], [3, 0], [0, 0], [0, 3]]
    starts = step.obs[..., 0]
    assert np.array_equal(step.next_obs[0, :, 0], first[:, 0])
    assert len({*first[:, 0]}) == 2
    assert starts[1, 1] != first[1, 0], "a fresh start, not the first again"
    assert step.next_obs[2, 1, 0] == starts[1, 1], "the next episode goes on from what was shown"
    assert (step.reward.dtype, step.truncated.dtype, finished.length.dtype) == (np.float32, bool, np.int32)


def test_hosted_gives_numpy_and_episodes() -> None:
    env = HostedJaxEnv(BatchedEnv("counter", JaxCounter(), 2))
    assert not env.spec.pure

    def run(seed: int) -> Any:
        return [env.reset(seed), *(env.step(np.zeros(2, np.int32)).obs for _ in range(4))]

    first = run(3)
    assert all(isinstance(obs, np.ndarray) for obs in first)
    assert env.drain() == [Episode(6, 3)] * 2
    assert env.drain() == []
    assert np.array_equal(first, run(3))
    assert not np.array_equal(first, run(4))


def test_hosted_refuses_numbers_that_are_not_finite() -> None:
    class Broken(JaxCounter):
        def step(self, state: Any, action: Any, key: Any) -> Any:
            state, obs, reward, terminated, truncated = JaxCounter.step(self, state, action, key)
            return state, obs, jnp.where(action == 1, jnp.nan, reward), terminated, truncated

    env = HostedJaxEnv(BatchedEnv("broken", Broken(), 2))
    env.reset(0)
    env.step(np.array([0, 0]))
    with pytest.raises(EnvError, match=r"'broken' \(environment 1\) returned a reward that is not finite at step 2"):
        env.step(np.array([0, 1]))


def test_gymnax_cartpole_terminates_by_falling_and_truncates_at_its_limit() -> None:
    gymnax = pytest.importorskip("gymnax")
    inner, params = gymnax.make("CartPole-v1")
    env = BatchedEnv("cartpole", GymnaxEnv("cartpole", inner, params.replace(max_steps_in_episode=9)), 2)
    actions = jnp.stack([jnp.zeros(27, jnp.int32), jnp.arange(27) % 2], axis=1)
    _, (step, finished) = roll(env, actions)
    assert np.flatnonzero(step.truncated[:, 1]).tolist() == [8, 17, 26]
    assert not step.terminated[:, 1].any()
    fallen = np.abs(step.next_obs[..., 2]) > params.theta_threshold_radians
    assert np.array_equal(step.terminated, fallen)
    assert fallen[:, 0].any()
    done = finished.done[:, 0]
    assert np.all(np.abs(step.obs[done, 0]) <= 0.05)
    assert not np.any(step.truncated & step.terminated)
    assert finished.length[finished.done[:, 1], 1].tolist() == [9, 9, 9]


def test_gymnax_environments_that_merge_the_limit_are_told_apart() -> None:
    pytest.importorskip("gymnax")
    from gymnax.environments.classic_control.cartpole import CartPole

    class Legacy(CartPole):  # type: ignore[misc]
        def is_terminal(self, state: Any, params: Any) -> Any:
            return self.is_terminated(state, params) | (state.time >= params.max_steps_in_episode)

    inner = Legacy()
    env = BatchedEnv("legacy", GymnaxEnv("legacy", inner, inner.default_params.replace(max_steps_in_episode=5)), 1)
    _, (step, _) = roll(env, jnp.arange(10)[:, None] % 2)
    assert np.flatnonzero(step.truncated[:, 0]).tolist() == [4, 9]
    assert not step.terminated.any()


def test_gymnax_actions_and_observations() -> None:
    pytest.importorskip("gymnax")
    pendulum = pure("gymnax:Pendulum-v1", 1)
    assert pendulum.spec.action == Box((1,), bounded=True)
    first, (step, _) = roll(pendulum, jnp.full((1, 1, 1), 7.0))
    cost = np.arctan2(first[0, 1], first[0, 0]) ** 2 + 0.1 * first[0, 2] ** 2 + 0.001 * 2.0**2
    assert step.reward[0, 0] == pytest.approx(-cost, abs=1e-4)
    assert pure("gymnax:FrozenLake-misc", 1).spec.observation == Discrete(16)
    rooms = pure("gymnax:FourRooms-misc", 2)
    assert rooms.spec.observation == Box((4,), "int32")
    first, _ = roll(rooms, jnp.zeros((2, 2), jnp.int32))
    assert first.dtype == np.int32, "its own space says float32"


def test_brax_under_jit_and_scan() -> None:
    pytest.importorskip("brax")
    env = make_brax("brax:inverted_pendulum", 2, episode_length=12)
    assert env.spec.observation == Box((4,))
    assert env.spec.action == Box((1,), bounded=True)
    push = jnp.stack([jnp.zeros((40, 1)), jnp.full((40, 1), 50.0)], axis=1)
    run = runner(env)
    _, (step, finished) = run(push)
    fallen = np.abs(step.next_obs[..., 1]) > 0.2
    assert np.array_equal(step.terminated, fallen)
    assert fallen[:, 1].any()
    assert np.flatnonzero(step.truncated[:, 0]).tolist() == [11, 23, 35]
    assert np.all(np.abs(step.obs[finished.done]) <= 0.01 + 1e-6)
    assert np.isfinite(step.reward).all()
    assert finished.length[11, 0] == 12
    _, (unit, _) = run(jnp.clip(push, -1, 1))
    assert np.array_equal(unit.next_obs, step.next_obs), "actions are clipped"


def test_brax_by_name(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("brax")
    env = pure("brax:inverted_pendulum", 3)
    assert capfd.readouterr() == ("", "")
    assert env.spec.id == "brax:inverted_pendulum"
    assert env.spec.pure
    assert env.spec.action == Box((1,), bounded=True)


def test_arguments_reach_the_class_or_the_parameters() -> None:
    pytest.importorskip("gymnax")
    pytest.importorskip("brax")
    assert make(recipe("gymnax:Catch-bsuite", {"rows": 5}), 1).spec.observation.shape == (5, 5)
    made = make(recipe("gymnax:CartPole-v1", {"max_steps_in_episode": 3}), 1)
    assert made._single._params.max_steps_in_episode == 3
    assert make(recipe("brax:fast", {"episode_length": 3}), 1)._single._episode_steps == 3
    with pytest.raises(EnvError, match=r"no argument 'gravitas'; did you mean 'gravity'\?"):
        make(recipe("gymnax:CartPole-v1", {"gravitas": 1}), 1)
