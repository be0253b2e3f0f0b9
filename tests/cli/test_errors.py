"""Every mistake a user can make: one sentence, no traceback, exit code 2, nothing half-written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli import main

LOOPS = """
import jax.numpy as jnp, optax
from headrace import Algorithm, Config, Env, Learned, Reads, Replay, Writes, stage

class Base:
    def cells(self, spec, key):
        return {"weights": Learned(jnp.zeros(()), optax.sgd(0.1))}

    @stage
    def act(self, obs, weights: Reads):
        return jnp.zeros(obs.shape[0], jnp.int32)

    play = act

    @stage
    def learn(self, batch, weights: Writes):
        weights, loss = weights.minimise(lambda w: w**2)
        return weights, {"loss": loss}

class AsksForMissingCell(Base, Algorithm[Config]):
    @stage
    def learn(self, batch, wieghts: Writes):
        return wieghts, {}
    def loop(self, env: Env, replay: Replay):
        replay.insert(env.step(self.act(env.observe())))
        self.learn(replay.sample(8))

class SamplesFirst(Base, Algorithm[Config]):
    def loop(self, env: Env, replay: Replay):
        self.learn(replay.sample(8))
        replay.insert(env.step(self.act(env.observe())))

class TwoWriters(Base, Algorithm[Config]):
    @stage
    def learn_again(self, batch, weights: Writes):
        return weights, {}
    def loop(self, env: Env, replay: Replay):
        replay.insert(env.step(self.act(env.observe())))
        batch = replay.sample(8)
        self.learn(batch)
        self.learn_again(batch)

class WrongWord(Base, Algorithm[Config]):
    def loop(self, env: Env, replay: Replay):
        replay.insert(env.step(self.act(env.observe())))
        self.learn(replay.sample(8, step=3))
