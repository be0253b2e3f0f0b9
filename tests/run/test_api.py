"""api: train writes a run that can be looked at, loaded, evaluated and gone on with."""

from __future__ import annotations

import json

import gymnasium as gym
import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import headrace
from headrace import DQN, PPO, Run, train
from headrace.errors import CheckpointError, ConfigError, EnvError, UsageError
from headrace.run import checkpoint
from headrace.run.directory import RunConfig


class Paying(gym.Env):
    """Episodes of five steps; every step pays what the class says."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    pay = 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        self.t += 1
        return self.np_random.normal(size=2).astype(np.float32), self.pay, False, self.t == 5, {}


def dqn(**settings):
    defaults = {"hidden": (8,), "num_envs": 4, "batch_size": 16, "warmup": 32, "samples_per_insert": 4.0}
    return DQN(**(defaults | {"replay_capacity": 500} | settings))


OPTIONS = {"policy": "single", "progress": False, "eval_episodes": 3, "eval_every": 64}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "first"
    return train(dqn(), Paying, steps=128, seed=3, out=out, **OPTIONS)


def test_a_run_leaves_everything_it_promises(finished):
    path = finished.path
    config = json.loads((path / "config.json").read_text())
    assert config["algorithm"] == "headrace.algorithms.dqn:DQN"
    assert config["settings"]["hidden"] == [8]
    assert config["settings"]["warmup"] == 32
    assert (config["policy"], config["runtime"], config["seed"]) == ("single", "inline", 3)
    assert config["headrace"] == headrace.__version__
    plan = json.loads((path / "plan.json").read_text())
    assert plan["algorithm"] == "dqn"
    assert [node["id"] for node in plan["nodes"]][:2] == ["env.observe", "act"]
    assert list((path / "tensorboard").glob("events.out.tfevents*"))
    assert checkpoint.newest(path).name == f"{128:012d}"
    assert set(load_file(path / "best" / "state.safetensors"))
    assert not list(path.rglob("*.part"))


def test_its_metrics_count_and_end_with_the_run(finished):
    lines = finished.metrics
    last = lines[-1]
    assert last["time/env_steps"] == last["time/total_timesteps"] == 128
    assert last["time/updates"] == 24  # (128 - 32) * 4 / 16
    assert last["time/update_frames"] == 24 * 16
    assert last["rollout/ep_rew_mean"] == last["rollout/ep_len_mean"] == 5.0
    assert (last["eval/mean_reward"], last["eval/std_reward"], last["eval/mean_ep_length"]) == (5.0, 0.0, 5.0)
    assert isinstance(last["train/loss"], float)
    steps = [line["time/env_steps"] for line in lines]
    assert steps == sorted(steps)
    assert "NaN" not in (finished.path / "metrics.jsonl").read_text()
    assert (finished.interrupted, finished.reached) == (False, False)


def test_a_run_is_loaded_as_it_was_left(finished):
    loaded = Run.load(finished.path, Paying)
    mine, theirs = (jax.tree.leaves(run.cells) for run in (finished, loaded))
    assert all(np.array_equal(a, b) for a, b in zip(mine, theirs, strict=True))
    assert int(loaded.cells["critic"].updates) == 24
    assert loaded.seed == 3
    assert loaded.metrics == finished.metrics
    best = Run.load(finished.path, Paying, best=True)
    assert int(best.cells["critic"].updates) <= 24
    score = loaded.evaluate(episodes=4)
    assert score.returns == (5.0,) * 4
    assert score.lengths == (5,) * 4


def test_its_actor_takes_one_observation_or_several(finished):
    obs = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32)
    actor = finished.actor
    together = np.asarray(actor(obs))
    assert together.shape == (6,)
    alone = [int(actor(row)) for row in obs]
    assert together.tolist() == alone
    assert alone == np.asarray(finished.cells["critic"](obs)).argmax(axis=-1).tolist()


def test_the_same_seed_gives_the_same_run_and_resuming_goes_on(finished, tmp_path):
    half = train(dqn(), Paying, steps=64, seed=3, out=tmp_path / "half", **OPTIONS)
    assert half.metrics[-1]["time/env_steps"] == 64
    stored, values = checkpoint.load(checkpoint.newest(half.path), None, whole=False)
    assert stored is None
    assert (values["env_steps"], values["learned"], values["passes"]) == (64, 8, 16)
    more = train(resume=half.path, env=Paying, steps=128, **OPTIONS)
    assert more.path == half.path
    assert int(more.cells["critic"].updates) == int(finished.cells["critic"].updates) == 24
    values = checkpoint.read_values(checkpoint.newest(more.path))
    assert (values["env_steps"], values["learned"], values["update_frames"]) == (128, 24, 384)
    assert values["elapsed"] > 0
    arrays = load_file(checkpoint.newest(more.path) / "state.safetensors")
    assert arrays["['replay']['written']"].tolist() == [32]  # 128 transitions of 4 environments: nothing was forgotten
    early = load_file(sorted((more.path / "checkpoints").iterdir())[0] / "state.safetensors")
    rows = [name for name in arrays if name.startswith("['replay']['rows']")]
    assert rows
    for name in rows:
        if early[name].dtype != bool:  # the last step before the break is marked as cut short
            assert np.array_equal(arrays[name][:, :16], early[name][:, :16])
    steps = [line["time/env_steps"] for line in more.metrics]
    assert steps == sorted(steps)
    again = train(dqn(), Paying, steps=128, seed=3, out=tmp_path / "again", **OPTIONS)
    pairs = zip(jax.tree.leaves(again.cells), jax.tree.leaves(finished.cells), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


def test_after_resuming_the_best_is_still_the_best(tmp_path, monkeypatch):
    run = train(dqn(), Paying, steps=64, out=tmp_path / "run", **OPTIONS)
    assert checkpoint.read_values(run.path / "best")["mean_reward"] == 5.0
    monkeypatch.setattr(Paying, "pay", 0.1)
    train(resume=run.path, env=Paying, steps=128, **OPTIONS)
    assert checkpoint.read_values(run.path / "best")["mean_reward"] == 5.0


def test_until_ends_a_run_that_is_good_enough(tmp_path):
    run = train(dqn(), Paying, until=4.5, steps=100_000, out=tmp_path / "run", **OPTIONS)
    assert run.reached
    assert run.metrics[-1]["time/env_steps"] <= 128


def test_refusals_name_what_to_do(finished, tmp_path):
    with pytest.raises(UsageError, match=r"holds a run already; choose another --out, or go on with it by --resume"):
        train(dqn(), Paying, steps=64, out=finished.path)
    with pytest.raises(UsageError, match=r"there is no algorithm 'dqm'; did you mean 'dqn'\?"):
        train("dqm", "CartPole-v1", steps=10, out=tmp_path / "x")
    with pytest.raises(UsageError, match=r"there is no policy 'singel'; did you mean 'single'"):
        train(dqn(), Paying, policy="singel", steps=10, out=tmp_path / "x")
    with pytest.raises(UsageError, match=r"there is no runtime 'inlin'; did you mean 'inline'\?"):
        train(dqn(), Paying, runtime="inlin", steps=10, out=tmp_path / "x")
    with pytest.raises(UsageError, match="the seed must be a whole number from 0"):
        train(dqn(), Paying, seed=-1, steps=10, out=tmp_path / "x")
    with pytest.raises(UsageError, match="give an algorithm and an environment"):
        train(steps=10)
    with pytest.raises(UsageError, match="is not an algorithm"):
        train(int, "CartPole-v1", steps=10)
    with pytest.raises(UsageError, match="--steps must be above 0"):
        train(dqn(), Paying, steps=0, out=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_run_of_other_settings_is_not_gone_on_with(finished, tmp_path):
    with pytest.raises(
        CheckpointError,
        match=r"was trained with gamma 0\.99, not 0\.5; name that one, or leave it out",
    ):
        train(dqn(gamma=0.5), resume=finished.path, env=Paying, steps=200)
    with pytest.raises(CheckpointError, match=r"was trained with algorithm headrace\.algorithms\.dqn:DQN, not headr"):
        train(PPO(), resume=finished.path, env=Paying, steps=200)
    with pytest.raises(CheckpointError, match=r"was trained with env .*Paying, not CartPole-v1; name that one"):
        train(resume=finished.path, env="CartPole-v1", steps=200)
    with pytest.raises(CheckpointError, match=r"is not a run: it has no config\.json"):
        train(resume=tmp_path / "nowhere", steps=10)
    with pytest.raises(CheckpointError, match=r"is not a run: it has no config\.json"):
        Run.load(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"algorithm": "x"}'])
def test_a_config_that_cannot_be_read_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json' cannot be read"):
        RunConfig.read(tmp_path)


def test_an_algorithm_of_ones_own_is_not_imported_because_a_run_names_it(tmp_path):
    settings = {"settings": {}, "env": "x", "policy": "single", "runtime": "inline", "replicas": None, "seed": 0}
    (tmp_path / "config.json").write_text(json.dumps({"algorithm": "gone:Gone", "headrace": "0", **settings}))
    with pytest.raises(UsageError, match=r"runs only if you name it: algorithm 'gone:Gone'"):
        Run.load(tmp_path)
    with pytest.raises(ConfigError, match=r"'gone:Gone' cannot be (imported|loaded)"):
        Run.load(tmp_path, algorithm="gone:Gone")


@pytest.mark.parametrize("seed", [2**31, 2**32 + 1])
def test_a_large_seed_is_as_good_as_any(tmp_path, seed):
    run = train(dqn(), Paying, steps=8, seed=seed, out=tmp_path / "run", **OPTIONS)
    assert run.metrics[-1]["time/env_steps"] == 8


@pytest.mark.parametrize("seed", [2**63, 2**70])
def test_a_seed_beyond_64_bits_is_refused(tmp_path, seed):
    with pytest.raises(UsageError, match="seed"):
        train(dqn(), Paying, steps=8, seed=seed, out=tmp_path / "run", **OPTIONS)


class Masked(gym.Env):
    """Three actions, of which the info allows only the last."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {"action_mask": np.array([0, 0, 1])}

    def step(self, action):
        assert action == 2
        return np.zeros(2, np.float32), 1.0, True, False, {"action_mask": np.array([0, 0, 1])}


def test_its_actor_takes_a_mask_and_refuses_another_shape(tmp_path):
    run = train(dqn(), Masked, steps=64, out=tmp_path / "run", **OPTIONS)
    assert run.actor(np.zeros(2), action_mask=[False, False, True]) == 2
    assert run.actor(np.zeros(2)) in (0, 1, 2)
    with pytest.raises(UsageError, match="the actor takes observations of"):
        run.actor(np.zeros(3))


def test_an_environment_that_fails_at_once_leaves_nothing(tmp_path):
    class Broken(Masked):
        def step(self, action):
            raise RuntimeError("boom")

    with pytest.raises(EnvError, match="boom"):
        train(dqn(), Broken, steps=64, out=tmp_path / "run", **OPTIONS)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options", [{"until": float("nan")}, {"out": ""}, {"eval_every": 0}, {"checkpoint_every": -1.0}]
)
def test_options_that_mean_nothing_are_refused(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        train(dqn(), Paying, **({"steps": 64, **OPTIONS} | options))
    assert not list(tmp_path.iterdir())
