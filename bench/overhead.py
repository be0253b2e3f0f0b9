"""headrace against the same algorithm hand-written in plain JAX: what does the framework cost?

    python bench/overhead.py

SAC on Pendulum-v1 and PPO on CartPole-v1, `single` policy, inline runtime, same shapes, same scan,
interleaved; with the usual networks and with small ones.
"""

from __future__ import annotations

import jax
from measure import report, speed_ratio
from plain_ppo import PlainPPO
from plain_sac import PlainSAC

import headrace
from headrace.runtimes import inline
from headrace.runtimes.inline import Inline

ROUNDS = 150
SMALL = (64, 64)
"""Networks so small that what is around them counts most."""


def ratio(ours: Inline, plain: PlainSAC | PlainPPO) -> float:
    while not ours.progress.learned:
        ours.advance()

    def advance() -> None:
        ours.advance()
        jax.block_until_ready(ours.cells_held.flat)

    return speed_ratio(advance, lambda: jax.block_until_ready(plain.cycle()), ROUNDS)


def ratio_sac(**settings: object) -> float:
    algorithm = headrace.SAC(replay_capacity=100_000, policy_delay=1, **settings)
    c = algorithm.config
    plan = headrace.plan(algorithm, "Pendulum-v1", "single")
    fused = plan.learners[0].repeat
    plain = PlainSAC(
        "Pendulum-v1", c.num_envs, c.hidden, c.batch_size, c.samples_per_insert, fused, c.warmup, c.replay_capacity
    )
    return ratio(inline(plan, algorithm, "Pendulum-v1", seed=0), plain)


def ratio_ppo(**settings: object) -> float:
    algorithm = headrace.PPO(**settings)
    c = algorithm.config
    plan = headrace.plan(algorithm, "CartPole-v1", "single")
    plain = PlainPPO("CartPole-v1", c.num_envs, c.hidden, c.horizon, c.epochs, c.minibatch_size, c.learning_rate)
    return ratio(inline(plan, algorithm, "CartPole-v1", seed=0), plain)


if __name__ == "__main__":
    report(
        "overhead",
        {
            "SAC Pendulum-v1, headrace / plain JAX": ratio_sac(),
            "PPO CartPole-v1, headrace / plain JAX": ratio_ppo(),
            "SAC Pendulum-v1 64x64, headrace / plain JAX": ratio_sac(hidden=SMALL),
            "PPO CartPole-v1 64x64, headrace / plain JAX": ratio_ppo(hidden=SMALL),
        },
    )
