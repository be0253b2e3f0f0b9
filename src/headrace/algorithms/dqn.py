"""Deep Q-networks (Mnih et al., 2015), double (van Hasselt et al., 2015, arXiv:1509.06461), n-step as an option."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

from headrace.core import (
    Algorithm,
    Cell,
    Env,
    EnvError,
    Learned,
    Reads,
    Replay,
    ReplayConfig,
    Schedule,
    Tracked,
    Writes,
    stage,
    value_at,
)
from headrace.nets import action_mask, build, masked
from headrace.types import Array, Batch, Discrete, EnvSpec, Tree


@dataclass(frozen=True, kw_only=True)
class DQNConfig(ReplayConfig):
    """Settings of DQN."""

    learning_rate: float | Schedule = 1e-3
    """Step size of Adam: a number, or a schedule such as linear:3e-4:0:1e5."""
    tau: float = 0.01
    """Polyak averaging: target += tau * (critic - target) in each update."""
    double: bool = True
    """Double Q-learning: the critic chooses the next action, the target values it."""
    exploration: float | Schedule = Schedule("exponential", 1.0, 0.05, 1_000)
    """Epsilon, the share of random actions: a number or a schedule."""
    layer_norm: bool = False
    """Layer norm in the critic."""

    def check(self) -> None:
        ReplayConfig.check(self)
        self.within("tau", 0, 1)
        self.within("exploration", 0, 1)


class DQN(Algorithm[DQNConfig]):
    """Off-policy, discrete actions: learns the value of each action and takes the highest."""

    def cells(self, spec: EnvSpec, key: Array) -> Mapping[str, Cell]:
        c = self.config
        if not isinstance(spec.action, Discrete):
            raise EnvError(f"DQN needs Discrete actions, this environment has {spec.action}; try ppo or sac.")
        critic = build(c, (spec.observation,), spec.action.n, key, layer_norm=c.layer_norm)
        return {
            "critic": Learned(critic, optax.adam(c.learning_rate)),
            "target": Tracked(critic),
            "exploration": Tracked(jnp.float32(value_at(c.exploration, 0))),
        }

    @stage
    def act(self, obs: Tree, critic: Reads, exploration: Reads, key: Array) -> Array:
        coin, dice = jax.random.split(key)
        values = masked(critic(obs), action_mask(obs))
        chance = jax.random.categorical(dice, masked(jnp.zeros_like(values), action_mask(obs)))
        explore = jax.random.uniform(coin, chance.shape) < exploration
        return jnp.where(explore, chance, jnp.argmax(values, axis=-1)).astype(jnp.int32)

    @stage
    def play(self, obs: Tree, critic: Reads) -> Array:
        return jnp.argmax(masked(critic(obs), action_mask(obs)), axis=-1).astype(jnp.int32)

    @stage
    def learn(
        self, batch: Batch, critic: Writes, target: Writes, exploration: Writes
    ) -> tuple[tuple[Cell, Cell, Cell], dict[str, Array]]:
        c = self.config
        next_values = target(batch.next_obs)
        chooser = critic(batch.next_obs) if c.double else next_values
        best = jnp.argmax(masked(chooser, action_mask(batch.next_obs)), axis=-1)
        td_target = batch.reward + batch.discount * pick(next_values, best)

        def error(critic: object) -> tuple[Array, Array]:
            value = pick(critic(batch.obs), batch.action)  # type: ignore[operator]
            return jnp.mean(optax.losses.huber_loss(value, td_target)), jnp.mean(value)

        critic, (loss, value) = critic.minimise(error, has_aux=True)
        share = jnp.float32(value_at(c.exploration, critic.updates))
        metrics = {"loss": loss, "value": value, "exploration_rate": share}
        return (critic, target.track(critic, c.tau), exploration.set(share)), metrics

    def loop(self, env: Env, replay: Replay) -> None:
        c = self.config
        replay.insert(env.step(self.act(env.observe())), capacity=c.replay_capacity)
        batch = replay.sample(
            c.batch_size, after=c.warmup, per_insert=c.samples_per_insert, gamma=c.gamma, steps=c.n_step
        )
        self.learn(batch)


def pick(values: Array, action: Array) -> Array:
    """The value of the action taken."""
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]
