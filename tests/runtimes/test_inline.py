"""inline: what is collected, how often it learns, and that nothing but the seed matters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import equinox as eqx
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from headrace.algorithms import DQN, PPO
from headrace.core import Algorithm, Env, Learned, Reads, Replay, ReplayConfig, Rollout, Tracked, Writes, stage
from headrace.graph import fuse, trace, verify
from headrace.machine import Machine
from headrace.policies import POLICIES
from headrace.runtimes import Options, inline
from headrace.types import Box, Discrete, EnvSpec, Transition

MACHINE = Machine(cores=2, memory=1 << 34, devices=("cpu:0",))


class Scripted(gym.Env):
    """Episode e lasts 3 + e % 2 steps; even ones terminate, odd ones are cut short. Shows (e, t), pays 10 e + t."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self):
        self.episode, self.t = -1, 0

    def seen(self):
        return np.asarray([self.episode, self.t], np.float32)

    def reset(self, *, seed=None, options=None):
        self.episode, self.t = 0 if seed is not None else self.episode + 1, 0
        return self.seen(), {}

    def step(self, action):
        reward = 10.0 * self.episode + self.t
        self.t += 1
        over = self.t == 3 + self.episode % 2
        even = self.episode % 2 == 0
        return self.seen(), reward, over and even, over and not even, {}


@dataclass(frozen=True, kw_only=True)
class ProbeConfig(ReplayConfig):
    """Settings of the probe."""

    delay: int = 1
    """How often the slow cell is written."""


class Probe(Algorithm[ProbeConfig]):
    """Keeps the random key of every step, counts its updates, and watches for episodes that were mixed up."""

    def cells(self, spec, key):
        return {
            "fast": Learned(jnp.zeros(2), optax.sgd(0.1)),
            "slow": Learned(jnp.zeros(2), optax.sgd(0.1)),
            "seen": Tracked(jnp.zeros((), jnp.uint32)),
        }

    @stage
    def act(self, obs, fast: Reads, key):
        number = len(obs)
        bits = jnp.broadcast_to(jax.random.bits(key, (), jnp.uint32), (number,))
        return jnp.zeros(number, jnp.int32), {"bits": bits, "fast": jnp.broadcast_to(fast.sum(), (number,))}

    @stage
    def play(self, obs):
        return jnp.zeros(len(obs), jnp.int32)

    @stage
    def learn(self, batch, fast: Writes, seen: Writes, key):
        fast, loss = fast.minimise(lambda w: jnp.sum((w - batch.obs.mean(axis=0)) ** 2))
        bits = jax.random.bits(key, (), jnp.uint32)
        straddles = jnp.any(batch.obs[:, 0] != batch.next_obs[:, 0])
        return (fast, seen.set(bits)), {"loss": loss, "straddles": straddles.astype(jnp.float32), "bits": bits}

    @stage
    def learn_slow(self, batch, slow: Writes):
        slow, _ = slow.minimise(lambda w: jnp.sum(w))
        return slow, {"slow_loss": jnp.ones(())}

    def loop(self, env: Env, replay: Replay) -> None:
        c = self.config
        replay.insert(env.step(self.act(env.observe())), capacity=c.replay_capacity)
        batch = replay.sample(
            c.batch_size, after=c.warmup, per_insert=c.samples_per_insert, gamma=c.gamma, steps=c.n_step
        )
        self.learn(batch)
        self.learn_slow(batch, every=c.delay)


class Counting(Probe):
    """Reports a whole number, now and then."""

    @stage
    def learn_slow(self, batch, slow: Writes):
        return slow, {"count": jnp.asarray(3, jnp.int32)}


class Trajectories(Probe):
    """The same, on policy: learns nothing but what it was given."""

    @stage
    def keep(self, trajectory, seen: Writes):
        total = trajectory.reward.sum() + 1000 * (trajectory.obs[1:, :, 1] != trajectory.next_obs[:-1, :, 1]).sum()
        return seen.set(seen.module), {"total": total, "ends": (trajectory.terminated | trajectory.truncated).sum()}

    def loop(self, env: Env, rollout: Rollout) -> None:
        rollout.put(env.unroll(self.act, steps=7))
        self.keep(rollout.take())


SCRIPTED = EnvSpec("scripted", Box((2,)), Discrete(2), 2)
SETTINGS = {"num_envs": 2, "batch_size": 4, "warmup": 8, "samples_per_insert": 2.0, "replay_capacity": 200}


