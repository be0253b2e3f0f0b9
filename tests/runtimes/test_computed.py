"""A pure stage that two learners need is computed by both, with the same random numbers, in every runtime; and what
is inserted as a trajectory is the same there."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import headrace
from headrace.core import Algorithm, Env, Learned, Reads, Replay, Writes, stage
from headrace.runtimes import Options, inline
from headrace.runtimes.processes import Processes
from headrace.settings.config import ReplayConfig


class Relabelled(Algorithm[ReplayConfig]):
    """Two stages learn from rewards that are drawn anew, and from what a cell of one of them makes of these."""

    def cells(self, spec, key):
        return {name: Learned(jnp.zeros(()), optax.sgd(0.1)) for name in ("actor", "critic")}

    @stage
    def act(self, obs, actor: Reads):
        return (obs.sum(axis=-1) > actor).astype(jnp.int32)

    play = act

    @stage
    def relabel(self, batch, key):
        return batch.reward + jax.random.normal(key, batch.reward.shape)

    @stage
    def value(self, reward, critic: Reads):
        return reward + critic

    @stage
    def learn_critic(self, reward, value, critic: Writes):
        critic, _ = critic.minimise(lambda c: jnp.mean((value - c) ** 2))
        return critic, {"critic_saw": reward.sum()}

    @stage
    def learn_actor(self, reward, value, actor: Writes):
        actor, _ = actor.minimise(lambda a: jnp.mean((2 * value - a) ** 2))
        return actor, {"actor_saw": reward.sum()}

    def loop(self, env: Env, replay: Replay) -> None:
        c = self.config
        replay.insert(env.unroll(self.act, steps=STEPS), capacity=c.replay_capacity)
        reward = self.relabel(replay.sample(c.batch_size, after=c.warmup, per_insert=c.samples_per_insert))
        value = self.value(reward)
        self.learn_critic(reward, value)
        self.learn_actor(reward, value)


STEPS = 3
SETTINGS = {"num_envs": 4, "batch_size": 8, "warmup": 16, "samples_per_insert": 2.0, "replay_capacity": 200}


def test_processes_give_the_bits_of_inline(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{':'.join(filter(None, sys.path))}")
    algorithm = Relabelled(**SETTINGS)
    plan = headrace.plan(algorithm, "CartPole-v1", "dual_device", replicas=1, staleness=0)
    assert [fragment.nodes[-3:] for fragment in plan.learners] == [
        ("relabel", "value", "learn_critic"),
        ("relabel", "value", "learn_actor"),
    ]
    ours = inline(plan, algorithm, "CartPole-v1", 1)
    while ours.progress.learned < 24:
        ours.advance()
    seen = ours.progress.metrics
    np.testing.assert_array_equal(seen["critic_saw"], seen["actor_saw"])
    steps = ours.progress.env_steps
    assert steps % (4 * STEPS) == 0
    theirs = Processes(plan, algorithm, "CartPole-v1", 1, Options(evaluate=False, steps=steps))
    end = time.monotonic() + 300
    try:
        while theirs.progress.env_steps < steps and time.monotonic() < end:
            theirs.advance()
        theirs._finish()
        assert theirs.progress.counters() == ours.progress.counters()
        cells = theirs.cells()
        for name, cell in ours.cells().items():
            assert float(cells[name].module) == float(cell.module) != 0
        held, shared = (one.fabric.store("replay", 0) for one in (ours, theirs))
        assert held.inserted == shared.inserted == steps
        for a, b in zip(held.stripes, shared.stripes, strict=True):
            np.testing.assert_array_equal(a, b)
    finally:
        theirs.close()
        ours.close()
