"""pettingzoo: teams as one environment, against real mpe2 and a scripted team."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from headrace.envs import Episode, HostEnv, make
from headrace.envs.base import REMEDY
from headrace.errors import EnvError
from headrace.extras import installing
from headrace.types import Box, MultiDiscrete

pytest.importorskip("mpe2")

import pettingzoo  # after mpe2 is known to be there

SPREAD = "pettingzoo:mpe2.simple_spread_v3"


def spread_continuous(render_mode: str | None = None) -> Any:
    from mpe2 import simple_spread_v3

    return simple_spread_v3.parallel_env(continuous_actions=True, max_cycles=5, render_mode=render_mode)


class Team(pettingzoo.ParallelEnv):
    """Agent i shows (episode, time, i) and is paid `time + i`; ends at step 3, by time limit in odd episodes."""

    metadata = {"name": "team"}
    possible_agents = ["a", "b"]

    def __init__(self, fault: str = "", observation: Any = None, action: Any = None):
        self.fault, self.observation, self.action = fault, observation, action
        self.episode, self.time = -1, 0
        self.given: list[Any] = []
        self.seeds: list[int | None] = []

    def observation_space(self, agent: str) -> Any:
        size = 4 if self.fault == "observation space" and agent == "b" else 3
        return self.observation or spaces.Box(-np.inf, np.inf, (size,), np.float64)

    def action_space(self, agent: str) -> Any:
        number = 3 if self.fault == "action space" and agent == "b" else 2
        return self.action or spaces.Discrete(number, start=1)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        self.episode = 0 if seed is not None else self.episode + 1
        self.time = 0
        self.seeds.append(seed)
        return self.seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self.given.append(actions)
        self.time += 1
        end, even = self.time == 3, self.episode % 2 == 0
        gains = {"a": float(self.time), "b": float(self.time) + 1}
        terminated = {"a": end and even, "b": end and even}
        truncated = {"a": end and not even, "b": end and not even}
        seen = self.seen()
        if self.time == 2:
            match self.fault:
                case "raise":
                    raise RuntimeError("the wheel came off.")
                case "reward":
                    gains["b"] = float("nan")
                case "observation":
                    seen["b"][1] = np.inf
                case "shape":
                    seen["b"] = np.zeros(7)
                case "leave":
                    terminated["a"] = True
                case "silent":
                    del seen["b"]
        return seen, gains, terminated, truncated, {agent: {} for agent in self.agents}

    def seen(self) -> Any:
        if self.observation is not None:
            return {agent: self.observation.sample() for agent in self.possible_agents}
        return {agent: np.array([self.episode, self.time, i], np.float64) for i, agent in enumerate(("a", "b"))}


def hosted(env: Any, num_envs: int = 1, **options: Any) -> HostEnv:
    made = make(env, num_envs, **options)
    assert isinstance(made, HostEnv)
    return made


def played(env: Any) -> None:
    made = hosted(env, 2)
    made.reset(0)
    for _ in range(3):
        made.step(np.zeros((2, 2), np.int32))


def refusal(env: Any) -> str:
    with pytest.raises(EnvError) as caught:
        played(env)
    text = str(caught.value)
    assert "\n" not in text
    assert text[-1] in ".?"
    return text


def test_simple_spread_as_it_is() -> None:
    env = hosted(SPREAD, 4)
    assert env.spec.agents == 3
    assert env.spec.observation == Box((3, 18))
    assert env.spec.action == MultiDiscrete((5, 5, 5))
    assert (env.spec.id, env.spec.num_envs, env.spec.pure) == (SPREAD, 4, False)
    assert env.spec.with_envs(8).agents == 3
    obs = env.reset(0)
    assert (obs.shape, obs.dtype) == ((4, 3, 18), np.float32)
    rng = np.random.default_rng(0)
    total = np.zeros(4)
    for time in range(1, 26):
        step = env.step(rng.integers(0, 5, (4, 3)).astype(np.int32))
        total += step.reward
        assert step.next_obs.shape == (4, 3, 18)
        assert not step.terminated.any()
        assert step.truncated.tolist() == [time == 25] * 4
    assert not np.array_equal(step.obs, step.next_obs)
    episodes = env.drain()
    assert [episode.length for episode in episodes] == [25] * 4
    np.testing.assert_allclose([episode.reward for episode in episodes], total, rtol=1e-5)
    env.close()


def test_the_seed_decides_everything() -> None:
    def played(seed: int) -> Any:
        env = hosted(SPREAD, 2)
        seen = [env.reset(seed).copy()]
        seen += [env.step(np.full((2, 3), i % 5, np.int32)).obs.copy() for i in range(30)]
        return np.array(seen)

    first = played(3)
    assert np.array_equal(first, played(3))
    assert not np.array_equal(first, played(4))
    assert not np.array_equal(first[0, 0], first[0, 1])


def test_continuous_agents_side_by_side() -> None:
    env = hosted(spread_continuous, 2)
    assert env.spec.action == Box((15,), bounded=True)
    assert env.spec.action.low == (0.0,) * 15
    assert env.spec.action.high == (1.0,) * 15
    env.reset(0)
    for _ in range(5):
        step = env.step(np.zeros((2, 15), np.float32))
    assert step.truncated.all()


def test_every_step_is_a_real_transition_and_pays_the_mean() -> None:
    env = hosted(Team, 2)
    assert env.reset(0).tolist() == [[[0, 0, 0], [0, 0, 1]]] * 2
    log = []
    for _ in range(6):
        step = env.step(np.zeros((2, 2), np.int32))
        log.append([np.array(part)[0].tolist() for part in step])
    no, yes = False, True

    def pair(episode: int, time: int) -> list[list[int]]:
        return [[episode, time, 0], [episode, time, 1]]

    assert log == [
        [pair(0, 1), 1.5, no, no, pair(0, 1)],
        [pair(0, 2), 2.5, no, no, pair(0, 2)],
        [pair(1, 0), 3.5, yes, no, pair(0, 3)],
        [pair(1, 1), 1.5, no, no, pair(1, 1)],
        [pair(1, 2), 2.5, no, no, pair(1, 2)],
        [pair(2, 0), 3.5, no, yes, pair(1, 3)],
    ]
    assert env.drain() == [Episode(7.5, 3)] * 4
    assert env.drain() == []


def test_actions_reach_the_agents_as_their_own_spaces_have_them() -> None:
    made: list[Team] = []

    def team() -> Team:
        made.append(Team())
        return made[-1]

    env = hosted(team, 2)
    env.reset(5)
    env.step(np.array([[0, 1], [1, 0]], np.int32))
    assert [one.given for one in made] == [[{"a": 1, "b": 2}], [{"a": 2, "b": 1}]]
    assert all(one.action_space("a").contains(action) for one in made for action in one.given[0].values())
    assert made[0].seeds != made[1].seeds


def test_pictures_are_seen_as_flat_rows() -> None:
    env = hosted(lambda: Team(observation=spaces.Box(0, 255, (4, 5), np.uint8)), 2)
    assert env.spec.observation == Box((2, 20), "uint8")
    assert env.reset(0).shape == (2, 2, 20)
    assert env.step(np.zeros((2, 2), np.int32)).obs.dtype == np.uint8


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("raise", "(environment 0) raised RuntimeError: the wheel came off at step 2."),
        ("reward", f"(environment 0) returned a reward that is not finite at step 2{REMEDY}."),
        ("observation", f"(environment 0) returned an observation that is not finite at step 2{REMEDY}."),
        ("shape", "(environment 0) returned an observation of shape (7,) where its space says (3,) at step 2."),
        (
            "leave",
            "(environment 0) ended at step 2 for a and not for the others; headrace plays teams that stay together",
        ),
        ("silent", "(environment 0) returned nothing for agent 'b' at step 2."),
        ("observation space", "for agent 'a' but of"),
        ("action space", "headrace plays teams of equals"),
    ],
)
def test_what_goes_wrong_is_said_in_a_sentence(fault: str, sentence: str) -> None:
    assert sentence in refusal(lambda: Team(fault))


def test_what_cannot_be_a_team_is_refused() -> None:
    parts = spaces.Dict({"x": spaces.Discrete(2)})
    assert "in a team headrace observes Box alone" in refusal(lambda: Team(observation=parts))
    assert "headrace acts in Discrete" in refusal(lambda: Team(action=spaces.MultiBinary(2)))
    assert "so it must take no arguments" in refusal(lambda fault: Team())
    assert "is not a module of mpe2; did you mean 'simple_spread_v3'?" in refusal("pettingzoo:mpe2.simple_spred_v3")
    assert "has no function parallel_env" in refusal("pettingzoo:math")
    assert "names no module" in refusal("pettingzoo:")
    assert installing("marl") in refusal("pettingzoo:no_such_package.env")


def test_the_wrong_number_of_actions_is_refused() -> None:
    env = hosted(Team, 2)
    env.reset(0)
    with pytest.raises(EnvError, match="has 2 environments but got 3 actions"):
        env.step(np.zeros((3, 2), np.int32))


def test_drawing_a_team() -> None:
    env = hosted(SPREAD, 1, render=True)
    env.reset(0)
    frame = env.render()
    assert frame is not None
    assert frame.dtype == np.uint8
    assert frame.ndim == 3
    env.close()
    assert hosted(SPREAD, 1).render() is None
