"""Asynchronous advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783), with advantages as in 1506.02438."""

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
    Schedule,
    TrajectoryConfig,
    Writes,
    stage,
    standardised,
)
from headrace.core.returns import gae
from headrace.nets import ActorNet, build, outputs_for
from headrace.types import Array, EnvSpec, Transition, Tree


@dataclass(frozen=True, kw_only=True)
class A3CConfig(TrajectoryConfig):
    """Settings of A3C."""

    learning_rate: float | Schedule = 2e-3
    """Step size of Adam: a number, or a schedule such as linear:3e-4:0:1e5."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers."""
    activation: str = "tanh"
    """Activation function: relu, tanh, elu, silu or gelu."""
    horizon: int = 16
    """Steps of each environment in one trajectory."""
    gae_lambda: float = 0.98
    """Lambda of generalised advantage estimation: 0 is one-step TD, 1 the whole trajectory, as in the paper."""
    ent_coef: float = 0.003
    """Weight of the entropy bonus."""
    max_grad_norm: float = 0.5
    """Global-norm clip on the gradients of actor and critic, each on its own."""
    normalise_advantage: bool = True
    """Standardise the advantages of each trajectory to mean 0 and standard deviation 1."""

    def check(self) -> None:
        TrajectoryConfig.check(self)
        self.within("gae_lambda", 0, 1)
        self.above("max_grad_norm", 0)


class A3C(Algorithm[A3CConfig]):
    """On-policy, any action space: one gradient step on each trajectory, made to be applied as it comes."""

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
        }

    @stage
    def act(self, obs: Tree, actor: Reads, key: Array) -> Array:
        return actor(obs).sample(key)

    @stage
    def play(self, obs: Tree, actor: Reads) -> Array:
        return actor(obs).mode()

    @stage
    def learn(
        self, trajectory: Transition, actor: Writes, critic: Writes
    ) -> tuple[tuple[Cell, Cell], dict[str, Array]]:
        c = self.config
        obs = trajectory.obs
        values = critic(obs)[..., 0]
        td_target = trajectory.reward + c.gamma * ~trajectory.terminated * critic(trajectory.next_obs)[..., 0]
        advantages = gae(td_target - values, trajectory.terminated | trajectory.truncated, c.gamma * c.gae_lambda)
        returns = values + advantages
        weights = standardised(advantages) if c.normalise_advantage else advantages

        def actor_loss(actor: ActorNet) -> tuple[Array, dict[str, Array]]:
            choice = actor(obs)
            gain = jnp.mean(weights * choice.log_prob(trajectory.action))
            entropy = jnp.mean(choice.entropy())
            return -gain - c.ent_coef * entropy, {"policy_gradient_loss": -gain, "entropy_loss": -entropy}

        actor, (_, metrics) = actor.minimise(actor_loss, has_aux=True)
        critic, loss = critic.minimise(lambda v: jnp.mean((v(obs)[..., 0] - returns) ** 2))
        unexplained = jnp.var(advantages) / (jnp.var(returns) + 1e-8)
        return (actor, critic), {**metrics, "value_loss": loss, "explained_variance": 1 - unexplained}

    def loop(self, env: Env, rollout: Rollout) -> None:
        rollout.put(env.unroll(self.act, steps=self.config.horizon))
        self.learn(rollout.take())