"""


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Runs a command that must be refused, and returns the sentence."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loops.py").write_text(LOOPS)

    def run(*words: str) -> str:
        before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        try:
            code = main(list(words))
        except SystemExit as exit:  # argparse
            code = exit.code
        said = capsys.readouterr()
        assert code == 2, said
        after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
        assert {path for path in after if "__pycache__" not in path.parts} == set(before)
        assert "Traceback" not in said.err
        assert said.out == ""
        rest = said.err.strip().splitlines()[1:]
        assert all(line.startswith("  at ") for line in rest) or "usage:" in said.err
        return said.err

    return run


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("AsksForMissingCell", ["learn", "'wieghts'", "did you mean 'weights'?"]),
        ("SamplesFirst", ["samples from 'replay' before it inserts", "call replay.insert first"]),
        ("TwoWriters", ["'learn' and 'learn_again' both write the cell 'weights'", "make it two cells"]),
    ],
)
def test_a_loop_that_does_not_fit_together(refused, name: str, words: list[str]) -> None:
    said = refused("train", f"loops.py:{name}", "CartPole-v1")
    assert all(word in said for word in words), said


def test_a_wrong_word_in_a_loop_is_shown_where_it_is(refused, tmp_path: Path) -> None:
    said = refused("graph", "loops.py:WrongWord", "CartPole-v1").splitlines()
    line = 1 + LOOPS.splitlines().index("        self.learn(replay.sample(8, step=3))")
    assert said == [
        "headrace: replay.sample takes no 'step'; did you mean 'steps'? "
        "(it takes size, after, per_insert, gamma, steps).",
        f"  at {tmp_path}/loops.py:{line}: self.learn(replay.sample(8, step=3))",
    ]


def test_an_unknown_environment_suggests_the_nearest(refused) -> None:
    assert "did you mean 'Pendulum-v1'?" in refused("train", "sac", "Pendlum-v1")


def test_an_unknown_algorithm_suggests_the_nearest(refused) -> None:
    said = refused("train", "sacc", "Pendulum-v1")
    assert "did you mean 'sac'?" in said
    assert "a3c, dqn, impala, mappo, ppo, sac, td3" in said


def test_an_unknown_policy_and_runtime(refused) -> None:
    assert "did you mean 'single'?" in refused("train", "sac", "Pendulum-v1", "--policy", "singel")
    assert "did you mean 'inline'?" in refused("train", "sac", "Pendulum-v1", "--runtime", "inlin")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("batchsize=3", ["no setting 'batchsize'", "did you mean 'batch_size'?", "valid: activation, batch_size"]),
        ("batch_size=many", ["batch_size takes a whole number", "'many'"]),
        ("batch_size=0", ["batch_size=0 must be at least 1"]),
        ("warmup=10", ["warmup=10 must be at least batch_size=256"]),
        ("hidden=0", ["hidden=(0,) must be sizes of at least 1"]),
        ("activation=rely", ["'rely'", "did you mean 'relu'?"]),
        ("gamma", ["--set takes KEY=VALUE", "'gamma'"]),
        ("network=nothing:here", ["'nothing:here' cannot be loaded"]),
        ("lr=1e-3", ["no setting 'lr'", "it is called 'learning_rate' here: Step size of Adam"]),
        ("buffer_size=1e5", ["it is called 'replay_capacity' here"]),
        ("total_timesteps=1e5", ["it is an option of train: --steps (steps= in Python)"]),
    ],
)
def test_a_bad_setting(refused, setting: str, words: list[str]) -> None:
    said = refused("train", "sac", "Pendulum-v1", "--set", setting)
    assert all(word in said for word in words), said


def test_a_replay_larger_than_memory(refused) -> None:
    said = refused("train", "sac", "Pendulum-v1", "--set", "replay_capacity=1e12")
    assert "needs" in said
    assert "is free" in said
    assert "set replay_capacity to at most" in said


def test_a_replay_larger_than_memory_is_refused_before_anything_is_measured(refused, monkeypatch) -> None:
    monkeypatch.delenv("HEADRACE_NO_TUNE")
    monkeypatch.setattr("headrace.run.launch.run_tuner", lambda *given, **named: pytest.fail("it was measured first"))
    text = refused("train", "sac", "Pendulum-v1", "--set", "replay_capacity=1e20")
    assert text.startswith("headrace: a replay store of 1e+20 transitions of ")


def test_a_run_without_steps_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--policy", "single", "--no-eval", "--quiet", "--set", "hidden=8"]
    assert main(["train", "dqn", "CartPole-v1", "--seconds", "1e-9", "--out", str(tmp_path / "run"), *words]) == 0
    assert "--steps 0" not in capsys.readouterr().out


def test_the_wrong_kind_of_actions(refused) -> None:
    assert "SAC needs continuous (Box) actions" in refused("train", "sac", "CartPole-v1")
    assert "DQN needs Discrete actions" in refused("train", "dqn", "Pendulum-v1")


def test_a_folder_that_is_no_run(refused, tmp_path: Path) -> None:
    assert "is not a run" in refused("eval", str(tmp_path / "nowhere"))
    assert "is not a run" in refused("train", "--resume", str(tmp_path / "nowhere"))


def test_an_evaluation_of_no_episodes(refused) -> None:
    assert "--eval-episodes must be above 0" in refused("train", "ppo", "CartPole-v1", "--eval-episodes", "0")


def test_no_algorithm_at_all(refused) -> None:
    assert "give an algorithm and an environment" in refused("train")


def test_more_replicas_than_environments(refused) -> None:
    said = refused("train", "ppo", "CartPole-v1", "--policy", "single_learner_coarse", "--replicas", "9")
    assert "9 replicas of 8 environment(s)" in said


def test_a_video_of_an_unknown_kind(refused, trained: Path) -> None:
    assert ".mp4 or .gif" in refused("eval", str(trained), "--record", "film.txt")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    settings = ["num_envs=2", "horizon=32", "minibatch_size=32", "hidden=8"]
    words = ["train", "ppo", "CartPole-v1", "--runtime", "inline", "--steps", "64", "--out", str(path), "--quiet"]
    assert main([*words, "--set", *settings]) == 0
    return path


def damaged(run: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A copy of a run, and its checkpoint."""
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    return copy, next((copy / "checkpoints").iterdir())


