"""schedule: Optax's numbers, text and JSON and back, refusals, and a resumed run that goes on where it was."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import headrace
from headrace.algorithms import ALGORITHMS, DQN, PPO
from headrace.cli import main
from headrace.core import Learned, value_at
from headrace.errors import ConfigError
from headrace.settings.schedule import Schedule
from headrace.settings.values import from_json, to_json

CASES = [
    ("linear:3e-4:0:10", optax.linear_schedule(3e-4, 0.0, 10)),
    ("cosine:0.1:0.02:10", optax.cosine_decay_schedule(0.1, 10, 0.2)),
    ("exponential:1:0.05:10", optax.exponential_decay(1.0, 10, 0.05, end_value=0.05)),
    ("linear:0.1:0.5:3", optax.linear_schedule(0.1, 0.5, 3)),
]


@pytest.mark.parametrize(("text", "oracle"), CASES)
def test_the_value_after_n_updates_is_optax_s(text, oracle):
    schedule = Schedule.parse(text)
    counts = jnp.arange(15)
    np.testing.assert_array_equal(schedule(counts), oracle(counts))
    assert schedule(0) == pytest.approx(schedule.start)
    assert schedule(12) == pytest.approx(schedule.end)
    assert value_at(schedule, 5) == oracle(5)
    assert value_at(0.3, 5) == 0.3


def test_a_learned_cell_steps_by_the_schedule_and_counts_in_its_state():
    cell = Learned(jnp.zeros(()), optax.sgd(DQN(learning_rate="linear:1:0:4").config.learning_rate))
    places = []
    for _ in range(6):
        cell, _ = cell.minimise(lambda x: -x)
        places.append(float(cell.module))
    np.testing.assert_allclose(np.diff([0.0, *places]), [1, 0.75, 0.5, 0.25, 0, 0], atol=1e-7)


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_takes_a_schedule_and_its_json_comes_back_equal(name):
    config = ALGORITHMS[name](learning_rate="cosine:1e-3:1e-5:1e5").config
    assert config.learning_rate == Schedule("cosine", 1e-3, 1e-5, 100_000)
    plain = json.loads(json.dumps(to_json(config)))
    assert plain["learning_rate"] == "cosine:0.001:1e-05:100000"
    assert from_json(type(config), plain) == config


def test_a_constant_schedule_is_its_number():
    assert PPO(clip_range="constant:0.3").config.clip_range == 0.3


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"learning_rate": "linaer:1:0:10"}, r"learning_rate: there is no schedule 'linaer'; did you mean 'linear'\?"),
        ({"learning_rate": "linear:1e-3:0"}, r"learning_rate: 'linear:1e-3:0' is not a schedule; write KIND:START:END"),
        ({"learning_rate": "linear:a:b:c"}, r"'linear:a:b:c' is not a schedule"),
        ({"learning_rate": "linear:1e-3:0:0"}, r"linear:0\.001:0\.0:0 must take a whole number of updates"),
        ({"learning_rate": "linear:1e-3:0:2.5"}, r"must take a whole number of updates"),
        ({"learning_rate": "linear:1e-3:nan:5"}, r"must start and end at finite numbers"),
        ({"learning_rate": "linear:0:1e-3:5"}, r"learning_rate=linear:0\.0:0\.001:5 must be above 0\."),
        ({"learning_rate": "linear:1e-3:-1:5"}, r"learning_rate=linear:0\.001:-1\.0:5 must be above 0\."),
        ({"learning_rate": "exponential:1e-3:0:5"}, r"must start and end above 0; linear may reach 0"),
        ({"learning_rate": "cosine:0:1:5"}, r"must not start at 0"),
        (
            {"learning_rate": "fast"},
            r"learning_rate takes a number or a schedule such as linear:3e-4:0:1e5, got 'fast'",
        ),
        ({"clip_range": "linear:0.2:-0.1:5"}, r"clip_range=linear:0\.2:-0\.1:5 must be at least 0\."),
    ],
)
def test_nonsense_is_refused_with_a_sentence(settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        PPO(**settings)


def test_the_command_line_takes_one_and_a_resumed_run_goes_on_where_it_was(tmp_path, capsys):
    def train(*more):
        words = ["train", *more, "--quiet", "--no-eval", "--no-tune"]
        assert main(words) == 0, capsys.readouterr().err

    small = ["hidden=4", "batch_size=8", "warmup=16", "num_envs=4", "samples_per_insert=2", "replay_capacity=500"]
    scheduled = ["learning_rate=linear:1e-2:0:60", "exploration=linear:1:0:80"]
    run = str(tmp_path / "run")
    start = ["dqn", "CartPole-v1", "--policy", "single", "--set", *small, *scheduled]
    train(*start, "--steps", "200", "--out", run)
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert saved["learning_rate"] == "linear:0.01:0.0:60"
    before = headrace.Run.load(run).cells
    train("--resume", run, "--steps", "400")
    after = headrace.Run.load(run).cells
    for cells in (before, after):
        updates = int(cells["critic"].updates)
        counts = [int(leaf) for leaf in jax.tree.leaves(cells["critic"].state) if leaf.shape == ()]
        assert counts == [updates, updates]  # Adam's own, and the schedule's
        assert float(cells["exploration"].module) == pytest.approx(max(0.0, 1 - updates / 80), abs=1e-6)
    assert 0 < int(before["critic"].updates) < 60 < int(after["critic"].updates)
    assert main(["train", *start[:4], "--set", *small, "learning_rate=linear:1:2", "--steps", "10"]) == 2
    assert "learning_rate: 'linear:1:2' is not a schedule; write KIND:START:END:UPDATES" in capsys.readouterr().err
