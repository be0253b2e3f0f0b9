"""Going on with a run: everything is there, and with a JAX environment the continuation is the same to the bit."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jax
import numpy as np
import pytest

import headrace
from headrace.cli import main
from headrace.run import checkpoint

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
    options = {"progress": False, "eval_episodes": 2}
    whole = headrace.train(algorithm, env, steps=1_600, seed=3, out=tmp_path / "whole", **options)
    first = headrace.train(algorithm, env, steps=700, seed=3, out=tmp_path / "part", **options)
    second = headrace.train(resume=first.path, steps=1_600, **options)
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


def test_a_run_goes_on_with_the_options_and_the_goal_it_was_started_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    tiny = [f"{name}={value}" for name, value in (SMALL["ppo"] | {"hidden": 16}).items()]
    words = ["ppo", "CartPole-v1", "--policy", "single", "--set", *tiny, "--out", str(run)]
    assert main(["train", *words, "--quiet", "--no-eval", "--checkpoint-every", "60", "--steps", "128"]) == 0
    held = json.loads((run / "config.json").read_text())
    assert held["options"] == {"checkpoint_every": 60.0, "evaluate": False}
    assert held["goal"] == {"steps": 128, "seconds": None, "until": None}
    assert main(["train", "--resume", str(run)]) == 2
    assert "went until 128 steps already; say how far to go on" in capsys.readouterr().err
    assert main(["train", "--resume", str(run), "--quiet", "--steps", "256"]) == 0
    metrics = headrace.Run.load(run).metrics
    assert (metrics[-1]["time/env_steps"], metrics[-1]["eval/mean_reward"]) == (256, None)
    assert json.loads((run / "config.json").read_text()) == held | {"goal": held["goal"] | {"steps": 256}}
    assert main(["train", "--resume", str(run), "--quiet", "--eval", "--eval-episodes", "1", "--steps", "384"]) == 0
    assert headrace.Run.load(run).metrics[-1]["eval/mean_reward"] is not None
    held = json.loads((run / "config.json").read_text())
    assert held["options"] == {"checkpoint_every": 60.0, "eval_episodes": 1, "evaluate": True}


@pytest.mark.parametrize("kind", ["metrics", "checkpoint"])
def test_a_run_stopped_at_once_says_what_is_left_of_it(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, script = tmp_path / "run", tmp_path / "impatient.py"
    script.write_text(f"def leave(event):\n    if event.kind == {kind!r}:\n        raise KeyboardInterrupt\n")
    tiny = [f"{name}={value}" for name, value in (SMALL["ppo"] | {"hidden": 16}).items()]
    words = ["ppo", "CartPole-v1", "--policy", "single", "--set", *tiny, "--out", str(run), "--callback"]
    assert main(["train", *words, f"{script}:leave", "--quiet", "--no-eval", "--steps", "128"]) == 130
    left = {
        "metrics": f"there was no checkpoint yet (--checkpoint-every), {run} has its metrics alone.",
        "checkpoint": f"what came after the last checkpoint is lost. Go on with: headrace train --resume {run}",
    }
    assert capsys.readouterr().err == f"headrace: stopped at once; {left[kind]}\n"
