"""PPO under `device_only` on MinAtar Breakout, to the return that gymnax publishes for its own PPO.

    python bench/minatar.py [seed ...]

Each run stops at the first evaluation over 100 episodes with that mean return, or after 10 million steps, which is what
gymnax's PPO was given; without a seed, 1 to 3.
"""

from __future__ import annotations

import sys
import tempfile
import time

from measure import report

import headrace

ENV = "gymnax:Breakout-MinAtar"
GOAL = 28
SOURCE = (
    "gymnax 1.0.1, README, table of environments: Breakout-MinAtar, PPO (R: 28), by "
    "github.com/RobertTLange/gymnax-blines agents/Breakout-MinAtar/ppo.yaml (10M steps, 64 environments)"
)
STEPS = 10_000_000
SETTINGS = {
    "num_envs": 64,
    "horizon": 128,
    "minibatch_size": 1024,
    "epochs": 4,
    "learning_rate": f"linear:2.5e-3:1e-4:{STEPS * 4 // 1024}",
    "ent_coef": 0.01,
    "hidden": (64,),
    "activation": "relu",
    "normalise_obs": False,
}
"""gymnax's, but for gamma, the network, and a learning rate that starts five times higher and falls."""


def main() -> None:
    figures: dict[str, object] = {"published return": GOAL, "source": SOURCE}
    for seed in [int(word) for word in sys.argv[1:]] or (1, 2, 3):
        with tempfile.TemporaryDirectory() as folder:
            began = time.monotonic()
            run = headrace.train(
                headrace.PPO(**SETTINGS),
                ENV,
                policy="device_only",
                until=GOAL,
                steps=STEPS,
                seed=seed,
                eval_every=250_000,
                eval_episodes=100,
                out=f"{folder}/run",
                progress=False,
            )
            taken, last = time.monotonic() - began, run.metrics[-1]
        verdict = "reached" if run.reached else "NOT reached"
        score, steps = last["eval/mean_reward"], last["time/env_steps"]
        figures[f"seed {seed}"] = f"{verdict} {score:.1f} in {taken:.0f} s, {steps:,} steps"
        print(f"seed {seed}: {figures[f'seed {seed}']}", flush=True)
    report("minatar", figures)


if __name__ == "__main__":
    main()
