"""What an episode says of itself reaches the metrics, whoever steps it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from headrace import DQN, train
from headrace.envs import Episode, make
from headrace.envs.base import numbers
from headrace.errors import UsageError

BALANCE = "examples/wrapped_env.py:balance"
TINY = {"num_envs": 4, "hidden": (8,), "batch_size": 16, "warmup": 32, "replay_capacity": 500}


class Lucky(gym.Env[Any, Any]):
    """Episodes of two steps, every fourth a success; only the others say how badly they went."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode, self.time = 0 if seed is not None else self.episode + 1, 0
        return np.zeros(1, np.float32), {"is_success": True}

    def step(self, action: Any) -> Any:
        self.time += 1
        won = self.episode % 4 == 0
        info = {"is_success": np.bool_(won), "name": "lucky", "final_info": {"score": np.array([self.episode])}}
        return np.zeros(1, np.float32), 1.0, self.time == 2, False, info | ({} if won else {"miss": 0.5})


def test_the_numbers_of_an_info() -> None:
    info = {"a": True, "b": np.float32(0.5), "c": "text", "d": np.zeros(2), "e": np.nan, "episode": {"r": np.array(3)}}
    assert numbers(info) == {"a": 1.0, "b": 0.5, "episode/r": 3.0}


def test_an_episode_keeps_those_of_its_last_step() -> None:
    env = make(Lucky, 1)
    env.reset(0)
    for _ in range(4):
        env.step(np.zeros(1, np.int32))
    first, second = env.drain()
    assert first == Episode(2.0, 2, {"is_success": 1.0, "final_info/score": 0.0})
    assert second.info == {"is_success": 0.0, "final_info/score": 1.0, "miss": 0.5}


def test_it_crosses_from_other_processes_by_name(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(
        DQN(**TINY),
        BALANCE,
        env_kwargs={"limit": 5},
        log_info=["episode/l", "nothing"],
        steps=400,
        eval_episodes=2,
        progress=False,
        out=tmp_path / "run",
        policy="desktop",
    )
    last = run.metrics[-1]
    assert last["rollout/success_rate"] == last["eval/success_rate"] == 1.0
    assert last["rollout/episode/l"] == last["rollout/ep_len_mean"] == 5
    assert "rollout/nothing" not in last
    assert "--log-info nothing found nothing" in capsys.readouterr().err


def test_absent_where_no_episode_says_it_and_a_share_where_some_do(tmp_path: Any) -> None:
    options = {"policy": "single", "progress": False, "eval_episodes": 3, "steps": 64}
    run = train(DQN(**TINY), Lucky, log_info=["miss"], out=tmp_path / "some", **options)
    assert run.evaluate(2).success_rate == 1.0
    last = run.metrics[-1]
    assert last["rollout/success_rate"] == 0.25
    assert last["eval/success_rate"] == 1.0  # the first episode of each
    assert last["rollout/miss"] == 0.5
    last = train(DQN(**TINY), "CartPole-v1", evaluate=False, out=tmp_path / "none", **options).metrics[-1]
    assert not {"rollout/success_rate", "eval/success_rate"} & set(last)


def test_names_that_mean_nothing_are_refused(tmp_path: Any) -> None:
    for env, names, said in (
        ("CartPole-v1", ["ep_rew_mean"], "would take the place of rollout/ep_rew_mean"),
        ("CartPole-v1", "score", "log_info takes a list of names, got 'score'"),
        ("gymnax:CartPole-v1", ["score"], "one written in JAX gives no info"),
    ):
        with pytest.raises(UsageError, match=said):
            train(DQN(**TINY), env, log_info=names, steps=64, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
