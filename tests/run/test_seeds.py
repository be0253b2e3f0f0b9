"""seeds: several runs of one training, in one program over a JAX environment, each as it would be alone."""

from __future__ import annotations

import json
import os
import signal

import jax
import numpy as np
import pytest

import headrace
from headrace import DQN, PPO, Event, train, train_seeds
from headrace.cli import main
from headrace.errors import CallbackError, UsageError
from headrace.run import checkpoint
from headrace.runtimes.pure import Pure

pytest.importorskip("gymnax")

ENV = "gymnax:CartPole-v1"
OPTIONS = {"progress": False, "eval_episodes": 2, "eval_every": 256}


def ppo() -> PPO:
    return PPO(hidden=(8,), num_envs=4, horizon=16, minibatch_size=32, epochs=2)


def dqn() -> DQN:
    return DQN(hidden=(8,), num_envs=4, batch_size=16, warmup=32, samples_per_insert=4.0, replay_capacity=200)


def arrays(run: headrace.Run) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.cells) if hasattr(leaf, "shape")]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two seeds, and how often a loop advanced by itself meanwhile."""
    out, alone, advance = tmp_path_factory.mktemp("seeds") / "two", [], Pure.advance
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pure, "advance", lambda self: alone.append(self) or advance(self))
        runs = train_seeds(ppo(), ENV, seeds=2, steps=512, out=out, **OPTIONS)
    return runs, alone


def test_each_has_a_run_of_its_own(two):
    runs, alone = two
    assert not alone
    assert [run.path.name for run in runs] == ["seed-0", "seed-1"]
    for seed, run in enumerate(runs):
        assert json.loads((run.path / "config.json").read_text())["seed"] == run.seed == seed
        assert run.metrics[-1]["time/env_steps"] == 512
        assert [row["time/env_steps"] for row in run.metrics if row["eval/version"]][:1] == [256]
        assert checkpoint.newest(run.path).name == f"{512:012d}"
        assert (run.path / "best" / "state.safetensors").exists()


def test_each_is_what_it_is_alone_up_to_rounding(two, tmp_path):
    runs, _ = two
    alone = train(ppo(), ENV, seed=1, steps=512, out=tmp_path / "alone", **OPTIONS)
    together, other = runs[1].metrics[-1], alone.metrics[-1]
    for name in ("time/updates", "time/update_frames", "rollout/ep_rew_mean", "rollout/ep_len_mean"):
        assert together[name] == other[name]
    for mine, theirs in zip(arrays(runs[1]), arrays(alone), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    assert not np.allclose(arrays(runs[0])[0], arrays(runs[1])[0])


def test_all_of_them_go_on_together_and_one_goes_on_alone(two):
    runs, _ = two
    folder = runs[0].path.parent
    assert main(["train", "--resume", str(folder), "--steps", "640", "--quiet", "--no-eval"]) == 0
    assert [checkpoint.newest(run.path).name for run in runs] == [f"{640:012d}"] * 2
    assert train(resume=runs[1].path, steps=704, progress=False).metrics[-1]["time/env_steps"] == 704
    apart = train_seeds(resume=folder, steps=704, progress=False)  # of which the second has been there
    assert [run.metrics[-1]["time/env_steps"] for run in apart] == [704] * 2
    with pytest.raises(UsageError, match="holds seeds already"):
        train_seeds(ppo(), ENV, out=folder)


def test_replay_loops_run_together_and_one_may_stop_early(tmp_path):
    def stop(event: Event) -> None:
        if event.config["seed"] == 5 and event.kind == "evaluation":
            event.stop()

    seeds, options = (5, 7), OPTIONS | {"eval_every": 64, "callbacks": [stop]}
    five, seven = train_seeds(dqn(), ENV, seeds=seeds, steps=192, out=tmp_path / "run", **options)
    assert (bool(five.stopped), seven.stopped) == (True, None)
    assert (five.metrics[-1]["time/env_steps"], seven.metrics[-1]["time/env_steps"]) == (64, 192)
    updates = [int(run.cells["critic"].updates) for run in (five, seven)]
    assert updates == [(run.metrics[-1]["time/env_steps"] - 32) * 4 // 16 for run in (five, seven)] == [8, 40]
    kept = checkpoint.load_file(checkpoint.newest(seven.path) / "state.safetensors")
    assert kept["['tables']['replay'].written"] == 192 // 4


ENDLESS = {"seeds": 2, "steps": 10**9, "progress": False, "evaluate": False}


def test_an_error_in_one_ends_and_saves_all(tmp_path):
    def broken(event: Event) -> None:
        if event.config["seed"] == 1:
            raise ValueError("oh")

    with pytest.raises(CallbackError, match=r"raised ValueError: oh at metrics of .*seed-1"):
        train_seeds(ppo(), ENV, out=tmp_path / "run", callbacks=[broken], **ENDLESS)
    one, two = (int(checkpoint.newest(tmp_path / "run" / f"seed-{n}").name) for n in range(2))
    assert one - two == 64  # the first had been asked before the second failed


def test_ctrl_c_ends_all_and_the_handler_is_put_back(tmp_path):
    before = signal.getsignal(signal.SIGINT)

    def press(event: Event) -> None:
        if event.kind == "metrics" and event.config["seed"] == 0 and not pressed:
            pressed.append(event.row["time/env_steps"])
            os.kill(os.getpid(), signal.SIGINT)

    pressed: list[int] = []
    runs = train_seeds(ppo(), ENV, out=tmp_path / "run", callbacks=[press], **ENDLESS)
    assert [run.interrupted for run in runs] == [True, True]
    assert [run.metrics[-1]["time/env_steps"] - pressed[0] for run in runs] == [0, 0]
    assert signal.getsignal(signal.SIGINT) is before


def test_host_environments_take_turns(tmp_path, capsys):
    words = ["train", "dqn", "CartPole-v1", "--policy", "single", "--seeds", "2", "--seed", "3", "--steps", "64"]
    words += [
        "--quiet",
        "--out",
        str(tmp_path / "run"),
        "--set",
        "hidden=8",
        "num_envs=4",
        "warmup=32",
        "batch_size=16",
    ]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said.count("done after") == 2
    assert f"seeds: {tmp_path / 'run'}" in said
    ends = [headrace.Run.load(tmp_path / "run" / f"seed-{n}") for n in (3, 4)]
    assert [run.metrics[-1]["time/env_steps"] for run in ends] == [64, 64]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seeds": 0}, "at least 1 seed"),
        ({"seeds": (1, 1)}, "no seed twice"),
        ({"seed": 3}, r"seeds=range\(3, 8\)"),
        ({"policy": "auto"}, "another policy for each seed"),
    ],
)
def test_what_makes_no_sense_is_refused(given, said):
    with pytest.raises(UsageError, match=said):
        train_seeds("ppo", ENV, **given)
