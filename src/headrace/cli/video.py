"""A video of an actor at play."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jax
import numpy as np

from headrace.api import Run
from headrace.envs import JaxEnv, make
from headrace.errors import EnvError, UsageError
from headrace.services.evaluate import Player

FORMATS = (".mp4", ".gif")
MOST_FRAMES = 2_000
FPS = 30


def check_file(file: str) -> None:
    """Refuse a file that cannot become a video, before anything is played."""
    if Path(file).suffix not in FORMATS:
        raise UsageError(f"--record writes {' or '.join(FORMATS)}, got '{file}'.")
    if importlib.util.find_spec("imageio") is None:
        raise UsageError("--record needs imageio; install it with: pip install 'headrace[mujoco]'.")


def record(run: Run, file: str) -> int:
    """Play an episode, write it to `file`, and return the number of frames."""
    import imageio.v3 as video

    path = Path(file)
    env = make(run.env, 1, render=True)
    if isinstance(env, JaxEnv):
        raise EnvError(
            f"{run.graph.spec.id} is a JAX environment, which cannot draw itself; --record needs one that can."
        )
    player = Player(run.graph, run.cells)
    frames = []
    try:
        obs = env.reset(run.seed)
        for number in range(MOST_FRAMES):
            frame = env.render()
            if frame is None:
                raise EnvError(f"{run.graph.spec.id} gives no frames; --record needs render_mode='rgb_array'.")
            frames.append(np.asarray(frame))
            step = env.step(player(obs, number))
            obs = jax.tree.map(np.copy, step.obs)
            if step.terminated[0] or step.truncated[0]:
                break
    finally:
        env.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {"fps": FPS} if path.suffix == ".mp4" else {"duration": 1000 / FPS, "loop": 0}
    video.imwrite(path, np.stack(frames), **options)
    return len(frames)
