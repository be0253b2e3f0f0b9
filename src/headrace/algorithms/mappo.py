"""Multi-agent PPO (Yu et al., 2022, arXiv:2103.01955): each agent acts on what it sees, critics see everything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
from headrace.nets import ActorNet, Moments, Normaliser, build, encode, outputs_for
from headrace.types import Array, Box, Discrete, EnvSpec, MultiDiscrete, Space, Transition, struct

Agents = tuple[int, ...]  # some of a team, by their numbers


@dataclass(frozen=True, kw_only=True)
class MAPPOConfig(RolloutConfig):
    """Settings of MAPPO."""

    num_envs: int = 16
    """Environments stepped side by side, over all replicas together."""
    learning_rate: float | Schedule = 1e-3
    """Step size of Adam: a number, or a schedule such as linear:3e-4:0:1e5."""
    hidden: tuple[int, ...] = (64, 64)
    """Sizes of the hidden layers."""
    horizon: int = 50
    """Steps of each environment in one trajectory."""
    epochs: int = 10
    """Optimisation epochs over each trajectory."""
    minibatch_size: int = 400
    """Transitions in one minibatch, each with all its agents."""
    share_parameters: bool = True
    """One actor and one critic shared by all agents; otherwise each agent has its own and learns independently."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation: 0 is one-step TD, 1 the whole trajectory."""
    clip_range: float | Schedule = 0.2
    """Clip on the probability ratio, to [1 - clip_range, 1 + clip_range]: a number or a schedule."""
    ent_coef: float = 0.01
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


class MAPPO(Algorithm[MAPPOConfig]):
    """On-policy, teams of agents: PPO for each agent, with critics that see the observations of all."""

    def cells(self, spec: EnvSpec, key: Array) -> Mapping[str, Cell]:
        c = self.config
        view, action = member(spec)
        outputs = outputs_for(action)
        adam = optax.chain(optax.clip_by_global_norm(c.max_grad_norm), optax.adam(c.learning_rate, eps=1e-5))
        cells: dict[str, Cell] = {}
        for agents in self.learners(spec.agents):
            key, actor_key, critic_key = jax.random.split(key, 3)
            body = build(c, (view,), outputs, actor_key, last_gain=0.01)
            critic = build(c, (spec.observation,), 1, critic_key)
            cells |= {
                self.named("actor", agents): Learned(ActorNet(body, jnp.zeros(outputs), action), adam),
                self.named("critic", agents): Learned(critic, adam),
                self.named("normaliser", agents): Tracked(Normaliser(spec.observation, c.normalise_obs)),
                self.named("returns", agents): Tracked(Moments.of(())),
            }
        return cells

    def learners(self, number: int) -> list[Agents]:
        """Which agents share a learner."""
        team = tuple(range(number))
        return [team] if self.config.share_parameters else [(agent,) for agent in team]

    def named(self, name: str, agents: Agents) -> str:
        """The name of a cell of some agents: `actor` where all share it, `actor_1` for the second agent's own."""
        return name if self.config.share_parameters else f"{name}_{agents[0]}"

    def of(self, stage: Any, agents: Agents) -> Any:
        """A stage bound to the cells of some agents."""
        return stage.on(**{name: self.named(name, agents) for name in stage.signature.cells})

    @stage
    def choose(self, obs: Array, agents: Agents, actor: Reads, normaliser: Reads, key: Array) -> tuple[Array, Array]:
        choice = actor(views(normaliser(obs), agents))
        action = choice.sample(key)
        return action, choice.log_prob(action)

    @stage
    def choose_best(self, obs: Array, agents: Agents, actor: Reads, normaliser: Reads) -> Array:
        return actor(views(normaliser(obs), agents)).mode()

    @stage
    def join(self, parts: list[Array]) -> Array:
        whole = jnp.concatenate(parts, axis=1)
        return whole.reshape(whole.shape[0], -1)

    def act(self, obs: Array) -> tuple[Array, dict[str, Array]]:
        chosen = [self.of(self.choose, agents)(obs, agents) for agents in self.learners(obs.shape[1])]
        return self.join([action for action, _ in chosen]), {"log_prob": self.join([p for _, p in chosen])}

    def play(self, obs: Array) -> Array:
        return self.join([self.of(self.choose_best, agents)(obs, agents) for agents in self.learners(obs.shape[1])])

    @stage
    def learn(
        self,
        trajectory: Transition,
        agents: Agents,
        actor: Writes,
        critic: Writes,
        normaliser: Writes,
        returns: Writes,
        key: Array,
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
        # Reward and critic are the team's, so all its agents have the same advantage.
        action = trajectory.action.reshape(struct(actor.module.space, *obs.shape[:3]).shape)
        own = (views(obs, agents), *(x[:, :, jnp.asarray(agents)] for x in (action, trajectory.extra["log_prob"])))
        samples = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (obs, own, advantages, values + advantages))

        def update(cells: tuple[Cell, Cell], rows: Array) -> tuple[tuple[Cell, Cell], dict[str, Array]]:
            actor, critic = cells
            obs, (view, action, old_log_prob), advantage, target = jax.tree.map(lambda x: x[rows], samples)
            advantage = standardised(advantage)[:, None]
            clip = value_at(c.clip_range, actor.updates)  # type: ignore[union-attr]

            def surrogate(actor: ActorNet) -> tuple[Array, dict[str, Array]]:
                choice = actor(view)
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
            rows = jax.random.permutation(key, advantages.size).reshape(-1, c.minibatch_size)
            return jax.lax.scan(update, cells, rows)

        (actor, critic), metrics = jax.lax.scan(epoch, (actor, critic), jax.random.split(key, c.epochs))
        normaliser = normaliser.set(normaliser.module.update(trajectory.obs))
        metrics = {self.named(name, agents): jnp.mean(value) for name, value in metrics.items()}
        return (actor, critic, normaliser, returns), metrics

    def loop(self, env: Env, rollout: Rollout) -> None:
        rollout.put(env.unroll(self.act, steps=self.config.horizon))
        trajectory = rollout.take(epochs=self.config.epochs)
        for agents in self.learners(env.agents):
            self.of(self.learn, agents)(trajectory, agents)


def views(obs: Array, agents: Agents) -> Array:
    """What each of some agents sees, with its number one-hot: `[..., team, size]` to `[..., agents, size + team]`."""
    own = encode(Box(obs.shape[-1:], str(obs.dtype)), obs[..., jnp.asarray(agents), :])
    numbers = jnp.broadcast_to(jax.nn.one_hot(jnp.asarray(agents), obs.shape[-2]), (*own.shape[:-1], obs.shape[-2]))
    return jnp.concatenate([own, numbers], axis=-1)


def member(spec: EnvSpec) -> tuple[Box, Space]:
    """What one agent of a team sees, with its number, and what it does."""
    match spec.observation, spec.action:
        case Box((team, size)), MultiDiscrete(counts) if team == spec.agents == len(counts):
            return Box((size + team,)), Discrete(counts[0])
        case Box((team, size)), Box((actions,), _, bounded) if team == spec.agents:
            return Box((size + team,)), Box((actions // team,), bounded=bounded)
    raise EnvError(
        f"MAPPO is for teams whose agents each see a vector and choose an action, '{spec.id}' has {spec.agents} "
        f"agent(s) with {spec.observation} and {spec.action}; try ppo."
    )
