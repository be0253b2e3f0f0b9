"""Atari: both providers show the same kind of picture, what is for learning only is left out of scores."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from headrace.cli import main
from headrace.envs import HostEnv, make, recipe, scored
from headrace.envs.atari import FireReset
from headrace.errors import EnvError
from headrace.run.record import read_metrics
from headrace.types import Box, Discrete


def game(name: str, **kwargs: Any) -> HostEnv:
    made = make(recipe(name, kwargs), 2)
    assert isinstance(made, HostEnv)
    return made


@pytest.mark.parametrize("name", ["ALE/Pong-v5", "envpool:Pong-v5"])
def test_pong_of_both_providers_is_four_grey_pictures_of_bytes(name: str) -> None:
    env = game(name, atari=True)
    assert env.spec.observation == Box((4, 84, 84), "uint8")
    assert env.spec.action == Discrete(6)
    seen = [env.reset(3), *(env.step(np.array([2, 3], np.int32)).obs for _ in range(30))]
    assert all(obs.shape == (2, 4, 84, 84) and obs.dtype == np.uint8 for obs in seen)
    last, before = seen[-1], seen[-2]
    assert np.array_equal(last[:, :3], before[:, 1:]), "a stack moves on by one picture"
    assert not np.array_equal(last[0], last[1]), "the paddles went apart"
    again = game(name, atari=True)
    assert np.array_equal(again.reset(3), seen[0])


@pytest.mark.parametrize("name", ["ALE/Breakout-v5", "envpool:Breakout-v5"])
def test_a_lost_life_ends_the_episode_where_that_is_asked_for_and_fire_is_pressed(name: str) -> None:
    lengths = []
    for whole in (True, False):
        env = game(name, atari=True, terminal_on_life_loss=not whole, repeat_action_probability=0.0)
        env.reset(0)
        for _ in range(250):
            env.step(np.zeros(2, np.int32))
        lengths.append([episode.length for episode in env.drain()])
    # Nobody presses FIRE here but the reset, so one life is lost and the next is not begun.
    assert lengths[0] == []
    assert len(lengths[1]) > 2
    assert max(lengths[1]) < 100


def test_what_is_for_learning_only_is_not_scored() -> None:
    env = recipe("ALE/Breakout-v5", {"atari": True, "terminal_on_life_loss": True, "stack_size": 2})
    assert scored(env).kwargs == env.kwargs | {"terminal_on_life_loss": False, "clip_reward": False}
    assert scored("CartPole-v1") == "CartPole-v1"
    assert make(scored(env), 1).spec.observation == Box((2, 84, 84), "uint8")


def test_rewards_are_clipped_to_their_sign() -> None:
    made: Any = make(recipe("ALE/Pong-v5", {"atari": True}), 1)
    names = []
    layer = made._envs[0]
    while isinstance(layer, gym.Wrapper):
        names.append(type(layer).__name__)
        layer = layer.env
    assert names[:4] == ["FrameStackObservation", "TransformReward", "FireReset", "AtariPreprocessing"]
    assert [made._envs[0].env.func(reward) for reward in (-7.0, 0.0, 200.0)] == [-1.0, 0.0, 1.0]


def test_fire_reset_starts_anew_where_the_first_step_ends_the_episode() -> None:
    class Ends(gym.Env[Any, Any]):
        starts = 0

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            self.starts += 1
            return self.starts, {}

        def step(self, action: int) -> Any:
            return action * 100, 0.0, self.starts == 1, False, {}

    env = FireReset(Ends())
    assert env.reset(seed=0)[0] == 2
    assert env.reset()[0] == 100


@pytest.mark.parametrize("name", ["CartPole-v1", "envpool:CartPole-v1", "gymnax:CartPole-v1"])
def test_only_games_are_preprocessed(name: str) -> None:
    with pytest.raises(EnvError, match=rf"'{name}' is not an Atari game; --atari is for those of ale-py and EnvPool"):
        game(name, atari=True)


def test_a_misspelt_game_is_answered_with_the_nearest() -> None:
    with pytest.raises(EnvError, match=r"'ALE/Pnog-v5' is not a registered .* did you mean 'ALE/Pong-v5'\?"):
        game("ALE/Pnog-v5")


def test_the_command_line_trains_on_pong(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["encoder=small", "hidden=16", "num_envs=2", "batch_size=4", "warmup=8", "replay_capacity=100"]
    words = ["train", "dqn", "ALE/Pong-v5", "--atari", "--steps", "24", "--policy", "single", "--no-eval", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "run"), "--set", *small, "samples_per_insert=1"]) == 0
    assert read_metrics(tmp_path / "run")[-1]["time/updates"] > 0
    assert "A.L.E" not in capsys.readouterr().err
