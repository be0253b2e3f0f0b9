"""Twin delayed deep deterministic policy gradients (Fujimoto et al., 2018, arXiv:1802.09477)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

from headrace.core import Algorithm, Cell, Env, Learned, Reads, Replay, ReplayConfig, Schedule, Tracked, Writes, stage
from headrace.nets import Ensemble, box_size, build
from headrace.types import Array, Batch, EnvSpec, Tree


@dataclass(frozen=True, kw_only=True)
class TD3Config(ReplayConfig):
    """Settings of TD3."""

    learning_rate: float | Schedule = 1e-3
    """Step size of Adam: a number, or a schedule such as linear:3e-4:0:1e5."""
    tau: float = 0.005
    """Polyak averaging: target += tau * (network - target) in each update."""
    policy_delay: int = 2
    """Critic updates for each actor update."""
    exploration_noise: float = 0.2
    """Standard deviation of the noise added to actions when exploring."""
    target_noise: float = 0.2
    """Standard deviation of the noise added to the target actor's action (target policy smoothing)."""
    target_noise_clip: float = 0.5
    """The noise on the target actor's action is clipped to [-target_noise_clip, target_noise_clip]."""
    layer_norm: bool = False
    """Layer norm in the critic."""

    def check(self) -> None:
        ReplayConfig.check(self)
        self.within("tau", 0, 1)
        self.at_least("policy_delay", 1)
        self.at_least("exploration_noise", 0)
        self.at_least("target_noise", 0)
        self.at_least("target_noise_clip", 0)


class TD3(Algorithm[TD3Config]):
    """Off-policy, continuous actions: a deterministic actor, twin critics, delayed actor updates."""

    def cells(self, spec: EnvSpec, key: Array) -> Mapping[str, Cell]:
        c = self.config
        size = box_size(spec.action, "TD3")
        actor_key, *critic_keys = jax.random.split(key, 3)
        actor = build(c, (spec.observation,), size, actor_key, last_gain=0.01)
        critic = Ensemble(
            [build(c, (spec.observation, spec.action), 1, k, layer_norm=c.layer_norm) for k in critic_keys]
        )
        return {
            "actor": Learned(actor, optax.adam(c.learning_rate)),
            "critic": Learned(critic, optax.adam(c.learning_rate)),
            "target_actor": Tracked(actor),
            "target_critic": Tracked(critic),
        }

    @stage
    def act(self, obs: Tree, actor: Reads, key: Array) -> Array:
        action = jnp.tanh(actor(obs))
        noise = self.config.exploration_noise * jax.random.normal(key, action.shape)
        return jnp.clip(action + noise, -1, 1)

    @stage
    def play(self, obs: Tree, actor: Reads) -> Array:
        return jnp.tanh(actor(obs))

    @stage
    def learn_critic(
        self, batch: Batch, target_actor: Reads, critic: Writes, target_critic: Writes, key: Array
    ) -> tuple[tuple[Cell, Cell], dict[str, Array]]:
        c = self.config
        noise = c.target_noise * jax.random.normal(key, batch.action.shape)
        noise = jnp.clip(noise, -c.target_noise_clip, c.target_noise_clip)
        next_action = jnp.clip(jnp.tanh(target_actor(batch.next_obs)) + noise, -1, 1)
        next_value = jnp.min(target_critic(batch.next_obs, next_action)[..., 0], axis=0)
        td_target = batch.reward + batch.discount * next_value

        def error(critic: Ensemble) -> Array:
            return jnp.mean((critic(batch.obs, batch.action)[..., 0] - td_target) ** 2)

        critic, loss = critic.minimise(error)
        return (critic, target_critic.track(critic, c.tau)), {"critic_loss": loss}

    @stage
    def learn_actor(
        self, batch: Batch, critic: Reads, actor: Writes, target_actor: Writes
    ) -> tuple[tuple[Cell, Cell], dict[str, Array]]:
        def actor_loss(actor: object) -> Array:
            action = jnp.tanh(actor(batch.obs))  # type: ignore[operator]
            return -jnp.mean(critic.members[0](batch.obs, action))

        actor, loss = actor.minimise(actor_loss)
        # One step here stands for policy_delay steps of the critic's target.
        tau = 1 - (1 - self.config.tau) ** self.config.policy_delay
        return (actor, target_actor.track(actor, tau)), {"actor_loss": loss}

    def loop(self, env: Env, replay: Replay) -> None:
        c = self.config
        replay.insert(env.step(self.act(env.observe())), capacity=c.replay_capacity)
        batch = replay.sample(
            c.batch_size, after=c.warmup, per_insert=c.samples_per_insert, gamma=c.gamma, steps=c.n_step
        )
        self.learn_critic(batch)
        self.learn_actor(batch, every=c.policy_delay)
