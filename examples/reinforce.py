"""A custom algorithm: REINFORCE with a learned baseline (Williams, 1992), in one file.

python examples/reinforce.py
headrace train examples.reinforce:Reinforce CartPole-v1 --until 300      (from the project's folder)
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

import headrace
from headrace import Algorithm, Env, Learned, Reads, Rollout, Writes, stage
from headrace.core import NetConfig
from headrace.nets import ActorNet, build, outputs_for


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig(NetConfig):
    """Settings of REINFORCE."""

    horizon: int = 128
    """Steps of every environment in one trajectory."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers."""
    learning_rate: float = 3e-3
    """Step size of Adam."""


class Reinforce(Algorithm[ReinforceConfig]):
    """On-policy, any action space: makes what turned out well more likely."""

    def cells(self, spec, key):
        actor_key, value_key = jax.random.split(key)
        outputs = outputs_for(spec.action)
        body = build(self.config, (spec.observation,), outputs, actor_key, last_gain=0.01)
        value = build(self.config, (spec.observation,), 1, value_key)
        return {
            "actor": Learned(ActorNet(body, jnp.zeros(outputs), spec.action), optax.adam(self.config.learning_rate)),
            "value": Learned(value, optax.adam(self.config.learning_rate)),
        }

    @stage
    def act(self, obs, actor: Reads, key):
        return actor(obs).sample(key)

    @stage
    def play(self, obs, actor: Reads):
        return actor(obs).mode()

    @stage
    def learn(self, trajectory, actor: Writes, value: Writes):
        def back(later, step):
            reward, next_value, terminated, truncated = step
            rest = jnp.where(truncated, next_value, later) * ~terminated
            return (total := reward + self.config.gamma * rest), total

        next_values = value(trajectory.next_obs)[..., 0]
        steps = (trajectory.reward, next_values, trajectory.terminated, trajectory.truncated)
        _, returns = jax.lax.scan(back, next_values[-1], steps, reverse=True)
        advantage = returns - value(trajectory.obs)[..., 0]
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        actor, loss = actor.minimise(lambda a: -jnp.mean(a(trajectory.obs).log_prob(trajectory.action) * advantage))
        value, error = value.minimise(lambda v: jnp.mean((v(trajectory.obs)[..., 0] - returns) ** 2))
        return (actor, value), {"actor_loss": loss, "value_loss": error}

    def loop(self, env: Env, rollout: Rollout):
        rollout.put(env.unroll(self.act, steps=self.config.horizon))
        self.learn(rollout.take())


if __name__ == "__main__":
    run = headrace.train(Reinforce(), "CartPole-v1", until=300, seconds=90, seed=1)
    print(f"return {run.evaluate().mean_reward:.1f}, run in {run.path}")
