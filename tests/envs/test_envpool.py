from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from headrace.envs import Episode, HostEnv, make
from headrace.types import Box, Discrete

pytest.importorskip("envpool")


def hosted(env: str, num_envs: int) -> HostEnv:
    made = make(env, num_envs)
    assert isinstance(made, HostEnv)
    return made


def test_cartpole_keeps_final_observations_and_loses_no_step() -> None:
    env = hosted("envpool:CartPole-v1", 3)
    assert env.spec.observation == Box((4,))
    assert env.spec.action == Discrete(2)
    obs = env.reset(0)
    physics: Any = gym.make("CartPole-v1").unwrapped
    physics.reset(seed=0)
    length, ends = np.zeros(3, int), []
    for i in range(100):
        action = np.array([0, 1, i % 2], np.int32)
        step = env.step(action)
        length += 1
        for e in range(3):
            # Gymnasium's own dynamics from the observed state: no transition may cross a reset.
            physics.state, physics.steps_beyond_terminated = tuple(np.float64(obs[e])), None
            expected, reward, terminated, _, _ = physics.step(int(action[e]))
            assert np.allclose(step.next_obs[e], expected, atol=1e-4)
            assert (step.reward[e], step.terminated[e], step.truncated[e]) == (reward, terminated, False)
            if terminated:
                assert np.abs(step.obs[e]).max() <= 0.05, "a fresh start"
                ends.append(Episode(float(length[e]), int(length[e])))
                length[e] = 0
            else:
                assert np.array_equal(step.obs[e], step.next_obs[e])
        obs = step.obs
    assert len(ends) > 15
    finished = env.drain()
    assert [episode[:2] for episode in finished] == [episode[:2] for episode in ends]
    assert [episode.info["elapsed_step"] for episode in finished] == [episode.length for episode in ends]


def test_pendulum_truncates_at_its_limit_again_and_again() -> None:
    env = hosted("envpool:Pendulum-v1", 2)
    assert env.spec.action == Box((1,), bounded=True)
    env.reset(3)
    cut = []
    for i in range(1, 601):
        step = env.step(np.full((2, 1), 2.0, np.float32))
        assert not step.terminated.any()
        if step.truncated.any():
            cut.append(i)
            assert step.truncated.all()
            assert not np.array_equal(step.obs, step.next_obs)
    assert cut == [200, 400, 600]
    assert [episode.length for episode in env.drain()] == [200] * 6


def test_seeds_reproduce() -> None:
    def run(seed: int) -> Any:
        env = hosted("envpool:CartPole-v1", 2)
        return [env.reset(seed), *(env.step(np.zeros(2, np.int32)).obs for _ in range(30))]

    assert np.array_equal(run(1), run(1))
    assert not np.array_equal(run(1), run(2))
    start = run(1)[0]
    assert not np.array_equal(start[0], start[1])


def test_actions_are_rescaled() -> None:
    env = hosted("envpool:Pendulum-v1", 1)
    obs = env.reset(0)
    step = env.step(np.array([[5.0]], np.float32))
    angle = np.arctan2(obs[0, 1], obs[0, 0])
    cost = angle**2 + 0.1 * obs[0, 2] ** 2 + 0.001 * 2.0**2
    assert step.reward[0] == pytest.approx(-cost, abs=1e-4)
