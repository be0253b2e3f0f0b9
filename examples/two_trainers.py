"""Two trainers in one loop: a critic that learns from replay and a policy gradient from fresh trajectories.

    python examples/two_trainers.py
    headrace train examples.two_trainers:TwoTrainers CartPole-v1 --until 400      (from the project's folder)
    headrace graph examples.two_trainers:TwoTrainers CartPole-v1 --policy desktop

Every trajectory goes into two stores. The critic replays what it finds in one, many times, as DQN does; the actor takes
each from the other once, as A2C does. Each trainer keeps its own rate and reads what the other one writes: the critic
values the actor's policy, and the actor's advantages are measured against the critic.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax

import headrace
from headrace import Algorithm, Env, Learned, Reads, Replay, Rollout, Schedule, Tracked, Writes, stage
from headrace.core import EnvError, ReplayConfig, standardised
from headrace.core.returns import gae
from headrace.nets import ActorNet, build, outputs_for
from headrace.types import Discrete


@dataclass(frozen=True, kw_only=True)
class TwoTrainersConfig(ReplayConfig):
    """Settings of both trainers."""

    horizon: int = 16
    """Steps of every environment in one trajectory."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers."""
    learning_rate: float | Schedule = 1e-3
    """Step size of the critic's Adam: a number, or a schedule such as linear:3e-4:0:1e5."""
    actor_learning_rate: float | Schedule = 2e-3
    """Step size of the actor's Adam: a number or a schedule."""
    batch_size: int = 128
    """Transitions in one update of the critic."""
    samples_per_insert: float = 8.0
    """Transitions the critic replays for each one inserted; the actor learns from each once."""
    replay_capacity: int = 50_000
    """Transitions remembered."""
    tau: float = 0.01
    """Share of the way the target moves in each update of the critic."""
    gae_lambda: float = 0.95
    """How far advantages look ahead: 0 one step, 1 to the end of the trajectory."""
    ent_coef: float = 0.003
    """Weight of the entropy bonus."""
    max_grad_norm: float = 0.5
    """Global-norm clip on the gradients of the actor."""

    def check(self) -> None:
        ReplayConfig.check(self)
        self.at_least("horizon", 1)
        self.above("actor_learning_rate", 0)
        self.within("tau", 0, 1)
        self.within("gae_lambda", 0, 1)
        self.above("max_grad_norm", 0)


class TwoTrainers(Algorithm[TwoTrainersConfig]):
    """Discrete actions: an off-policy critic and an on-policy actor, each at a rate of its own."""

    def cells(self, spec, key):
        c = self.config
        if not isinstance(spec.action, Discrete):
            raise EnvError(f"TwoTrainers needs Discrete actions, this environment has {spec.action}; try ppo or sac.")
        actor_key, critic_key = jax.random.split(key)
        outputs = outputs_for(spec.action)
        body = build(c, (spec.observation,), outputs, actor_key, last_gain=0.01)
        critic = build(c, (spec.observation,), outputs, critic_key)
        clipped = optax.chain(optax.clip_by_global_norm(c.max_grad_norm), optax.adam(c.actor_learning_rate))
        return {
            "actor": Learned(ActorNet(body, jnp.zeros(outputs), spec.action), clipped),
            "critic": Learned(critic, optax.adam(c.learning_rate)),
            "target": Tracked(critic),
        }

    @stage
    def act(self, obs, actor: Reads, key):
        return actor(obs).sample(key)

    @stage
    def play(self, obs, actor: Reads):
        return actor(obs).mode()

    @stage
    def learn_q(self, batch, actor: Reads, critic: Writes, target: Writes):
        td_target = batch.reward + batch.discount * value(actor, target, batch.next_obs)

        def error(critic):
            taken = jnp.take_along_axis(critic(batch.obs), batch.action[..., None], axis=-1)[..., 0]
            return jnp.mean(optax.losses.huber_loss(taken, td_target)), jnp.mean(taken)

        critic, (loss, mean) = critic.minimise(error, has_aux=True)
        return (critic, target.track(critic, self.config.tau)), {"q_loss": loss, "q_value": mean}

    @stage
    def learn_policy(self, trajectory, critic: Reads, actor: Writes):
        c, obs = self.config, trajectory.obs
        td_target = trajectory.reward + c.gamma * ~trajectory.terminated * value(actor, critic, trajectory.next_obs)
        done = trajectory.terminated | trajectory.truncated
        advantages = standardised(gae(td_target - value(actor, critic, obs), done, c.gamma * c.gae_lambda))

        def actor_loss(actor):
            choice = actor(obs)
            gain, entropy = jnp.mean(advantages * choice.log_prob(trajectory.action)), jnp.mean(choice.entropy())
            return -gain - c.ent_coef * entropy, {"policy_gradient_loss": -gain, "entropy_loss": -entropy}

        actor, (_, metrics) = actor.minimise(actor_loss, has_aux=True)
        return actor, metrics

    def loop(self, env: Env, replay: Replay, rollout: Rollout):
        c = self.config
        trajectory = env.unroll(self.act, steps=c.horizon)
        replay.insert(trajectory, capacity=c.replay_capacity)
        rollout.put(trajectory)
        batch = replay.sample(
            c.batch_size, after=c.warmup, per_insert=c.samples_per_insert, gamma=c.gamma, steps=c.n_step
        )
        self.learn_q(batch)
        self.learn_policy(rollout.take())


def value(actor, critic, obs):
    """What a critic expects of a policy: the mean of its values over the actions."""
    return jnp.sum(jax.nn.softmax(actor(obs).logits) * critic(obs), axis=-1)


if __name__ == "__main__":
    run = headrace.train(TwoTrainers(), "CartPole-v1", until=400, seconds=120, seed=1)
    print(f"return {run.evaluate().mean_reward:.1f}, run in {run.path}")
