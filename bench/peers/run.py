"""A peer's SAC or PPO with its defaults, warm, on every core the process may use: one JSON line of rates.

    $PEERS/sb3/bin/python bench/peers/run.py sac sb3 [--env HalfCheetah-v5] [--seconds 20] [--warm 10]
    $PEERS/sbx/bin/python bench/peers/run.py ppo sbx

bench/peers/setup.sh makes the environments. SAC: one environment, 2x256, batch 256, one update per step after the
first 100 (all defaults of both peers). PPO: 8 environments in one process, n_steps 256 (so 2048 steps an iteration, as
by default), 64x64, 10 epochs, batch 64.

`others` is how many cores other processes kept busy meanwhile: believe no line where it is above 0.1, for torch's
threads wait for each other and another process can slow them down tenfold.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

PEERS = {"sb3": ("stable_baselines3", "stable-baselines3"), "sbx": ("sbx", "sbx-rl")}  # module, distribution


class Mark(NamedTuple):
    time: float
    steps: int
    updates: int
    others: float


def others() -> float:
    """Processor seconds that the machine has spent on other processes (or that its host took), up to a constant."""
    user, nice, system, _idle, _wait, irq, soft, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK") - time.process_time()


class Stopwatch(BaseCallback):
    """Marks where the measured part begins and ends, always between two iterations (sampling, then learning).

    It begins `warm` seconds after the first updates, so after their compilation.
    """

    def __init__(self, warm: float, seconds: float) -> None:
        super().__init__()
        self.warm, self.seconds = warm, seconds
        self.learning: float | None = None
        self.begin: Mark | None = None
        self.end: Mark | None = None

    def _on_rollout_start(self) -> None:
        now = time.perf_counter()
        if self.learning is None:
            self.learning = now if self.model._n_updates else None
        elif self.begin is None:
            self.begin = self.mark(now) if now - self.learning >= self.warm else None
        elif self.end is None and now - self.begin.time >= self.seconds:
            self.end = self.mark(now)

    def mark(self, now: float) -> Mark:
        return Mark(now, self.model.num_timesteps, self.model._n_updates, others())

    def _on_step(self) -> bool:
        return self.end is None


def make(algorithm: str, peer: str, env: str) -> tuple[BaseAlgorithm, int]:
    """The peer's model, and how many gradient updates one of its `_n_updates` is."""
    module = importlib.import_module(PEERS[peer][0])
    if algorithm == "sac":
        return module.SAC("MlpPolicy", env, seed=0), 1
    model = module.PPO("MlpPolicy", make_vec_env(env, n_envs=8, seed=0), n_steps=256, seed=0, device="cpu")
    return model, model.n_steps * model.n_envs // model.batch_size  # PPO counts epochs


def measure(model: BaseAlgorithm, updates_per_count: int, warm: float, seconds: float) -> dict[str, float]:
    watch = Stopwatch(warm, seconds)
    model.learn(total_timesteps=10**9, callback=watch)
    assert watch.begin is not None
    assert watch.end is not None
    taken = watch.end.time - watch.begin.time
    updates = (watch.end.updates - watch.begin.updates) * updates_per_count / taken
    return {
        "steps_per_s": round((watch.end.steps - watch.begin.steps) / taken, 1),
        "updates_per_s": round(updates, 1),
        "frames_per_s": round(updates * model.batch_size, 1),
        "seconds": round(taken, 2),
        "others": round((watch.end.others - watch.begin.others) / taken, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", choices=["sac", "ppo"])
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--seconds", type=float, default=20, help="how long to measure")
    parser.add_argument("--warm", type=float, default=10, help="how long to run after the first updates, unmeasured")
    args = parser.parse_args()
    model, updates_per_count = make(args.algorithm, args.peer, args.env)
    rates = measure(model, updates_per_count, args.warm, args.seconds)
    what = {"peer": args.peer, "version": version(PEERS[args.peer][1]), "algorithm": args.algorithm, "env": args.env}
    print(json.dumps({**what, **rates}))


if __name__ == "__main__":
    main()
