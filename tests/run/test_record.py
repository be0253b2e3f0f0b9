"""record: lines with the same keys, without NaN, and none from a future that was undone."""

from __future__ import annotations

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from headrace.compile.reports import Measured
from headrace.envs import Episode
from headrace.run.record import Recorder, read_metrics
from headrace.runtimes.progress import Progress
from headrace.services.evaluate import Score

KEYS = {
    "time/elapsed_s",
    "time/env_steps",
    "time/total_timesteps",
    "time/updates",
    "time/update_frames",
    "time/fps",
    "rollout/ep_rew_mean",
    "rollout/ep_len_mean",
    "eval/mean_reward",
    "eval/std_reward",
    "eval/mean_ep_length",
    "eval/version",
}


@pytest.fixture
def recorder(tmp_path):
    made = Recorder(tmp_path)
    yield made
    made.close()


def lines(directory):
    def refuse(text):
        raise AssertionError(f"{text} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_a_line_has_its_keys_before_anything_happened(recorder, tmp_path):
    line = recorder.write(Progress(), 0.0, 0)
    assert set(line) == KEYS
    assert line["rollout/ep_rew_mean"] is None
    assert line["eval/mean_reward"] is None
    assert lines(tmp_path) == read_metrics(tmp_path) == [line]


def test_numbers_are_what_happened(recorder, tmp_path):
    recorder.episodes([Episode(1.0, 10), Episode(4.0, 30)])
    recorder.evaluated(Score((1.0, 3.0), (10, 20)))
    progress = Progress(env_steps=500, passes=5, learned=3, update_frames=768, metrics={"loss": jnp.asarray(1.5)})
    line = recorder.write(progress, 2.0, 7)
    assert line == {
        "time/elapsed_s": 2.0,
        "time/env_steps": 500,
        "time/total_timesteps": 500,
        "time/updates": 7,
        "time/update_frames": 768,
        "time/fps": 250.0,
        "rollout/ep_rew_mean": 2.5,
        "rollout/ep_len_mean": 20.0,
        "eval/mean_reward": 2.0,
        "eval/std_reward": 1.0,
        "eval/mean_ep_length": 15.0,
        "eval/version": 0,
        "train/loss": 1.5,
    }
    assert lines(tmp_path) == [line]


def test_there_is_never_a_nan(recorder, tmp_path):
    nan, inf = math.nan, math.inf
    recorder.episodes([Episode(inf, 3)])
    recorder.evaluated(Score((nan, 1.0), (1, 1)))
    ran = Measured(jnp.asarray([nan, 3.0, nan, 5.0]), np.array([False, True, False, True]))
    recorder.write(Progress(metrics={"a": ran, "b": nan, "c": inf, "d": ran._replace(ran=~ran.ran)}), 1.0, 0)
    (line,) = lines(tmp_path)
    assert line["train/a"] == 4.0  # over the passes in which the stage ran
    for measured_but_not_finite in ("train/b", "train/c", "train/d", "rollout/ep_rew_mean", "eval/mean_reward"):
        assert line[measured_but_not_finite] is None


def test_the_mean_is_over_the_last_hundred_episodes(recorder):
    recorder.episodes([Episode(float(i), i) for i in range(250)])
    line = recorder.write(Progress(), 1.0, 0)
    assert line["rollout/ep_rew_mean"] == sum(range(150, 250)) / 100


def test_better_is_better_than_all_before(recorder):
    assert recorder.evaluated(Score((1.0,), (1,)))
    assert not recorder.evaluated(Score((0.5,), (1,)))
    assert not recorder.evaluated(Score((1.0,), (1,)))
    assert recorder.evaluated(Score((1.5,), (1,)))


def test_going_on_drops_what_came_after_the_checkpoint_and_counts_on(tmp_path):
    first = Recorder(tmp_path)
    for steps in (100, 200, 300):
        first.write(Progress(env_steps=steps), steps / 100, 0)
    first.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"time/env_steps": 40')  # the line a crash cut off
    again = Recorder(tmp_path, elapsed=2.0, env_steps=200)
    line = again.write(Progress(env_steps=600), 4.0, 0)
    again.close()
    assert [entry["time/env_steps"] for entry in lines(tmp_path)] == [100, 200, 600]
    assert line["time/fps"] == 200.0


def test_the_same_numbers_are_tensorboard_events(recorder, tmp_path):
    recorder.write(Progress(env_steps=5), 1.0, 2)
    recorder.close()
    (events,) = (tmp_path / "tensorboard").glob("events.out.tfevents*")
    data = events.read_bytes()
    assert b"time/updates" in data
    assert b"eval/mean_reward" not in data
