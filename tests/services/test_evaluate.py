"""evaluate: exactly the first episode of every environment, from the same starts each time."""

from __future__ import annotations

import itertools

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from headrace.compile.cells import make_cells
from headrace.core import Algorithm, Env, Learned, Reads, Replay, Writes, stage
from headrace.graph import trace
from headrace.services import evaluate
from headrace.services.evaluate import Evaluator, Player, Score
from headrace.settings.config import ReplayConfig
from headrace.types import Box, Discrete, EnvSpec

count = itertools.count()


class Lengths(gym.Env):
    """The i-th made lasts i + 1 steps in its first episode and pays a fortune in every later one."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        self.length = next(count) + 1
        self.episode = 0

    def reset(self, *, seed=None, options=None):
        self.episode = 0 if seed is not None else self.episode + 1
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        over = self.t == self.length
        reward = (1.0 if action == 1 else 0.25) if self.episode == 0 else 1e6
        return (
            np.asarray([self.t], np.float32),
            reward,
            over and self.length % 2 == 0,
            over and self.length % 2 == 1,
            {},
        )


class Constant(Algorithm[ReplayConfig]):
    """Plays action 1 where its cell is positive."""

    def cells(self, spec, key):
        return {"w": Learned(jnp.asarray(1.0), optax.sgd(0.1))}

    @stage
    def act(self, obs, w: Reads, key):
        return jax.random.randint(key, (len(obs),), 0, 2)

    @stage
    def play(self, obs, w: Reads):
        return jnp.broadcast_to((w > 0).astype(jnp.int32), (len(obs),))

    @stage
    def learn(self, batch, w: Writes):
        return w, {}

    def loop(self, env: Env, replay: Replay) -> None:
        replay.insert(env.step(self.act(env.observe())))
        self.learn(replay.sample(4))


@pytest.fixture(scope="module")
def graph():
    return trace(Constant(), EnvSpec("lengths", Box((1,)), Discrete(2), 8))


def cells(value):
    return {"w": Learned(jnp.asarray(value), optax.sgd(0.1))}


def test_the_first_episode_of_each_environment_counts_and_no_other(graph):
    global count
    count = itertools.count()
    evaluator = Evaluator(graph, make_cells(Constant(), graph, 0), Lengths, 0, 6)
    first = evaluator.score(cells(1.0))
    assert first.lengths == (1, 2, 3, 4, 5, 6)
    assert first.returns == (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    assert evaluator.score(cells(1.0)) == first
    worse = evaluator.score(cells(-1.0))
    assert worse.returns == tuple(0.25 * n for n in range(1, 7))
    assert worse.lengths == first.lengths
    evaluator.close()


def test_an_episode_that_never_ends_counts_as_it_stands(graph, monkeypatch):
    class Endless(Lengths):
        def step(self, action):
            obs, *_ = super().step(action)
            return obs, 1.0, False, False, {}

    monkeypatch.setattr(evaluate, "LONGEST", 30)
    score = Evaluator(graph, cells(1.0), Endless, 0, 2).score(cells(1.0))
    assert (score.returns, score.lengths) == ((30.0, 30.0), (30, 30))


def test_a_score_in_numbers():
    score = Score((1.0, 3.0, 5.0), (10, 20, 60))
    assert score.mean_reward == 3.0
    assert score.std_reward == pytest.approx(np.std([1, 3, 5]))
    assert score.mean_ep_length == 30.0


def test_a_player_plays_as_the_cells_it_was_last_given(graph):
    player = Player(graph, make_cells(Constant(), graph, 0))
    player.load(cells(1.0))
    assert player(np.zeros((3, 1), np.float32)).tolist() == [1, 1, 1]
    player.load(cells(-1.0))
    assert player(np.zeros((3, 1), np.float32)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("env", ["CartPole-v1"])
def test_starts_are_the_same_each_time_and_others_for_another_seed(env):
    graph = trace(Constant(), EnvSpec(env, Box((4,)), Discrete(2), 8))
    scores = []
    for seed in (0, 0, 1):
        evaluator = Evaluator(graph, make_cells(Constant(), graph, 0), env, seed, 8)
        scores += [evaluator.score(cells(1.0)), evaluator.score(cells(1.0))]
        evaluator.close()
    assert scores[0] == scores[1] == scores[2] == scores[3]
    assert scores[4] == scores[5] != scores[0]
    assert all(returned == length for returned, length in zip(scores[0].returns, scores[0].lengths, strict=True))
