"""Soft actor-critic with a learned temperature (Haarnoja et al., 2018, arXiv:1812.05905)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

from headrace.core import Algorithm, Cell, Env, Learned, Reads, Replay, ReplayConfig, Schedule, Tracked, Writes, stage
from headrace.nets import Ensemble, TanhNormal, box_size, build
from headrace.types import Array, Batch, EnvSpec, Tree


@dataclass(frozen=True, kw_only=True)
class SACConfig(ReplayConfig):
    """Settings of SAC."""

    learning_rate: float | Schedule = 1e-3
    """Step size of Adam: a number, or a schedule such as linear:3e-4:0:1e5."""
    tau: float = 0.005
    """Polyak averaging: target += tau * (critic - target) in each update."""
    policy_delay: int = 2
    """Critic updates for each actor update."""
    initial_alpha: float = 1.0
    """Initial temperature, the weight of the entropy; it is learned from there."""
    target_entropy_scale: float = 1.0
    """Target entropy, per action dimension and negated: 1 aims at minus the number of action dimensions."""
    layer_norm: bool = False
    """Layer norm in the critic."""

    def check(self) -> None:
        ReplayConfig.check(self)
        self.within("tau", 0, 1)
        self.at_least("policy_delay", 1)
        self.above("initial_alpha", 0)


class SAC(Algorithm[SACConfig]):
    """Off-policy, continuous actions: maximises return and entropy together."""

    def cells(self, spec: EnvSpec, key: Array) -> Mapping[str, Cell]:
        c = self.config
        size = box_size(spec.action, "SAC")
        actor_key, *critic_keys = jax.random.split(key, 3)
        actor = build(c, (spec.observation,), 2 * size, actor_key, last_gain=0.01)
        critic = Ensemble(
            [build(c, (spec.observation, spec.action), 1, k, layer_norm=c.layer_norm) for k in critic_keys]
        )
        return {
            "actor": Learned(actor, optax.adam(c.learning_rate)),
            "critic": Learned(critic, optax.adam(c.learning_rate)),
            "target": Tracked(critic),
            "log_alpha": Learned(jnp.log(c.initial_alpha), optax.adam(c.learning_rate)),
        }

    @stage
    def act(self, obs: Tree, actor: Reads, key: Array) -> Array:
        action, _ = actions(actor, obs).sample(key)
        return action

    @stage
    def play(self, obs: Tree, actor: Reads) -> Array:
        return actions(actor, obs).mode()

    @stage
    def learn_critic(
        self, batch: Batch, actor: Reads, log_alpha: Reads, critic: Writes, target: Writes, key: Array
    ) -> tuple[tuple[Cell, Cell], dict[str, Array]]:
        next_action, next_log_prob = actions(actor, batch.next_obs).sample(key)
        next_value = jnp.min(target(batch.next_obs, next_action)[..., 0], axis=0) - jnp.exp(log_alpha) * next_log_prob
        td_target = batch.reward + batch.discount * next_value

        def error(critic: Ensemble) -> Array:
            return jnp.mean((critic(batch.obs, batch.action)[..., 0] - td_target) ** 2)

        critic, loss = critic.minimise(error)
        return (critic, target.track(critic, self.config.tau)), {"critic_loss": loss}

    @stage
    def learn_actor(
        self, batch: Batch, critic: Reads, actor: Writes, log_alpha: Writes, key: Array
    ) -> tuple[tuple[Cell, Cell], dict[str, Array]]:
        alpha = jnp.exp(log_alpha.module)

        def actor_loss(actor: object) -> tuple[Array, Array]:
            action, log_prob = actions(actor, batch.obs).sample(key)
            value = jnp.min(critic(batch.obs, action)[..., 0], axis=0)
            return jnp.mean(alpha * log_prob - value), jnp.mean(log_prob)

        actor, (loss, log_prob) = actor.minimise(actor_loss, has_aux=True)
        target_entropy = -self.config.target_entropy_scale * batch.action.shape[-1]
        log_alpha, alpha_loss = log_alpha.minimise(lambda log_alpha: -jnp.exp(log_alpha) * (log_prob + target_entropy))
        metrics = {"actor_loss": loss, "ent_coef": alpha, "ent_coef_loss": alpha_loss, "entropy": -log_prob}
        return (actor, log_alpha), metrics

    def loop(self, env: Env, replay: Replay) -> None:
        c = self.config
        replay.insert(env.step(self.act(env.observe())), capacity=c.replay_capacity)
        batch = replay.sample(
            c.batch_size, after=c.warmup, per_insert=c.samples_per_insert, gamma=c.gamma, steps=c.n_step
        )
        self.learn_critic(batch)
        self.learn_actor(batch, every=c.policy_delay)


def actions(actor: object, obs: Tree) -> TanhNormal:
    """The actor's distribution over actions."""
    mean, log_std = jnp.split(actor(obs), 2, axis=-1)  # type: ignore[operator]
    return TanhNormal(mean, jnp.clip(log_std, -5.0, 2.0))
