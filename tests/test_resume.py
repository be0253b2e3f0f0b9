"""Going on with a run: everything is there, and with a JAX environment the continuation is the same to the bit."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import numpy as np
import pytest

import headrace
from headrace.services import checkpoint

SMALL = {
    "ppo": {"num_envs": 4, "horizon": 16, "minibatch_size": 32, "hidden": (16,)},
    "dqn": {"num_envs": 4, "warmup": 64, "batch_size": 32, "hidden": (16,), "replay_capacity": 500, "n_step": 3},
    "sac": {"num_envs": 4, "warmup": 64, "batch_size": 32, "hidden": (16,), "replay_capacity": 500},
}


def arrays(run: headrace.Run) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.cells) if hasattr(leaf, "shape")]


CONTINUED = [("ppo", "gymnax:CartPole-v1"), ("sac", "gymnax:Pendulum-v1"), ("dqn", "gymnax:CartPole-v1")]


@pytest.mark.parametrize(("name", "env"), CONTINUED if os.environ.get("HEADRACE_LONG") == "1" else CONTINUED[:2])
def test_a_jax_environment_goes_on_to_the_bit(name: str, env: str, tmp_path: Path) -> None:
    algorithm = {"ppo": headrace.PPO, "dqn": headrace.DQN, "sac": headrace.SAC}[name](**SMALL[name])
    whole = headrace.train(algorithm, env, steps=4_000, seed=3, out=tmp_path / "whole", progress=False)
    first = headrace.train(algorithm, env, steps=1_500, seed=3, out=tmp_path / "part", progress=False)
    second = headrace.train(resume=first.path, steps=4_000, progress=False)
    assert second.metrics[-1]["time/env_steps"] == whole.metrics[-1]["time/env_steps"]
    assert second.metrics[-1]["time/update_frames"] == whole.metrics[-1]["time/update_frames"]
    for ours, theirs in zip(arrays(second), arrays(whole), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_host_environment_goes_on_with_its_replay(tmp_path: Path) -> None:
    algorithm = headrace.DQN(**SMALL["dqn"] | {"replay_capacity": 2_000})
    first = headrace.train(algorithm, "CartPole-v1", steps=300, seed=3, out=tmp_path / "run", progress=False)
    before = first.metrics[-1]
    held = checkpoint.load_file(checkpoint.newest(first.path) / "state.safetensors")
    rows = held["['replay']['rows'][0]"]
    second = headrace.train(resume=first.path, steps=900, progress=False)
    after = second.metrics[-1]
    assert after["time/env_steps"] >= 900 > before["time/env_steps"] >= 300
    assert after["time/updates"] > before["time/updates"] > 0
    assert after["time/elapsed_s"] > before["time/elapsed_s"]
    again = checkpoint.load_file(checkpoint.newest(first.path) / "state.safetensors")
    np.testing.assert_array_equal(again["['replay']['rows'][0]"][:, : 300 // 4 - 1], rows[:, : 300 // 4 - 1])
    steps = [line["time/env_steps"] for line in second.metrics]
    assert steps == sorted(steps)


def test_same_seed_same_run_other_seed_other_run(tmp_path: Path) -> None:
    algorithm = headrace.PPO(**SMALL["ppo"])

    def trained(name: str, seed: int) -> list[np.ndarray]:
        options = {"policy": "single", "seed": seed, "out": tmp_path / name, "progress": False}
        return arrays(headrace.train(algorithm, "CartPole-v1", steps=256, **options))

    one, two, other = trained("one", 1), trained("two", 1), trained("other", 2)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
