"""What a pass hands to a store: a trajectory inserted into a replay is its steps, a step put into a rollout is a
trajectory of one; the same rows in every runtime."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import headrace
from headrace.core import Algorithm, Env, Learned, Reads, Replay, Rollout, Tracked, Writes, stage
from headrace.runtimes import Options, inline
from headrace.runtimes.processes import Processes
from headrace.runtimes.pure import Pure
from headrace.settings.config import ReplayConfig

LONG = os.environ.get("HEADRACE_LONG") == "1"
STEPS = 5
WARMUP = 40


@dataclass(frozen=True)
class StoredConfig(ReplayConfig):
    unroll: int = 0
    """Steps of a trajectory; 0 steps once in a pass."""


class Stored(Algorithm[StoredConfig]):
    """Learns the mean reward, and notes what it learned from."""

    def cells(self, spec, key):
        return {"mean": Learned(jnp.zeros(()), optax.sgd(0.1)), "seen": Tracked(jnp.zeros(()))}

    @stage
    def act(self, obs, mean: Reads, key):
        return (jnp.sum(obs, axis=-1) > mean).astype(jnp.int32), {"lean": obs[:, 2] - mean}

    @stage
    def play(self, obs):
        return jnp.zeros(len(obs), jnp.int32)

    @stage
    def learn(self, batch, mean: Writes, seen: Writes):
        mean, loss = mean.minimise(lambda m: jnp.mean((batch.reward + batch.obs.sum() - m) ** 2))
        return (mean, seen.set(seen.module + batch.obs.sum())), {"loss": loss, "rows": jnp.asarray(batch.reward.size)}

    def collected(self, env: Env):
        return (
            env.unroll(self.act, steps=self.config.unroll) if self.config.unroll else env.step(self.act(env.observe()))
        )

    def loop(self, env: Env, replay: Replay) -> None:
        c = self.config
        replay.insert(self.collected(env), capacity=c.replay_capacity)
        self.learn(replay.sample(c.batch_size, after=c.warmup, per_insert=c.samples_per_insert, steps=c.n_step))


class Put(Stored):
    """The same on policy."""

    def loop(self, env: Env, rollout: Rollout) -> None:
        rollout.put(self.collected(env))
        self.learn(rollout.take())


SETTINGS = {"num_envs": 4, "batch_size": 10, "warmup": WARMUP, "samples_per_insert": 2.0, "replay_capacity": 140}


def stored(kind=Stored, **settings):
    return kind(**SETTINGS | settings)


@pytest.mark.parametrize(("policy", "replicas"), [("single", 1), ("single_learner_coarse", 2)])
def test_a_trajectory_is_inserted_as_its_steps(policy, replicas):
    found = []
    for unroll in (0, STEPS):
        algorithm = stored(unroll=unroll, n_step=3)
        runtime = inline(
            headrace.plan(algorithm, "CartPole-v1", policy, replicas=replicas), algorithm, "CartPole-v1", 1
        )
        while runtime.progress.env_steps < 20 * STEPS * 4:
            runtime.collect()  # nothing is learned: the weights stay
        found.append((runtime.fabric.store("replay", 0), runtime.progress))
        runtime.close()
    (one, apart), (many, together) = found
    assert (apart.passes, together.passes) == (20 * STEPS, 20)
    assert one.inserted == many.inserted == 400
    assert [tuple(episode) for episode in apart.episodes] == [tuple(episode) for episode in together.episodes]
    steps = np.arange(100 - one.steps, 100)  # those that are drawn from
    for a, b in zip(one.stripes, many.stripes, strict=True):
        np.testing.assert_array_equal(a[:, steps % one.ring], b[:, steps % many.ring])
    drawn = [table.sample(np.random.default_rng(3), (64,), 0.9, 3) for table in (one, many)]
    for a, b in zip(*(batch[:5] for batch in drawn), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_rate_is_exact_in_steps_of_a_trajectory():
    algorithm = stored(unroll=STEPS)
    runtime = inline(headrace.plan(algorithm, "CartPole-v1", "single"), algorithm, "CartPole-v1", 1)
    repeat = runtime.repeat
    for _ in range(12):
        runtime.advance()
        progress = runtime.progress
        assert progress.env_steps == progress.passes * STEPS * 4 == runtime.fabric.store("replay", 0).inserted
        due = max(0, (progress.env_steps - WARMUP) * 2 // 10)
        assert progress.learned == due // repeat * repeat
    assert progress.learned > 0
    runtime.close()


def test_the_same_where_the_loop_is_one_program():
    pytest.importorskip("gymnax")
    found = []
    for unroll in (0, STEPS):
        algorithm = stored(unroll=unroll)
        runtime = inline(headrace.plan(algorithm, "gymnax:CartPole-v1", "single"), algorithm, "gymnax:CartPole-v1", 1)
        assert isinstance(runtime, Pure)
        while runtime.progress.env_steps < WARMUP:  # one cycle, nothing learned
            runtime.advance()
        found.append(jax.tree.map(np.array, runtime.state()[0]["tables"]["replay"]))
        if unroll:
            for _ in range(2):
                runtime.advance()
            progress = runtime.progress
            assert (
                int(runtime.state()[0]["tables"]["replay"].written) * 4
                == progress.env_steps
                == progress.passes * STEPS * 4
            )
            assert progress.learned == 2 * runtime.repeat
            assert (progress.env_steps - WARMUP) * 2 == progress.update_frames
    assert int(found[0].written) == int(found[1].written) == WARMUP // 4
    for a, b in zip(*(table.rows[:6] for table in found), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("env", ["CartPole-v1", "gymnax:CartPole-v1"])
def test_a_step_is_put_as_a_trajectory_of_one(env):
    if env.startswith("gymnax"):
        pytest.importorskip("gymnax")
    cells = []
    for unroll in (0, 1):
        algorithm = stored(Put, unroll=unroll)
        plan = headrace.plan(algorithm, env, "single")
        assert plan.graph.domains[0].sources[0].output.reward.shape == (1, 4)
        runtime = inline(plan, algorithm, env, 1)
        for _ in range(3):
            runtime.advance()
        assert runtime.progress.counters() == {"env_steps": 12, "passes": 3, "learned": 3, "update_frames": 12}
        assert float(runtime.progress.metrics["rows"]) == 4
        cells.append([float(cell.module) for cell in runtime.cells().values()])
        runtime.close()
    assert cells[0] == cells[1]


@pytest.mark.skipif(not LONG, reason="test_computed inserts trajectories in processes too")
@pytest.mark.parametrize("settings", [{"kind": Stored, "unroll": STEPS}, {"kind": Put}])
def test_processes_give_the_bits_of_inline(settings, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{':'.join(filter(None, sys.path))}")
    algorithm = stored(**settings)
    plan = headrace.plan(algorithm, "CartPole-v1", "single_learner_coarse", replicas=2, staleness=0)
    ours = inline(plan, algorithm, "CartPole-v1", 1)
    while ours.progress.learned < 6:
        ours.advance()
    steps = ours.progress.env_steps
    theirs = Processes(plan, algorithm, "CartPole-v1", 1, Options(evaluate=False, steps=steps))
    end = time.monotonic() + 300
    try:
        while theirs.progress.env_steps < steps and time.monotonic() < end:
            theirs.advance()
        theirs._finish()
        assert theirs.progress.counters() == ours.progress.counters()
        assert theirs.progress.learned > 0
        for name, cell in theirs.cells().items():
            assert float(cell.module) == float(ours.cells()[name].module)
        if settings["kind"] is Stored:
            for a, b in zip(
                ours.fabric.store("replay", 0).stripes, theirs.fabric.store("replay", 0).stripes, strict=True
            ):
                np.testing.assert_array_equal(a, b)
    finally:
        theirs.close()
        ours.close()
