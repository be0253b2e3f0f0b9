from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from headrace.envs import Episode, HostEnv, make
from headrace.envs.base import REMEDY
from headrace.envs.gymnasium_env import STEPPED
from headrace.errors import EnvError
from headrace.types import Box, Dict, Discrete, MultiDiscrete

from .scripted import Counter, Everything, Faulty, Masked


def hosted(env: Any, num_envs: int = 1, **options: Any) -> HostEnv:
    made = make(env, num_envs, **options)
    assert isinstance(made, HostEnv)
    return made


def test_every_step_is_a_real_transition_with_the_true_final_observation() -> None:
    lengths = iter([3, 2])
    env = hosted(lambda: Counter(next(lengths)), 2)
    obs = env.reset(0).copy()
    assert obs.dtype == np.float32
    assert obs.tolist() == [[0, 0], [0, 0]]
    log = []
    for _ in range(6):
        step = env.step(np.zeros(2, np.int32))
        log.append([np.array(part).tolist() for part in step])
        assert step.reward.dtype == np.float32
        assert step.terminated.dtype == bool
    # Per step: obs, reward, terminated, truncated, next_obs; environment 0 lasts 3 steps, environment 1 lasts 2.
    no, yes = False, True
    assert log == [
        [[[0, 1], [0, 1]], [1, 1], [no, no], [no, no], [[0, 1], [0, 1]]],
        [[[0, 2], [1, 0]], [2, 2], [no, yes], [no, no], [[0, 2], [0, 2]]],
        [[[1, 0], [1, 1]], [3, 1], [yes, no], [no, no], [[0, 3], [1, 1]]],
        [[[1, 1], [2, 0]], [1, 2], [no, no], [no, yes], [[1, 1], [1, 2]]],
        [[[1, 2], [2, 1]], [2, 1], [no, no], [no, no], [[1, 2], [2, 1]]],
        [[[2, 0], [3, 0]], [3, 2], [no, yes], [yes, no], [[1, 3], [2, 2]]],
    ]
    assert env.drain() == [Episode(3, 2), Episode(6, 3), Episode(3, 2), Episode(6, 3), Episode(3, 2)]
    assert env.drain() == []


def test_an_episode_that_terminates_at_its_limit_is_terminated_only() -> None:
    env = hosted(lambda: Counter(1, both=True))
    env.reset(0)
    step = env.step(np.zeros(1, np.int32))
    assert step.terminated.tolist() == [True]
    assert step.truncated.tolist() == [False]


def test_reset_forgets_unfinished_episodes() -> None:
    env = hosted(Counter, 1)
    env.reset(0)
    env.step(np.zeros(1, np.int32))
    env.reset(0)
    for _ in range(3):
        env.step(np.zeros(1, np.int32))
    assert env.drain() == [Episode(6, 3)]


def test_arrays_stay_valid_during_the_next_call() -> None:
    env = hosted(Counter, 2)
    before = env.reset(0)
    kept = [before.copy()]
    for _ in range(8):
        step = env.step(np.zeros(2, np.int32))
        assert np.array_equal(before, kept[-1])
        before = step.obs
        kept.append(step.obs.copy())


def test_seeds_are_given_once_and_differ_between_environments() -> None:
    made: list[Counter] = []

    def create() -> Counter:
        made.append(Counter(1, spaces.Box(-1, 1, (1,))))
        return made[-1]

    env = hosted(create, 3)
    env.reset(7)
    env.step(np.zeros((3, 1)))
    first = [counter.seeds[0] for counter in made]
    assert len(set(first)) == 3
    assert None not in first
    assert [counter.seeds[1:] for counter in made] == [[None]] * 3
    env.reset(7)
    assert [counter.seeds[2] for counter in made] == first
    env.reset(8)
    assert not set(first) & {counter.seeds[3] for counter in made}


