"""headrace against the same algorithm hand-written in plain JAX: what does the framework cost?

    python bench/overhead.py

SAC on Pendulum-v1 and PPO on CartPole-v1, `single` policy, inline runtime, same shapes, same scan, interleaved.
"""

from __future__ import annotations

import jax
from measure import report, speed_ratio
from plain_ppo import PlainPPO
from plain_sac import PlainSAC

import headrace
from headrace.runtimes import inline

ROUNDS = 150


def ratio_sac() -> float:
    algorithm = headrace.SAC(replay_capacity=100_000, policy_delay=1)
    c = algorithm.config
    plan = headrace.plan(algorithm, "Pendulum-v1", "single")
    fused = plan.learner.repeat
    ours = inline(plan, algorithm, "Pendulum-v1", seed=0)
    plain = PlainSAC(
        "Pendulum-v1", c.num_envs, c.hidden, c.batch_size, c.samples_per_insert, fused, c.warmup, c.replay_capacity
    )
    while not ours.progress.learned:
        ours.advance()

    def advance() -> None:
        ours.advance()
        jax.block_until_ready(ours.flat)

    return speed_ratio(advance, lambda: jax.block_until_ready(plain.cycle()), ROUNDS)


def ratio_ppo() -> float:
    algorithm = headrace.PPO()
    c = algorithm.config
    ours = inline(headrace.plan(algorithm, "CartPole-v1", "single"), algorithm, "CartPole-v1", seed=0)
    plain = PlainPPO("CartPole-v1", c.num_envs, c.hidden, c.horizon, c.epochs, c.minibatch_size, c.learning_rate)

    def advance() -> None:
        ours.advance()
        jax.block_until_ready(ours.flat)

    return speed_ratio(advance, lambda: jax.block_until_ready(plain.cycle()), ROUNDS)


if __name__ == "__main__":
    report(
        "overhead",
        {"SAC Pendulum-v1, headrace / plain JAX": ratio_sac(), "PPO CartPole-v1, headrace / plain JAX": ratio_ppo()},
    )
