"""A video of an actor at play."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np

from headrace.api import Run, _static
from headrace.envs import JaxEnv, make
from headrace.errors import EnvError, UsageError
from headrace.services.evaluate import Player

FORMATS = (".mp4", ".gif")
MOST_FRAMES = 2_000
FPS = 30


def record(run: Run, file: str) -> int:
    """Play an episode, write it to `file`, and return the number of frames."""
    path = Path(file)
    if path.suffix not in FORMATS:
        raise UsageError(f"--record writes {' or '.join(FORMATS)}, got '{file}'.")
    try:
        import imageio.v3 as video
    except ImportError:
        raise UsageError("--record needs imageio; install it with: pip install 'headrace[mujoco]'.") from None
    env = make(run.env, 1, render=True)
    if isinstance(env, JaxEnv):
        raise EnvError(
            f"{run.graph.spec.id} is a JAX environment, which cannot draw itself; --record needs one that can."
        )
    player = Player(run.graph, _static(run.cells))
    player.load(run.cells)
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
