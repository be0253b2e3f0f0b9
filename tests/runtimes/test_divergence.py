"""Divergence: what is not finite ends the run by name in every runtime, or is told once; the last good state stays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from diverging import Diverging
from safetensors.numpy import load_file

import headrace
from headrace.cli import main
from headrace.errors import DivergenceError, UsageError

CARTPOLE, PURE = "CartPole-v1", "gymnax:CartPole-v1"


def train(out, env=CARTPOLE, policy="single", runtime="inline", way="loss", progress=False, **options):
    made = Diverging(num_envs=2, way=way)
    return headrace.train(
        made, env, policy=policy, runtime=runtime, out=out, progress=progress, evaluate=False, steps=400, **options
    )


def checkpoints(run):
    """What the checkpoints hold: the cells, and the learning passes before each."""
    for folder in sorted((run / "checkpoints").glob("[0-9]*")):
        values = json.loads((folder / "manifest.json").read_text())["values"]
        found = load_file(folder / "state.safetensors")
        yield {name: value for name, value in found.items() if name.startswith("['cells']")}, values["learned"]


def lines(run):
    def refuse(text):
        raise AssertionError(f"{text} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("env", "policy", "runtime", "update"),
    [
        (CARTPOLE, "single", "inline", 20),
        (CARTPOLE, "multiple_learners", "inline", 20),
        (CARTPOLE, "central", "inline", 10),  # of each of two loops: the count is that of both
        (PURE, "single", "inline", 20),
        (PURE, "device_only", "inline", 20),
        (CARTPOLE, "desktop", "processes", 20),
    ],
)
def test_a_loss_that_is_not_finite_ends_the_run_at_its_update_and_the_last_good_checkpoint_stays(
    env, policy, runtime, update, tmp_path
):
    with pytest.raises(DivergenceError) as raised:
        train(tmp_path / "run", env, policy, runtime, checkpoint_every=1e-3)
    said = str(raised.value)
    assert said.startswith(f"stage 'learn_critic' diverged at update {update}: its loss is not finite; the last good ")
    assert lines(tmp_path / "run")[-1]["time/env_steps"] >= update  # a last row, of where it ended
    kept = list(checkpoints(tmp_path / "run"))
    assert kept
    for cells, learned in kept:
        assert learned < update
        assert all(np.isfinite(value).all() for value in cells.values())


@pytest.mark.parametrize(
    ("policy", "way", "updates", "what"),
    [
        ("single", "cell", "24", r"what it writes \(critic, count\)"),
        ("single", "gradient", "21", "its loss"),
        ("central", "gradient", "10", r"what it writes \(critic, count\)"),
    ],
)
def test_so_do_a_gradient_and_a_cell(policy, way, updates, what, tmp_path):
    # Cells are looked at after each program of 8 updates, and a gradient is seen in the loss or cell that it leads to.
    with pytest.raises(DivergenceError, match=rf"stage 'learn_critic' diverged at update {updates}: {what} is not"):
        train(tmp_path / "run", policy=policy, way=way)
    assert not list((tmp_path / "run" / "checkpoints").glob("*"))


@pytest.mark.parametrize(("policy", "runtime"), [("single", "inline"), ("desktop", "processes")])
def test_warned_of_the_run_goes_on_and_its_metrics_are_those_of_each_stage_and_json(policy, runtime, tmp_path, capsys):
    done = train(tmp_path / "run", CARTPOLE, policy, runtime, way="cell", on_divergence="warn", progress=None)
    assert np.isinf(done.cells["count"].module)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("stage 'learn_critic' diverged at update") == 1
    assert "training goes on (--on-divergence warn)" in said
    rows = lines(tmp_path / "run")
    assert rows[-1]["time/env_steps"] == 400
    assert rows[-1]["time/updates"] > 100
    updates = rows[-1]["time/updates"] - 3.5  # the mean of the last program's eight
    measured = {"train/learn_critic/loss": 1.0, "train/learn_actor/loss": 3.0, "train/steps": updates}
    assert {name: rows[-1][name] for name in rows[-1] if name.startswith("train/")} == measured
    for row in rows:  # never 0, and absent until it was measured
        assert row.get("train/learn_critic/loss") in (None, 1.0)
        assert row.get("train/learn_actor/loss") in (None, 3.0)
        assert row["time/update_frames"] or not any(name.startswith("train/") for name in row)


def test_on_the_command_line_it_is_a_sentence_and_exit_code_1(tmp_path, capsys):
    words = ["train", f"{Path(__file__).parent / 'diverging.py'}:Diverging", CARTPOLE, "--policy", "single"]
    words += ["--steps", "400", "--no-eval", "--quiet", "--out", str(tmp_path / "run")]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert said.startswith("headrace: stage 'learn_critic' diverged at update 20: its loss is not finite; there was no")
    assert len(said.splitlines()) == 1
    with pytest.raises(UsageError, match="--on-divergence is stop or warn, got 'shrug'"):
        train(tmp_path / "other", on_divergence="shrug")
