"""IMPALA (Espeholt et al., 2018, arXiv:1802.01561): V-trace corrects for actors that are some versions behind."""

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
from headrace.core.returns import vtrace
from headrace.nets import ActorNet, build, outputs_for
from headrace.types import Array, EnvSpec, Transition, Tree


@dataclass(frozen=True, kw_only=True)
class IMPALAConfig(TrajectoryConfig):
    """Settings of IMPALA."""

    learning_rate: float | Schedule = 2e-3
    """Step size of Adam: a number, or a schedule such as linear:3e-4:0:1e5."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers."""
    activation: str = "tanh"
    """Activation function: relu, tanh, elu, silu or gelu."""
    horizon: int = 20
    """Steps of each environment in one trajectory."""
    staleness: int = 4
    """How many weight versions an actor may be behind the learner."""
    rho_bar: float = 1.0
    """V-trace's clip on the importance ratio in TD errors and the policy gradient: it sets which policy is valued."""
    c_bar: float = 1.0
    """V-trace's clip on the importance ratio in the trace: lower has less variance and propagates errors less far."""
    vtrace_lambda: float = 1.0
    """Lambda of the V-trace sum: 0 is one-step TD, 1 the whole trajectory, as in the paper."""
    ent_coef: float = 0.003
    """Weight of the entropy bonus."""
    max_grad_norm: float = 0.5
    """Global-norm clip on the gradients of actor and critic, each on its own."""
    normalise_advantage: bool = True
    """Standardise the advantages of each trajectory to mean 0 and standard deviation 1."""

    def check(self) -> None:
        TrajectoryConfig.check(self)
        self.at_least("staleness", 0)
        self.above("rho_bar", 0)
        self.above("c_bar", 0)
        self.within("vtrace_lambda", 0, 1)
        self.above("max_grad_norm", 0)


class IMPALA(Algorithm[IMPALAConfig]):
    """Nearly on-policy, any action space: learns from trajectories of actors that are some versions behind."""

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
    def act(self, obs: Tree, actor: Reads, key: Array) -> tuple[Array, dict[str, Array]]:
        choice = actor(obs)
        action = choice.sample(key)
        return action, {"log_prob": choice.log_prob(action)}

    @stage
    def play(self, obs: Tree, actor: Reads) -> Array:
        return actor(obs).mode()

    @stage
    def learn(
        self, trajectory: Transition, actor: Writes, critic: Writes
    ) -> tuple[tuple[Cell, Cell], dict[str, Array]]:
        c = self.config
        obs, action = trajectory.obs, trajectory.action
        change = actor(obs).log_prob(action) - trajectory.extra["log_prob"]
        ratios = jnp.exp(change)
        values = critic(obs)[..., 0]
        td_target = trajectory.reward + c.gamma * ~trajectory.terminated * critic(trajectory.next_obs)[..., 0]
        done = trajectory.terminated | trajectory.truncated
        corrections, advantages = vtrace(
            td_target - values, ratios, done, c.gamma * c.vtrace_lambda, rho_bar=c.rho_bar, c_bar=c.c_bar
        )
        targets = values + corrections
        weights = standardised(advantages) if c.normalise_advantage else advantages

        def actor_loss(actor: ActorNet) -> tuple[Array, dict[str, Array]]:
            choice = actor(obs)
            gain = jnp.mean(weights * choice.log_prob(action))
            entropy = jnp.mean(choice.entropy())
            return -gain - c.ent_coef * entropy, {"policy_gradient_loss": -gain, "entropy_loss": -entropy}

        actor, (_, metrics) = actor.minimise(actor_loss, has_aux=True)
        critic, loss = critic.minimise(lambda v: jnp.mean((v(obs)[..., 0] - targets) ** 2))
        return (actor, critic), {
            **metrics,
            "value_loss": loss,
            "approx_kl": jnp.mean(ratios - 1 - change),
            "clip_fraction": jnp.mean(ratios > c.rho_bar),
            "explained_variance": 1 - jnp.var(corrections) / (jnp.var(targets) + 1e-8),
        }

    def loop(self, env: Env, rollout: Rollout) -> None:
        rollout.put(env.unroll(self.act, steps=self.config.horizon))
        self.learn(rollout.take(epochs=1, staleness=self.config.staleness))
