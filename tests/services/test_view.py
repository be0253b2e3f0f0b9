"""view: the actor plays as evaluated, every step is drawn before it is taken, and what cannot be drawn is refused."""

from __future__ import annotations

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.compile.cells import make_cells
from headrace.envs import BatchedEnv, SingleEnv, make, recipe
from headrace.errors import EnvError
from headrace.services.evaluate import EVALUATION_SEED, Evaluator
from headrace.services.view import Viewer, fit
from headrace.types import Box, Discrete

STEPS = 3
SHORT = 40
HEIGHT, WIDTH = 6, 8


class Painter(gym.Env):
    """Lasts three steps, and paints how many it took, always into the same array."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    seeds: list[int] = []
    closed = 0

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.canvas = np.zeros((HEIGHT, WIDTH, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            Painter.seeds.append(seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 0.5, self.t == STEPS, False, {}

    def render(self):
        self.canvas[:] = self.t
        return self.canvas

    def close(self):
        Painter.closed += 1


class Shy(Painter):
    """Draws nothing."""

    def render(self):
        return None


class Grey(Painter):
    """Draws in shades of grey."""

    def render(self):
        return np.zeros((HEIGHT, WIDTH))


class Dial(SingleEnv):
    """A JAX environment that can draw itself."""

    observation = Box((1,))
    action = Discrete(2)

    def reset(self, key):
        return jnp.zeros((), jnp.int32), jnp.zeros(1)

    def step(self, state, action, key):
        return state + 1, jnp.zeros(1), jnp.float32(0.5), state + 1 == STEPS, jnp.asarray(False)

    def render(self, state):
        return np.full((HEIGHT, WIDTH, 3), int(state), np.uint8)


class Blind(Dial):
    """A JAX environment that cannot."""

    def render(self, state):
        return None


def dial(num_envs):
    return BatchedEnv("dial", Dial(), num_envs)


def blind(num_envs):
    return BatchedEnv("blind", Blind(), num_envs)


def pendulum_env(render_mode=None):
    """Pendulum with shorter episodes."""
    return gym.make("Pendulum-v1", max_episode_steps=SHORT, disable_env_checker=True, render_mode=render_mode)


def actor(env, algorithm=headrace.DQN):
    """A graph, and two actors that were never trained."""
    made = algorithm(hidden=(8,))
    graph = headrace.trace(made, env)
    return graph, [make_cells(made, graph, seed) for seed in (0, 1)]


@pytest.fixture(scope="module")
def pendulum():
    return actor(pendulum_env, headrace.SAC)


def score(graph, cells, seed):
    """The return of the episode that starts from a seed."""
    evaluator = Evaluator(graph, cells, pendulum_env, seed ^ EVALUATION_SEED, 1)
    try:
        return evaluator.score(cells).returns[0]
    finally:
        evaluator.close()


def test_it_plays_as_the_newest_cells_do_from_a_new_start_each_episode(pendulum):
    graph, (first, second) = pendulum
    viewer = Viewer(graph, first, pendulum_env, seed=7)
    frames = [viewer.frame() for _ in range(SHORT)]
    viewer.load(second)
    frames += [viewer.frame() for _ in range(SHORT)]
    viewer.close()
    assert [frame.episode for frame in frames] == [0] * SHORT + [1] * SHORT
    assert [frame.step for frame in frames] == [*range(1, SHORT + 1)] * 2
    assert [i for i, frame in enumerate(frames) if frame.ended] == [SHORT - 1, 2 * SHORT - 1]
    assert frames[SHORT - 1].reward == score(graph, first, 7)
    assert frames[-1].reward == score(graph, second, 8) != score(graph, first, 8)
    assert (frames[0].image != frames[SHORT].image).any()


def test_pendulum_is_drawn_at_its_own_speed(pendulum):
    graph, (cells, _) = pendulum
    viewer = Viewer(graph, cells, "Pendulum-v1", seed=0)
    image = viewer.frame().image
    viewer.close()
    assert viewer.fps == 30.0
    assert image.shape == (500, 500, 3)
    assert image.dtype == np.uint8
    assert (image[0, 0] == 255).all()
    assert 0.01 < (image != 255).any(-1).mean() < 0.1  # a rod on white


def far_cheetah(render_mode=None):
    """A cheetah a long way off, seen by a camera that stays where it is, as Gymnasium makes it from 1.4 on."""
    env = gym.make("HalfCheetah-v5", render_mode=render_mode, disable_env_checker=True)
    env.unwrapped.mujoco_renderer.camera_id = -1
    env.unwrapped.init_qpos[0] = 30.0
    return env


def body(image):
    """Share of a picture that is a cheetah: sky and floor have no colour."""
    return float((np.abs(image[..., 0].astype(int) - image[..., 2]) > 30).mean())


def test_the_camera_follows_the_body_unless_another_was_chosen():
    pytest.importorskip("mujoco")
    seen = {}
    for name, env in (
        ("followed", far_cheetah),
        ("chosen", recipe("HalfCheetah-v5", {"camera_id": -1})),
        ("usual", "HalfCheetah-v5"),
    ):
        made = make(env, 1, render=True)
        made.reset(0)
        try:
            seen[name] = body(made.render())
        except EnvError as error:
            pytest.skip(f"no OpenGL to draw MuJoCo with: {error}")
        assert (made._envs[0].unwrapped.mujoco_renderer.camera_id == -1) == (name == "chosen")
        made.close()
    assert seen["followed"] == pytest.approx(seen["usual"], rel=0.5)
    assert seen["followed"] > 0.005


def test_half_cheetah_is_drawn_at_its_own_speed():
    pytest.importorskip("mujoco")
    graph, (cells, _) = actor("HalfCheetah-v5", headrace.SAC)
    try:
        viewer = Viewer(graph, cells, "HalfCheetah-v5", seed=0)
    except EnvError as error:
        if "cannot be drawn here" not in str(error):
            raise
        pytest.skip(f"no OpenGL to draw MuJoCo with: {error}")
    frames = [viewer.frame() for _ in range(3)]
    viewer.close()
    assert viewer.fps == 20.0
    assert frames[0].image.shape == (480, 480, 3)
    assert frames[0].image.flags.c_contiguous
    assert len(np.unique(frames[0].image)) > 50
    assert (frames[0].image != frames[2].image).any()


@pytest.mark.parametrize("env", [Painter, dial], ids=["gymnasium", "jax"])
def test_a_frame_is_of_the_moment_before_its_step_and_stays_as_it_is(env):
    graph, (cells, _) = actor(env)
    viewer = Viewer(graph, cells, env, seed=3)
    frames = [viewer.frame() for _ in range(2 * STEPS)]
    viewer.close()
    assert [int(frame.image[0, 0, 0]) for frame in frames] == [0, 1, 2, 0, 1, 2]
    assert all(frame.image.shape == (HEIGHT, WIDTH, 3) for frame in frames)
    assert [frame[1:] for frame in frames] == [
        (episode, step, 0.5 * step, step == STEPS) for episode in (0, 1) for step in (1, 2, 3)
    ]
    assert viewer.fps == 30.0


def test_every_episode_has_a_seed_of_its_own_and_the_same_in_another_viewer():
    graph, (cells, _) = actor(Painter)
    starts = []
    for _ in range(2):
        Painter.seeds.clear()
        viewer = Viewer(graph, cells, Painter, seed=3)
        for _ in range(3 * STEPS):
            viewer.frame()
        viewer.close()
        starts.append(list(Painter.seeds))
    assert starts[0] == starts[1]
    played = starts[0][1:]  # before, it was asked for a mask
    assert len(set(played)) == len(played) == 4  # three episodes, and the one to come


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (blind, "is a JAX environment, which cannot draw itself"),
        (Shy, "gives no frames"),
        (Grey, r"draws float64\[6, 8\]; a frame is uint8\[height, width, 3\]"),
    ],
)
def test_what_cannot_be_drawn_is_refused_at_once(env, reason):
    graph, (cells, _) = actor(env)
    before = Painter.closed
    with pytest.raises(EnvError, match=reason) as refusal:
        Viewer(graph, cells, env, seed=0)
    assert "\n" not in str(refusal.value)
    assert Painter.closed == before + (env is not blind)


sizes = st.integers(1, 60)


@given(sizes, sizes, sizes, sizes)
def test_an_image_is_shrunk_by_the_least_stride_that_fits(rows, columns, height, width):
    image = np.arange(rows * columns * 3, dtype=np.uint8).reshape(rows, columns, 3)
    small = fit(image, height, width)
    assert small.shape[0] <= height
    assert small.shape[1] <= width
    assert small.flags.c_contiguous
    stride = next(n for n in range(1, 61) if image[::n].shape[0] <= height and image[:, ::n].shape[1] <= width)
    assert (small == image[::stride, ::stride]).all()
    assert (small is image) == (stride == 1)


def test_new_cells_compile_nothing_again(pendulum):
    graph, (first, second) = pendulum
    viewer = Viewer(graph, first, pendulum_env, seed=0)
    viewer.frame()
    viewer.load(second)
    viewer.frame()
    viewer.close()
    assert viewer.player.compiled._cache_size() == 1
