"""run.actor: what the environment shows goes in as it is, what it takes comes out, and all else is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import headrace
from headrace.errors import UsageError

PPO = {"num_envs": 2, "horizon": 8, "minibatch_size": 8, "hidden": (8,)}


class Shown(gym.Env):
    """Shows and takes samples of its spaces; what it is given must be one."""

    def __init__(self, seen: spaces.Space, taken: spaces.Space):
        self.observation_space, self.action_space = seen, taken

    def reset(self, *, seed=None, options=None):
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        return self.observation_space.sample(), 1.0, False, bool(self.np_random.random() < 0.2), {}


def trained(seen: spaces.Space, taken: spaces.Space, out: Path, **settings: Any) -> headrace.Run:
    algorithm = headrace.PPO(**(PPO | settings))
    made = {"policy": "single", "steps": 32, "evaluate": False, "progress": False}
    return headrace.train(algorithm, lambda: Shown(seen, taken), out=out, **made)


NESTED = spaces.Dict({"body": spaces.Dict({"angle": spaces.Box(-1, 1, (2,))}), "floor": spaces.Discrete(3, start=-1)})
TUPLE = spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(3)))))
GRID = spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, 2]])
MATRIX = spaces.Box(np.array([[-2, 0, 1]] * 2, np.float32), np.array([[3, 1, 9]] * 2, np.float32))


@pytest.mark.parametrize(
    ("seen", "taken"),
    [
        (NESTED, spaces.Discrete(3, start=5)),
        (TUPLE, MATRIX),
        (GRID, GRID),
        (spaces.Discrete(2, start=5), spaces.Box(-1, 1, ())),
    ],
    ids=["nested", "tuple", "grid", "scalar"],
)
def test_what_the_environment_shows_is_answered_by_what_it_takes(seen, taken, tmp_path):
    actor = trained(seen, taken, tmp_path / "run").actor
    for _ in range(5):
        assert taken.contains(actor(seen.sample()))


def test_choices_count_from_where_the_environment_does(tmp_path):
    """Learns which of two signs it is shown, called 5 and 6, and says 0 or 1; what is exported too."""

    class Signs(Shown):
        def __init__(self):
            super().__init__(spaces.Discrete(2, start=5), spaces.Discrete(2))

        def reset(self, *, seed=None, options=None):
            self.sign, info = super().reset(seed=seed)
            return self.sign, info

        def step(self, action):
            reward = float(action == self.sign - 5)
            self.sign, _, terminated, truncated, info = super().step(action)
            return self.sign, reward, terminated, truncated, info

    algorithm = headrace.PPO(**(PPO | {"horizon": 64, "minibatch_size": 32, "learning_rate": 3e-2}))
    run = headrace.train(
        algorithm, Signs, policy="single", steps=2_000, evaluate=False, progress=False, out=tmp_path / "run"
    )
    assert [int(run.actor(sign)) for sign in (5, 6)] == [0, 1]
    assert run.actor(np.array([6, 5, 6])).tolist() == [1, 0, 1]
    for sign in (4, 7, 77):
        with pytest.raises(UsageError, match="a choice that Discrete"):
            run.actor(sign)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(run.export(tmp_path / "actor.onnx"))
    (name,) = [given.name for given in session.get_inputs()]
    assert session.run(None, {name: np.array([5, 6], np.int32)})[0].tolist() == [0, 1]


def test_exported_grids_have_the_shape_of_the_environment(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    run = trained(GRID, GRID, tmp_path / "run")
    session = onnxruntime.InferenceSession(run.export(tmp_path / "actor.onnx"))
    seen = np.stack([GRID.sample() for _ in range(3)]).astype(np.int32)
    found = session.run(None, {session.get_inputs()[0].name: seen})[0]
    assert found.tolist() == run.actor(seen).tolist()
    assert found.shape == (3, 2, 2)


def test_other_observations_are_refused_in_a_sentence(tmp_path):
    run = trained(spaces.Box(-1, 1, (3,)), spaces.Discrete(2), tmp_path / "run")
    assert run.actor([0.0, 0.0, 0.0]) in (0, 1)
    wrong = [
        ({"observation": np.zeros(3)}, "arrays of numbers, got a dict"),
        (np.zeros((0, 3), np.float32), "at least one observation, got none"),
        (np.array([0.0, np.nan, 0.0]), "not finite"),
        (np.zeros(4), r"takes observations of float32\[3\], got float64\[4\]"),
        ([[1.0], [1.0, 2.0]], "arrays of numbers, got a list"),
        ("left", "arrays of numbers, got a str"),
    ]
    for obs, said in wrong:
        with pytest.raises(UsageError, match=said):
            run.actor(obs)
    nested = trained(NESTED, spaces.Discrete(2), tmp_path / "nested")
    with pytest.raises(UsageError, match=r"observations of body/angle float32\[2\], floor int32\[\], got body/angle "):
        nested.actor({"body": {"angle": np.zeros(2)}})
    with pytest.raises(UsageError, match="episodes must be at least 1, got 0"):
        nested.evaluate(0)
