"""The viewer: plays the actor in its own environment and renders it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.core.cells import Cell
from headrace.envs import HostedJaxEnv, HostEnv, make_host, scored
from headrace.envs.gymnasium_env import GymnasiumEnv
from headrace.envs.pettingzoo_env import PettingZooEnv
from headrace.errors import EnvError
from headrace.graph import Graph
from headrace.services.evaluate import Player
from headrace.types import Tree

FPS = 30.0
"""Frames a second of an environment that declares none."""

Image = NDArray[np.uint8]
"""uint8[height, width, 3], red, green and blue."""


class Frame(NamedTuple):
    """A rendered frame, and the step taken from it."""

    image: Image
    """The image before the step; a copy of its own."""
    episode: int
    """The episode number, from 0."""
    step: int
    """Steps of the episode so far, this one included."""
    reward: float
    """The return so far, this step included: that of the whole episode where it `ended`."""
    ended: bool


class Viewer:
    """Plays episode after episode without exploration; the n-th starts from `seed` + n."""

    def __init__(self, graph: Graph, cells: Mapping[str, Cell], env: Any, seed: int):
        self.env = make_host(scored(env), 1, render=True)
        self.pure = isinstance(self.env, HostedJaxEnv)
        self.seed = seed
        self.episode = 0
        self.count = 0
        try:
            self.obs = self._begin()
            self._draw()
            self.fps = _fps(self.env)
            self.player = Player(graph, cells)
        except BaseException:
            self.env.close()
            raise

    def load(self, cells: Mapping[str, Cell]) -> None:
        """Use these cells from now on."""
        self.player.load(cells)

    def frame(self) -> Frame:
        """Render the current state, then step."""
        image = self._draw()
        after = self.env.step(self.player(self.obs, self.count))
        self.obs = after.obs
        self.count += 1
        self.steps += 1
        self.reward += float(after.reward[0])
        ended = bool(after.terminated[0] or after.truncated[0])
        frame = Frame(image, self.episode, self.steps, self.reward, ended)
        if ended:
            self.restart()
        return frame

    def restart(self) -> None:
        """Leave the episode and begin the next."""
        self.episode += 1
        self.obs = self._begin()

    def close(self) -> None:
        self.env.close()

    def _begin(self) -> Tree:
        self.steps = 0
        self.reward = 0.0
        self.env.drain()  # drop the finished episodes
        return self.env.reset(self.seed + self.episode)

    def _draw(self) -> Image:
        name = self.env.spec.id
        drawn = self.env.render()
        if drawn is None and self.pure:
            raise EnvError(f"{name} is a JAX environment, which cannot draw itself; to see play, choose one that can.")
        if drawn is None:
            raise EnvError(f"{name} gives no frames; to be seen it needs render_mode='rgb_array'.")
        if drawn.dtype != np.uint8 or drawn.ndim != 3 or drawn.shape[2] != 3:
            raise EnvError(f"{name} draws {drawn.dtype}{list(drawn.shape)}; a frame is uint8[height, width, 3].")
        return np.array(drawn, order="C")  # an environment may draw into the same array again


def fit(image: Image, height: int, width: int) -> Image:
    """The image with every n-th row and column, so that it fits; itself if it does."""
    stride = max(-(-image.shape[0] // height), -(-image.shape[1] // width))
    return image if stride == 1 else np.ascontiguousarray(image[::stride, ::stride])


def _fps(env: HostEnv) -> float:
    """The frame rate that a Gymnasium or PettingZoo environment declares."""
    metadata = env._envs[0].metadata if isinstance(env, GymnasiumEnv | PettingZooEnv) else None
    declared = (metadata or {}).get("render_fps")
    return float(declared) if isinstance(declared, int | float) and declared > 0 else FPS
