"""Draw the plans that the documentation shows, anew: python docs/images.py"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace
from headrace.draw.render import render
from headrace.machine import Machine

ROOT = Path(__file__).resolve().parent
OWN = f"{ROOT.parent / 'examples' / 'inference_server.py'}:inference_server"
MACHINE = Machine(cores=2, memory=1 << 34, devices=("cpu:0",))
DEVICES = Machine(cores=2, memory=1 << 34, devices=("cpu:0", "cpu:1"))
"""For the policy that wants one for each replica."""
PLANS: dict[str, tuple[Any, str, str, int | None]] = {
    "sac-single": ("sac", "HalfCheetah-v5", "single", None),
    "sac-coarse": ("sac", "HalfCheetah-v5", "single_learner_coarse", 4),
    "sac-dual": ("sac", "HalfCheetah-v5", "dual_device", None),
    "sac-device": ("sac", "gymnax:Pendulum-v1", "device_only", 2),
    "sac-inference": ("sac", "HalfCheetah-v5", OWN, 2),
    "ppo-coarse": ("ppo", "CartPole-v1", "single_learner_coarse", 2),
    "ppo-fine": ("ppo", "CartPole-v1", "single_learner_fine", 2),
    "ppo-multiple": ("ppo", "CartPole-v1", "multiple_learners", 2),
    "mappo-environments": (
        headrace.MAPPO(share_parameters=False),
        "pettingzoo:mpe2.simple_spread_v3",
        "environments",
        2,
    ),
    "a3c-central": ("a3c", "CartPole-v1", "central", 2),
}


def main() -> None:
    for name, (algorithm, env, policy, replicas) in PLANS.items():
        machine = DEVICES if policy == "device_only" else MACHINE
        team = {"N": 2} if env.startswith("pettingzoo:") else None  # two agents fit a page
        plan = headrace.plan(algorithm, env, policy, replicas=replicas, machine=machine, env_kwargs=team)
        drawn = render(plan, "svg")
        (ROOT / "images" / f"{name}.svg").write_text(drawn + "\n")


if __name__ == "__main__":
    main()
