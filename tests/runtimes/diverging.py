"""An algorithm that diverges at a known update, in a way of its choice, and has two stages report the same name."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import optax

from headrace import Algorithm, Config, Env, Learned, Reads, Replay, Tracked, Writes, stage

BATCH = 4


@dataclass(frozen=True, kw_only=True)
class DivergingConfig(Config):
    at: int = 20
    """The update at which it diverges."""
    way: str = "loss"
    """loss, gradient, cell, or never."""


class Diverging(Algorithm[DivergingConfig]):
    def cells(self, spec, key):
        return {
            "critic": Learned(jnp.ones(()), optax.sgd(0.0)),
            "count": Tracked(jnp.zeros(())),
            "actor": Learned(jnp.ones(()), optax.sgd(0.0)),
        }

    @stage
    def act(self, obs, actor: Reads):
        return jnp.full(obs.shape[0], actor > 0, jnp.int32)

    play = act

    @stage
    def learn_critic(self, batch, critic: Writes, count: Writes):
        now, way = count.module + 1 == self.config.at, self.config.way

        def loss(critic):
            # sqrt(0): the value is 0, the derivative is not finite.
            steep = jnp.sqrt(jnp.where(now & (way == "gradient"), 0.0, 1.0) * critic)
            return steep + jnp.where(now & (way == "loss"), jnp.nan, 0.0)

        critic, value = critic.minimise(loss)
        past = jnp.where(now & (way == "cell"), jnp.inf, count.module + 1)
        return (critic, count.set(past)), {"loss": value, "steps": critic.updates}

    @stage
    def learn_actor(self, batch, actor: Writes):
        actor, value = actor.minimise(lambda actor: actor * 3.0)
        return actor, {"loss": value}

    def loop(self, env: Env, replay: Replay):
        replay.insert(env.step(self.act(env.observe())), capacity=1000)
        batch = replay.sample(BATCH, after=8, per_insert=BATCH)
        self.learn_critic(batch)
        self.learn_actor(batch, every=3)