def start(algorithm, spec, env, policy="single", replicas=1, seed=0, debug=False):
    plan = verify(fuse(POLICIES[policy](trace(algorithm, spec), MACHINE, replicas)), MACHINE)
    return inline(plan, algorithm, env, seed, Options(debug=debug))


def probe(cycles, seed=0, policy="single", replicas=1, kind=Probe, debug=False, **settings):
    runtime = start(kind(**(SETTINGS | settings)), SCRIPTED, Scripted, policy, replicas, seed, debug)
    while runtime.progress.learned == 0 or cycles > 0:
        runtime.advance()
        cycles -= runtime.progress.learned > 0
    return runtime


def inserted(runtime):
    """What the table holds, as a transition of [writer, step, env, ...]."""
    arrays, _ = runtime.state()
    obs, action, reward, terminated, truncated, next_obs, bits, fast = arrays["replay"]["rows"]
    return Transition(obs, action, reward, terminated, truncated, next_obs, {"bits": bits, "fast": fast})


@cache
def ran(**settings):
    return probe(3, **settings)


@pytest.mark.parametrize(
    ("policy", "replicas"), [("single", 1), ("single_learner_coarse", 1), ("single_learner_coarse", 2)]
)
def test_what_the_environment_did_is_what_the_table_holds(policy, replicas):
    rows = inserted(ran(policy=policy, replicas=replicas))
    assert rows.reward.shape[0] == replicas
    assert rows.reward.shape[0] * rows.reward.shape[2] == 2
    for writer in range(replicas):
        for env in range(2 // replicas):
            episode, t = (rows.obs[writer, :, env, i] for i in (0, 1))
            length = 3 + episode % 2
            np.testing.assert_array_equal(rows.reward[writer, :, env], 10 * episode + t)
            np.testing.assert_array_equal(rows.next_obs[writer, :, env, 0], episode)
            np.testing.assert_array_equal(rows.next_obs[writer, :, env, 1], t + 1)
            over = t + 1 == length
            np.testing.assert_array_equal(rows.terminated[writer, :, env], over & (episode % 2 == 0))
            np.testing.assert_array_equal(rows.truncated[writer, :, env], over & (episode % 2 == 1))
            np.testing.assert_array_equal(episode[1:], np.where(over, episode + 1, episode)[:-1])
            np.testing.assert_array_equal(t[1:], np.where(over, 0, t + 1)[:-1])
            assert over.sum() >= 4


def test_no_batch_straddles_two_episodes():
    runtime = probe(3, n_step=3)
    assert np.asarray(runtime.progress.metrics["straddles"].values).tolist() == [0.0] * 8


def test_finished_episodes_are_reported_once():
    # Two environments, episodes of 3 and 4 steps: rewards 0+1+2, then 10+11+12+13, then 20+21+22 ...
    runtime = ran()
    episodes = runtime.progress.episodes
    steps = runtime.progress.env_steps // 2
    ends, total = [], 0
    for e in range(100):
        total += 3 + e % 2
        if total > steps:
            break
        ends.append((sum(10.0 * e + t for t in range(3 + e % 2)), 3 + e % 2))
    assert sorted((episode.reward, episode.length) for episode in episodes) == sorted(2 * ends)


@pytest.mark.parametrize(("per_insert", "size", "num_envs"), [(2.0, 4, 2), (0.3, 4, 2), (1 / 3, 5, 2), (16.0, 4, 1)])
def test_the_rate_is_exact_after_the_warm_up(per_insert, size, num_envs):
    algorithm = Probe(**(SETTINGS | {"samples_per_insert": per_insert, "batch_size": size, "num_envs": num_envs}))
    runtime = start(algorithm, SCRIPTED.with_envs(num_envs), Scripted)
    while runtime.progress.env_steps < 8:
        assert runtime.progress.learned == 0
        runtime.advance()
    repeat = fuse(POLICIES["single"](trace(algorithm, SCRIPTED), MACHINE)).learners[0].repeat
    for _ in range(6):
        runtime.advance()
        progress = runtime.progress
        earned = (progress.env_steps - 8) * per_insert
        replayed = progress.learned * size
        assert progress.update_frames == replayed
        # Learned as soon as it was earned: one pass of the environments earlier it was not yet due.
        assert replayed <= earned + 1e-6 < replayed + max(num_envs * per_insert, repeat * size) + 1e-6
        assert earned - num_envs * per_insert < replayed + 1e-6
    assert int(runtime.cells()["fast"].updates) == runtime.progress.learned


@pytest.mark.parametrize("delay", [1, 3, 5])
def test_a_delayed_stage_runs_exactly_every_nth_pass(delay):
    runtime = probe(4, delay=delay)
    learned = runtime.progress.learned
    assert learned == 32
    assert int(runtime.cells()["fast"].updates) == learned
    assert int(runtime.cells()["slow"].updates) == learned // delay
    np.testing.assert_allclose(runtime.cells()["slow"].module, -0.1 * (learned // delay), rtol=1e-5)
    ran_in = [(number + 1) % delay == 0 for number in range(24, 32)]
    assert runtime.progress.metrics["slow_loss"].ran.tolist() == ran_in


def test_a_delayed_stage_reports_the_passes_that_it_ran_in_even_where_it_reports_integers():
    count = probe(1, delay=3, kind=Counting).progress.metrics["count"]
    assert count.ran.tolist() == [(number + 1) % 3 == 0 for number in range(8)]
    assert float(count) == 3.0


def bits(**settings):
    rows = inserted(ran(**settings)).extra["bits"]
    return rows[:, :, 0]


def test_keys_follow_from_seed_pass_and_replica():
    base = bits()
    assert base.shape[0] == 1
    assert len(set(base[0].tolist())) == base.shape[1]  # every pass has its own
    assert set(base[0].tolist()).isdisjoint(bits(seed=1)[0].tolist())
    two = bits(policy="single_learner_coarse", replicas=2)
    assert set(two[0].tolist()).isdisjoint(two[1].tolist())
    # The first replica draws as it would alone: keys do not depend on who else runs, nor in what order.
    assert two[0].tolist()[: base.shape[1]] == base[0].tolist()[: two.shape[1]]


def test_keys_follow_from_the_node():
    runtime = ran()
    learning = np.asarray(runtime.progress.metrics["bits"].values).tolist()
    assert len(set(learning)) == len(learning)
    assert set(learning).isdisjoint(bits()[0].tolist())
    assert int(runtime.cells()["seen"].module) == learning[-1]


def test_keys_do_not_depend_on_how_learning_is_grouped():
    both = {"warmup": 16, "replay_capacity": 4000}
    often, seldom = probe(15, **both), probe(2, samples_per_insert=0.25, batch_size=16, **both)
    rows = [inserted(runtime).extra["bits"][0, :, 0].tolist() for runtime in (often, seldom)]
    shared = min(len(row) for row in rows)
    assert shared >= 100
    assert often.progress.learned > 5 * seldom.progress.learned
    assert rows[0][:shared] == rows[1][:shared]


def same_bits(first, second):
    pairs = zip(*(jax.tree.leaves(eqx.filter(cells, eqx.is_array)) for cells in (first, second)), strict=True)
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in pairs)


CARTPOLE = EnvSpec("CartPole-v1", Box((4,)), Discrete(2), 4)


def dqn(**settings):
    defaults = {"hidden": (8,), "num_envs": 4, "batch_size": 16, "warmup": 32, "samples_per_insert": 4.0}
    return DQN(**(defaults | {"replay_capacity": 500, "n_step": 2} | settings))


def ppo():
    return PPO(hidden=(8,), num_envs=4, horizon=16, minibatch_size=32, epochs=2)


@cache
def trained(make, policy, replicas=1, seed=0, cycles=12):
    runtime = start(make(), CARTPOLE, "CartPole-v1", policy, replicas, seed)
    for _ in range(cycles):
        runtime.advance()
    assert runtime.progress.learned > 0
    cells = jax.tree.map(lambda leaf: np.array(leaf) if eqx.is_array(leaf) else leaf, runtime.cells())
    runtime.close()
    return cells, runtime.progress.counters()


@pytest.mark.parametrize("make", [dqn, ppo])
def test_one_replica_of_a_distributed_plan_equals_a_single_one_to_the_bit(make):
    alone, counters = trained(make, "single")
    apart, other_counters = trained(make, "single_learner_coarse")
    assert counters == other_counters
    assert same_bits(alone, apart)


@pytest.mark.parametrize(("make", "policy", "replicas"), [(dqn, "single_learner_coarse", 2), (ppo, "single", 1)])
def test_the_seed_decides_everything(make, policy, replicas):
    first, _ = trained(make, policy, replicas)
    again, _ = trained.__wrapped__(make, policy, replicas)
    other, _ = trained(make, policy, replicas, seed=1)
    assert same_bits(first, again)
    assert not same_bits(first, other)


def test_the_same_work_is_done_whatever_the_replicas():
    _, alone = trained(dqn, "single")
    _, apart = trained(dqn, "single_learner_coarse", 2)
    assert alone == apart
    _, alone = trained(ppo, "single")
    assert alone == {"env_steps": 12 * 64, "passes": 12, "learned": 12, "update_frames": 12 * 128}


def test_restoring_goes_on_with_counters_cells_and_replay():
    first = start(dqn(), CARTPOLE, "CartPole-v1")
    for _ in range(11):
        first.advance()
    arrays, values = jax.tree.map(np.array, first.state()[0]), first.state()[1]
    other = start(dqn(), CARTPOLE, "CartPole-v1", seed=5)
    other.restore(arrays, dict(values))
    assert same_bits(first.cells(), other.cells())
    assert other.progress.counters() == first.progress.counters() == values
    # Learning goes on from the same state at the same rate; only the environment starts anew.
    first.advance()
    other.advance()
    assert other.progress.counters() == first.progress.counters()
    assert other.progress.learned > values["learned"]


@pytest.mark.parametrize("replicas", [1, 2])
def test_trajectories_of_all_replicas_are_learned_from_whole(replicas):
    runtime = start(Trajectories(**SETTINGS), SCRIPTED, Scripted, "single_learner_coarse", replicas)
    totals, ends = [], []
    for _ in range(3):
        runtime.advance()
        totals.append(float(runtime.progress.metrics["total"]))
        ends.append(float(runtime.progress.metrics["ends"]))
    lengths = [3 + e % 2 for e in range(20)]
    rewards = [10.0 * e + t for e in range(20) for t in range(lengths[e])]
    assert ends == [4, 4, 4]
    mixed = [1000 * 2 * sum(p + 1 in np.cumsum(lengths) for p in range(7 * i, 7 * i + 6)) for i in range(3)]
    assert totals == [2 * sum(rewards[7 * i : 7 * i + 7]) + mixed[i] for i in range(3)]


class Printing(Probe):
    """Prints arrays, as a person does who looks for a mistake."""

    @stage
    def act(self, obs, fast: Reads, key):
        print("acting on", obs)
        return Probe.act.function(self, obs, fast, key)

    @stage
    def learn(self, batch, fast: Writes, seen: Writes, key):
        print("learning from", batch.obs[:, 0])
        return Probe.learn.function(self, batch, fast, seen, key)


def test_in_debug_stages_see_values_and_not_tracers(capsys):
    algorithm = Printing(**SETTINGS)
    runtime = start(algorithm, SCRIPTED, Scripted, debug=True)
    capsys.readouterr()
    while runtime.progress.learned == 0:
        runtime.advance()
    text = capsys.readouterr().out
    assert "Traced" not in text
    assert "Tracer" not in text
    assert "acting on [[0. 0.]\n [0. 0.]]" in text
    assert "acting on [[0. 2.]\n [0. 2.]]" in text
    assert text.count("learning from [") == runtime.progress.learned


def test_debugging_does_not_change_what_is_learned():
    slow, fast = probe(1, debug=True), probe(1)
    assert slow.progress.counters() == fast.progress.counters()
    np.testing.assert_allclose(slow.cells()["fast"].module, fast.cells()["fast"].module, rtol=1e-5)
    assert int(slow.cells()["seen"].module) == int(fast.cells()["seen"].module)


class Shaping(Probe):
    """Changes the reward, and the reward alone, before it is stored."""

    @stage
    def shape(self, reward):
        return reward + 0.5

    @stage
    def learn(self, batch, fast: Writes, seen: Writes, key):
        return (fast, seen), {"reward": batch.reward.mean(), "halves": jnp.all(batch.reward % 1 == 0.5)}

    def loop(self, env: Env, replay: Replay) -> None:
        step = env.step(self.act(env.observe()))
        replay.insert(step._replace(reward=self.shape(step.reward)), capacity=200)
        self.learn(replay.sample(4, after=8))


def test_a_stage_may_change_part_of_a_transition_on_its_way_to_the_store():
    runtime = start(Shaping(**SETTINGS), SCRIPTED, Scripted)
    while runtime.progress.learned == 0:
        runtime.advance()
    assert np.asarray(runtime.progress.metrics["halves"].values).all()