def test_a_truncated_checkpoint(refused, trained: Path, tmp_path: Path) -> None:
    run, checkpoint = damaged(trained, tmp_path)
    data = (checkpoint / "state.safetensors").read_bytes()
    (checkpoint / "state.safetensors").write_bytes(data[: len(data) // 2])
    for words in (["eval", str(run)], ["train", "--resume", str(run)]):
        said = refused(*words)
        assert "is truncated" in said
        assert "remove that folder" in said


def test_a_corrupt_checkpoint(refused, trained: Path, tmp_path: Path) -> None:
    run, checkpoint = damaged(trained, tmp_path)
    data = bytearray((checkpoint / "state.safetensors").read_bytes())
    data[-1] ^= 1
    (checkpoint / "state.safetensors").write_bytes(data)
    assert "does not match its checksum" in refused("eval", str(run))


def test_a_checkpoint_without_a_manifest(refused, trained: Path, tmp_path: Path) -> None:
    run, checkpoint = damaged(trained, tmp_path)
    (checkpoint / "manifest.json").write_text("{")
    assert "no readable manifest" in refused("eval", str(run))


def test_a_run_that_is_there_already(refused, trained: Path) -> None:
    assert "holds a run already" in refused("train", "ppo", "CartPole-v1", "--out", str(trained))


def test_resuming_with_another_environment(refused, trained: Path) -> None:
    said = refused("train", "ppo", "Acrobot-v1", "--resume", str(trained), "--set", "num_envs=2", "horizon=32",
                   "minibatch_size=32", "hidden=8")  # fmt: skip
    assert "was trained with env CartPole-v1" in said


def test_a_wrong_word_on_the_command_line(refused) -> None:
    assert "invalid choice: 'trian'" in refused("trian")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--steps", "x"], "headrace: --steps takes a whole number such as 1e6, got 'x'; see `headrace train --help`."),
        (["--steps", "1.5"], "--steps takes a whole number such as 1e6, got '1.5';"),
        (["--replicas", "two"], "--replicas takes a whole number such as 4, got 'two';"),
        (["--seconds", "1m"], "--seconds takes a number such as 2.5, got '1m';"),
        (["--view", "x"], "headrace: --view: invalid choice: 'x'"),
        (["--total-timesteps", "1e6"], "there is no option --total-timesteps; it is called --steps here;"),
        (["--eval-freq=10"], "there is no option --eval-freq; it is called --eval-every here;"),
        (["--lr", "1e-3"], "there is no option --lr; it is called --learning-rate here;"),
        (["--polcy", "single"], "there is no option --polcy; did you mean --policy?;"),
        (["now"], "'now' is one word too many;"),
    ],
)
def test_a_wrong_option_or_value_is_one_sentence(refused, words: list[str], said: str) -> None:
    found = refused("train", "sac", "Pendulum-v1", *words)
    assert said in found
    assert "_whole" not in found
    assert len(found.splitlines()) == 1


def test_the_help_of_train_names_every_kind_of_environment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    said = capsys.readouterr().out
    for kind in ("HalfCheetah-v5", "module:ID", "module:function", "file.py:function", "envpool:ID", "gymnax:ID",
                 "brax:ID", "pettingzoo:MODULE"):  # fmt: skip
        assert kind in said


def test_our_own_bug_exits_with_one() -> None:
    code = (
        "import headrace.cli.commands as c\n"
        "def boom(options): raise RuntimeError('ours')\n"
        "c.policies = boom\n"
        "from headrace.cli import main\n"
        "import sys; sys.exit(main(['policies']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 1
    assert "RuntimeError: ours" in done.stderr


def test_plan_json_is_the_plan(trained: Path) -> None:
    plan = json.loads((trained / "plan.json").read_text())
    assert [fragment["id"] for fragment in plan["fragments"]] == ["collect", "learn"]


def test_settings_are_options_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    words = ["--policy", "single", "--no-eval", "--quiet", "--steps", "16", "--out"]
    typed = ["--num-envs", "2", "--hidden", "8,4", "--learning-rate=linear:1e-3:0:10", "--set", "gamma=0.9"]
    assert main(["train", *typed[:5], "dqn", "CartPole-v1", *typed[5:], *words, str(tmp_path / "run")]) == 0
    held = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (held["num_envs"], held["hidden"], held["gamma"]) == (2, [8, 4], 0.9)
    assert held["learning_rate"] == "linear:0.001:0.0:10"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    assert main(["train", "own.py:Own", "CartPole-v1", "--loud", "--no-shy", *words, str(tmp_path / "own")]) == 0
    held = json.loads((tmp_path / "own" / "config.json").read_text())["settings"]
    assert (held["loud"], held["shy"]) == (True, False)
    with pytest.raises(SystemExit) as left:
        main(["train", "own.py:Own", "--help"])
    assert left.value.code == 0
    text = capsys.readouterr().out
    assert "settings of own.py:Own:" in text
    assert "--loud, --no-loud" in text
    assert "How loud 100 % is. (default: False)" in " ".join(text.split())


OWN = '''
from dataclasses import dataclass
import headrace

@dataclass(frozen=True)
class Settings(headrace.DQN.config_type):
    loud: bool = False
    """How loud 100 % is."""
    shy: bool = True

class Own(headrace.DQN):
    config_type = Settings
'''