def test_the_same_seed_gives_the_same_trajectory() -> None:
    def run(seed: int) -> list[Any]:
        env = hosted("CartPole-v1", 3)
        log = [env.reset(seed).copy()]
        for i in range(60):
            log.append(env.step(np.full(3, i % 3 == 0, np.int32)).obs.copy())
        assert env.drain()
        return log

    assert np.array_equal(run(1), run(1))
    assert not np.array_equal(run(1), run(2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounded_actions_are_clipped_and_rescaled(dtype: Any) -> None:
    inner = Counter(100, spaces.Box(np.array([-2, 0], dtype), np.array([2, 10], dtype), dtype=dtype))
    env = hosted(lambda: inner)
    assert env.spec.action == Box((2,), bounded=True)
    env.reset(0)
    for action in ([-1, -1], [0, 0], [1, 1], [-3, 9], [0.5, -0.5]):
        env.step(np.array([action], np.float32))
    assert np.array(inner.actions).tolist() == [[-2, 0], [0, 5], [2, 10], [-2, 10], [1, 2.5]]
    assert inner.actions[0].dtype == dtype


def test_rescaled_actions_never_leave_their_bounds() -> None:
    rng = np.random.default_rng(0)
    low = rng.normal(size=500).astype(np.float32)
    space = spaces.Box(low, low + rng.exponential(size=500).astype(np.float32))
    inner = Counter(100, space)
    env = hosted(lambda: inner)
    env.reset(0)
    for action in (-1, 1):
        env.step(np.full((1, 500), action, np.float32))
    assert all(space.contains(action) for action in inner.actions)


@pytest.mark.parametrize("bound", [np.inf, np.finfo(np.float32).max])
def test_unbounded_actions_pass_as_they_are(bound: float) -> None:
    inner = Counter(100, spaces.Box(-bound, bound, (2,)))
    env = hosted(lambda: inner)
    assert env.spec.action == Box((2,), bounded=False)
    env.reset(0)
    env.step(np.array([[5, -70]], np.float32))
    assert inner.actions[0].tolist() == [5, -70]


def test_discrete_actions_start_where_their_space_does() -> None:
    one, many = Counter(9, spaces.Discrete(3, start=5)), Counter(9, spaces.MultiDiscrete([2, 3], start=[1, 4]))
    for inner, action, space in (
        (one, [2], Discrete(3)),
        (many, [[1, 0]], MultiDiscrete((2, 3))),
    ):
        env = hosted(lambda inner=inner: inner)
        assert env.spec.action == space
        env.reset(0)
        env.step(np.array(action, np.int32))
    assert one.actions == [7]
    assert many.actions[0].tolist() == [2, 4]


def test_every_observation_space() -> None:
    inner = Everything()
    env = hosted(lambda: inner)
    assert env.spec.observation == Dict(
        (
            ("action_mask", Box((2,), "bool")),
            ("nested/a", Discrete(4)),
            ("nested/b", Box((2,), "int32")),
            ("pair/0", Box((3,))),
            ("pair/1", MultiDiscrete((2, 3, 4, 5))),
            ("z", Box((2, 2, 1), "uint8")),
        )
    )
    env.reset(0)
    obs = env.step(np.array([0], np.int32)).obs
    assert inner.actions == [-1]
    assert {name: (part.tolist(), str(part.dtype)) for name, part in obs.items()} == {
        "action_mask": ([[False, True]], "bool"),
        "nested/a": ([1], "int32"),
        "nested/b": ([[-1, 1]], "int32"),
        "pair/0": ([[0, 1, 1]], "float32"),
        "pair/1": ([[1, 2, 3, 4]], "int32"),
        "z": ([[[[1], [1]], [[1], [1]]]], "uint8"),
    }


def test_tuples_become_numbered_names() -> None:
    class Pair(Counter):
        def __init__(self) -> None:
            Counter.__init__(self)
            self.observation_space = spaces.Tuple((spaces.Discrete(9), spaces.Box(-9, 9, (1,))))

        def observe(self) -> Any:
            return self.time, np.array([-self.time], np.float32)

    env = hosted(Pair)
    assert env.spec.observation == Dict((("0", Discrete(9)), ("1", Box((1,)))))
    env.reset(0)
    obs = env.step(np.zeros(1, np.int32)).obs
    assert obs["0"].tolist() == [1]
    assert obs["1"].tolist() == [[-1]]


def test_masks_follow_the_info() -> None:
    env = hosted(Masked, 2)
    assert env.spec.observation == Dict((("action_mask", Box((3,), "bool")), ("observation", Discrete(10))))
    obs = env.reset(0)
    first = [[True, False, False]] * 2
    assert obs["action_mask"].tolist() == first
    assert obs["observation"].tolist() == [0, 0]
    assert env.step(np.zeros(2, np.int32)).obs["action_mask"].tolist() == [[False, True, False]] * 2
    step = env.step(np.zeros(2, np.int32))
    assert step.terminated.all()
    assert step.next_obs["observation"].tolist() == [2, 2]
    assert step.next_obs["action_mask"].all(), "where nothing is allowed, everything is"
    assert step.obs["action_mask"].tolist() == first


def test_masks_join_dicts_and_flatten_many_choices() -> None:
    env = hosted(partial(Masked, spaces.Dict({"a": spaces.Discrete(5)}), spaces.MultiDiscrete([2, 3])))
    assert env.spec.observation == Dict((("a", Discrete(5)), ("action_mask", Box((5,), "bool"))))
    env.reset(0)
    assert env.step(np.zeros((1, 2), np.int32)).obs["action_mask"].tolist() == [[False, True, False, True, False]]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("raise", "raised RuntimeError: the wheel came off at step 2."),
        ("exit", "raised SystemExit: 0 at step 2."),
        ("reward", f"returned a reward that is not finite at step 2{REMEDY}."),
        ("observation", f"returned an observation that is not finite at step 2{REMEDY}."),
        ("shape", "returned an observation of shape (3,) where its space says (2,) at step 2."),
        ("old api", f"returned 4 values from step, which gives {STEPPED} at step 2."),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_faults_name_environment_and_step(fault: str, words: str) -> None:
    faults = iter(["", fault])
    env = hosted(lambda: Faulty(next(faults)), 2)
    env.reset(0)
    env.step(np.zeros(2, np.int32))
    with pytest.raises(EnvError) as caught:
        env.step(np.zeros(2, np.int32))
    text = str(caught.value)
    assert "<lambda>' (environment 1)" in text
    assert text.endswith(words)


def test_shapes_that_add_up_are_wrong_all_the_same() -> None:
    class Misshapen(Faulty):
        def step(self, action: Any) -> Any:
            _, *rest = super().step(action)
            return np.zeros(1 if self.fault == "short" else 3, np.float32), *rest

    faults = iter(["short", "long"])
    env = hosted(lambda: Misshapen(next(faults)), 2)
    env.reset(0)
    with pytest.raises(
        EnvError, match=r"\(environment 0\) returned an observation of shape \(1,\) where its space says"
    ):
        env.step(np.zeros(2, np.int32))


def test_a_diverged_action_is_named_as_the_cause() -> None:
    env = hosted("Pendulum-v1", 2)
    env.reset(0)
    with pytest.raises(EnvError, match=r"\(environment 1\).*not finite at step 1, after an action that was not finite"):
        env.step(np.array([[0], [np.nan]], np.float32))


def test_mujoco_acts_within_its_bounds() -> None:
    pytest.importorskip("mujoco")
    env = hosted("HalfCheetah-v5", 2)
    assert env.spec.observation == Box((17,))
    assert env.spec.action == Box((6,), bounded=True)
    env.reset(0)
    far = env.step(np.full((2, 6), 5.0, np.float32)).next_obs.copy()
    env.reset(0)
    assert np.array_equal(env.step(np.ones((2, 6), np.float32)).next_obs, far)
    env.close()


def test_making_is_silent(capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder) -> None:
    pytest.importorskip("mujoco")
    hosted("HalfCheetah-v4", 1).reset(0)
    out, err = capfd.readouterr()
    assert (out, err, len(recwarn)) == ("", "", 0)


def test_only_an_environment_made_to_render_renders() -> None:
    class Drawn(Counter):
        metadata = {"render_modes": ["rgb_array"]}

        def __init__(self, render_mode: str | None = None):
            Counter.__init__(self)
            self.render_mode = render_mode

        def render(self) -> Any:
            assert self.render_mode == "rgb_array"
            return np.full((4, 5, 3), self.time, np.uint8)

    env = hosted(Drawn, 2, render=True)
    env.reset(0)
    env.step(np.zeros(2, np.int32))
    frame = env.render()
    assert frame is not None
    assert frame.shape == (4, 5, 3)
    assert frame[0, 0, 0] == 1
    assert hosted(Drawn, 2).render() is None


class Odd(gym.Env):
    """Does what its arguments say, in place of what Gymnasium asks for."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, reset: Any = None, step: Any = None, close: bool = True, without: str = ""):
        self.given = reset, step
        self.closes = close
        if without:
            setattr(self, without, None)

    def reset(self, *, seed=None, options=None):
        return (np.zeros(2, np.float32), {}) if self.given[0] is None else self.given[0]

    def step(self, action):
        return (np.zeros(2, np.float32), 0.0, False, False, {}) if self.given[1] is None else self.given[1]

    def close(self):
        if not self.closes:
            raise RuntimeError("the door is stuck")


class Seedless(Odd):
    def reset(self):
        return np.zeros(2, np.float32), {}


ZERO = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Odd(reset=ZERO), "returned a ndarray from reset, which gives (observation, info)"),
        (lambda: Odd(step=(ZERO, 0.0, False, {})), "returned 4 values from step, which gives (observation, reward, "),
        (lambda: Odd(step=(ZERO, None, False, False, {})), "returned the reward None, which is no number at step 1"),
        (lambda: Odd(step=(ZERO, ZERO, False, False, {})), "returned the reward array([0., 0.], dtype=float32), which"),
        (
            lambda: Odd(step=(ZERO, math.nan, False, False, {})),
            "not finite at step 1; mend the environment, or wrap",
        ),
        (Seedless, "has a reset that takes no seed; write it as reset(self, *, seed=None, options=None)"),
        (lambda: Odd(without="action_space"), "has no action_space; set self.action_space to a Gymnasium space"),
        (lambda: Odd(without="observation_space"), "has no observation_space; set self.observation_space"),
    ],
)
def test_what_breaks_the_rules_is_told_which(made, said):
    with pytest.raises(EnvError) as caught:  # noqa: PT012
        env = make(made, 2)
        env.reset(0)
        env.step(np.zeros(2, np.int32))
    assert said in str(caught.value)


def test_an_environment_that_cannot_be_closed_is_used_all_the_same(capsys):
    env = make(lambda: Odd(close=False), 2)
    env.reset(0)
    env.close()
    assert capsys.readouterr().err.count("raised RuntimeError: the door is stuck in its close.") == 2


@pytest.mark.parametrize(
    ("seen", "taken", "said"),
    [
        (spaces.Box(-1, 1, (0,)), spaces.Discrete(2), "has an empty observation space"),
        (spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (0,)), "has an empty action space"),
        (
            spaces.Dict({"a/b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(2)})}),
            spaces.Discrete(2),
            "two observations that would be called 'a/b'; rename one",
        ),
    ],
)
def test_spaces_that_mean_nothing_are_refused(seen, taken, said):
    def made() -> Odd:
        env = Odd()
        env.observation_space, env.action_space = seen, taken
        return env

    with pytest.raises(EnvError, match=said):
        make(made, 1)


def test_huge_rewards_are_no_warning():
    env = make(lambda: Odd(step=(ZERO, 1e30, False, False, {})), 2)
    env.reset(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert env.step(np.zeros(2, np.int32)).reward.tolist() == [np.float32(1e30)] * 2
