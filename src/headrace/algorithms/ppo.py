"""Proximal policy optimisation (Schulman et al., 2017, arXiv:1707.06347) with generalised advantages (1506.02438)."""

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
    Learned,
    Reads,
    Rollout,
    RolloutConfig,
    Schedule,
    Tracked,
    Writes,
    stage,
    standardised,
    value_at,
)
from headrace.core.returns import discounted, gae
from headrace.nets import ActorNet, Moments, Normaliser, build, outputs_for
from headrace.types import Array, EnvSpec, Transition, Tree


@dataclass(frozen=True, kw_only=True)
class PPOConfig(RolloutConfig):
    """Settings of PPO."""

    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers."""
    activation: str = "tanh"
    """Activation function: relu, tanh, elu, silu or gelu."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation: 0 is one-step TD, 1 the whole trajectory."""
    clip_range: float | Schedule = 0.2
    """Clip on the probability ratio, to [1 - clip_range, 1 + clip_range]: a number or a schedule."""
    ent_coef: float = 0.0
    """Weight of the entropy bonus."""
    max_grad_norm: float = 0.5
    """Global-norm clip on the gradients of actor and critic, each on its own."""
    normalise_obs: bool = True
    """Normalise observations by their running mean and standard deviation."""
    normalise_reward: bool = True
    """Divide rewards by the running standard deviation of their discounted sums."""

    def check(self) -> None:
        RolloutConfig.check(self)
        self.within("gae_lambda", 0, 1)
        self.at_least("clip_range", 0)
        self.above("max_grad_norm", 0)


class PPO(Algorithm[PPOConfig]):
    """On-policy, any action space: small trusted steps on fresh trajectories."""

    def cells(self, spec: EnvSpec, key: Array) -> Mapping[str, Cell]:
        c = self.config
        actor_key, critic_key = jax.random.split(key)
        outputs = outputs_for(spec.action)
        body = build(c, (spec.observation,), outputs, actor_key, last_gain=0.01)
        critic = build(c, (spec.observation,), 1, critic_key)
        adam = optax.chain(optax.clip_by_global_norm(c.max_grad_norm), optax.adam(c.learning_rate, eps=1e-5))
        return {
            "actor": Learned(ActorNet(body, jnp.zeros(outputs), spec.action), adam),
            "critic": Learned(critic, adam),
            "normaliser": Tracked(Normaliser(spec.observation, c.normalise_obs)),
            "returns": Tracked(Moments.of(())),
        }

    @stage
    def act(self, obs: Tree, actor: Reads, normaliser: Reads, key: Array) -> tuple[Array, dict[str, Array]]:
        choice = actor(normaliser(obs))
        action = choice.sample(key)
        return action, {"log_prob": choice.log_prob(action)}

    @stage
    def play(self, obs: Tree, actor: Reads, normaliser: Reads) -> Array:
        return actor(normaliser(obs)).mode()

    @stage
    def learn(
        self, trajectory: Transition, actor: Writes, critic: Writes, normaliser: Writes, returns: Writes, key: Array
    ) -> tuple[tuple[Cell, Cell, Cell, Cell], dict[str, Array]]:
        c = self.config
        obs, next_obs = normaliser(trajectory.obs), normaliser(trajectory.next_obs)
        done = trajectory.terminated | trajectory.truncated
        reward = trajectory.reward
        if c.normalise_reward:
            returns = returns.set(returns.module.update(discounted(reward, done, c.gamma)))
            reward = reward / jnp.sqrt(returns.module.var + 1e-8)
        values = critic(obs)[..., 0]
        td_target = reward + c.gamma * ~trajectory.terminated * critic(next_obs)[..., 0]
        advantages = gae(td_target - values, done, c.gamma * c.gae_lambda)
        samples = (obs, trajectory.action, trajectory.extra["log_prob"], advantages, values + advantages)
        samples = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), samples)
        number = advantages.size

        def update(cells: tuple[Cell, Cell], rows: Array) -> tuple[tuple[Cell, Cell], dict[str, Array]]:
            actor, critic = cells
            obs, action, old_log_prob, advantage, target = jax.tree.map(lambda x: x[rows], samples)
            advantage = standardised(advantage)
            clip = value_at(c.clip_range, actor.updates)  # type: ignore[union-attr]

            def surrogate(actor: ActorNet) -> tuple[Array, dict[str, Array]]:
                choice = actor(obs)
                change = choice.log_prob(action) - old_log_prob
                ratio = jnp.exp(change)
                clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
                gain = jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
                entropy = jnp.mean(choice.entropy())
                return -gain - c.ent_coef * entropy, {
                    "policy_gradient_loss": -gain,
                    "entropy_loss": -entropy,
                    "approx_kl": jnp.mean(ratio - 1 - change),
                    "clip_fraction": jnp.mean(jnp.abs(ratio - 1) > clip),
                }

            actor, (_, metrics) = actor.minimise(surrogate, has_aux=True)  # type: ignore[union-attr]
            critic, loss = critic.minimise(lambda v: jnp.mean((v(obs)[..., 0] - target) ** 2))  # type: ignore[union-attr]
            return (actor, critic), {**metrics, "value_loss": loss}

        def epoch(cells: tuple[Cell, Cell], key: Array) -> tuple[tuple[Cell, Cell], dict[str, Array]]:
            rows = jax.random.permutation(key, number).reshape(-1, c.minibatch_size)
            return jax.lax.scan(update, cells, rows)

        (actor, critic), metrics = jax.lax.scan(epoch, (actor, critic), jax.random.split(key, c.epochs))
        metrics = jax.tree.map(jnp.mean, metrics)
        unexplained = jnp.var(advantages) / (jnp.var(values + advantages) + 1e-8)
        normaliser = normaliser.set(normaliser.module.update(trajectory.obs))
        return (actor, critic, normaliser, returns), {**metrics, "explained_variance": 1 - unexplained}

    def loop(self, env: Env, rollout: Rollout) -> None:
        rollout.put(env.unroll(self.act, steps=self.config.horizon))
        self.learn(rollout.take(epochs=self.config.epochs))
