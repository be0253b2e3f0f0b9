"""callbacks: told of rows, evaluations and checkpoints; they may stop a run, and one that raises ends it by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import headrace
from headrace import DQN, Event, Run, train
from headrace.cli import main
from headrace.errors import CallbackError, UsageError
from headrace.run import checkpoint

SETTINGS = {"hidden": (8,), "num_envs": 4, "batch_size": 16, "warmup": 32, "samples_per_insert": 4.0}
OPTIONS = {"policy": "single", "progress": False, "eval_episodes": 2, "eval_every": 64}


def trained(out: Path, *callbacks, **options) -> Run:
    algorithm = DQN(**SETTINGS, replay_capacity=500)
    return train(algorithm, "CartPole-v1", out=out, callbacks=callbacks, **(OPTIONS | {"steps": 256} | options))


def test_they_are_told_of_every_row_evaluation_and_checkpoint(tmp_path):
    events: list[Event] = []
    run = trained(tmp_path / "run", events.append)
    rows = [event for event in events if event.kind == "metrics"]
    assert [dict(event.row) for event in rows] == run.metrics
    evaluations = [event for event in events if event.kind == "evaluation"]
    assert len(evaluations) == 4
    for event in evaluations:
        assert event.row["eval/mean_reward"] == event.score.mean_reward
        assert len(event.score.returns) == 2
    *_, last = events
    assert (last.kind, last.checkpoint) == ("checkpoint", checkpoint.newest(run.path))
    assert (last.run, last.config["seed"], last.config["settings"]["hidden"]) == (run.path, 0, [8])
    assert run.stopped is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        last.kind = "metrics"
    with pytest.raises(TypeError):
        last.row["time/env_steps"] = 0


def test_one_may_stop_the_run(tmp_path):
    def enough(event: Event) -> None:
        if event.kind == "evaluation" and event.row["time/env_steps"] >= 128:
            event.stop()

    run = trained(tmp_path / "run", enough)
    assert run.stopped.endswith("enough")
    assert (run.interrupted, run.reached) == (False, False)
    assert run.metrics[-1]["time/env_steps"] == 128
    assert checkpoint.newest(run.path).name == f"{128:012d}"


def test_what_one_returns_stops_nothing(tmp_path):
    assert trained(tmp_path / "run", lambda event: True).metrics[-1]["time/env_steps"] == 256


def test_an_exception_ends_the_run_with_its_name_and_everything_saved(tmp_path):
    kinds = []

    def broken(event: Event) -> None:
        raise ValueError("no such thing")

    out = tmp_path / "run"
    with pytest.raises(CallbackError, match=r"broken' raised ValueError: no such thing at metrics of .*--resume"):
        trained(out, broken, lambda event: kinds.append(event.kind))
    assert kinds == ["metrics", "evaluation", "metrics", "checkpoint"]  # the others are told how it ends
    assert checkpoint.newest(out).name == f"{64:012d}"
    assert train(resume=out, steps=128, progress=False).metrics[-1]["time/env_steps"] == 128


def test_they_see_the_same_of_a_run_in_processes(tmp_path):
    kinds: list[str] = []

    def follow(event: Event) -> None:
        kinds.append(event.kind)
        event.stop()

    run = trained(tmp_path / "run", follow, runtime="processes", steps=None, seconds=300, evaluate=False)
    assert run.stopped
    assert kinds == ["metrics", "metrics", "checkpoint"]


def test_the_command_line_names_a_function_in_a_file(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "def stop(event):\n    event.stop()\n\n\ndef fail(event):\n    raise RuntimeError('oh')\n"
    )
    words = ["train", "dqn", "CartPole-v1", "--policy", "single", "--quiet", "--eval-every", "64", "--set"]
    words += [f"{name}={value}" for name, value in (SETTINGS | {"hidden": 8}).items()]
    assert main([*words, "--out", str(tmp_path / "a"), "--callback", f"{tmp_path}/mine.py:stop"]) == 0
    assert "stopped by callback 'stop' after" in capsys.readouterr().out
    words += ["--out", str(tmp_path / "b"), "--callback"]
    assert main([*words, f"{tmp_path}/mine.py:stop", "--callback", f"{tmp_path}/mine.py:fail"]) == 2
    said = capsys.readouterr().err
    assert "headrace: callback 'fail' raised RuntimeError: oh at metrics of" in said
    assert f"at {tmp_path}/mine.py:6: raise RuntimeError('oh')" in said
    assert main([*words, f"{tmp_path}/mine.py:none"]) == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [(3, "a callback is a function"), ([Event], "a callback is a function"), ([lambda: 1], "must take one argument")],
)
def test_what_is_no_callback_is_refused(given, said):
    with pytest.raises(UsageError, match=said):
        headrace.train("dqn", "CartPole-v1", callbacks=given)
