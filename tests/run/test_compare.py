"""compare: interquartile means and bootstrap intervals as computed by hand, groups by what runs are, and a picture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from headrace.cli import main
from headrace.errors import UsageError
from headrace.run.compare import groups_of, interquartile_mean, interval, read_runs
from headrace.run.curves import COLOURS


def a_run(path: Path, returns: list[float], seed: int = 0, evaluated: bool = True, **changes) -> Path:
    """A run folder as a training of an evaluation every 100 steps and 10 seconds leaves it, with a row between two."""
    path.mkdir(parents=True)
    config = {"algorithm": "headrace.algorithms.ppo:PPO", "settings": {"gamma": 0.99}, "env": "CartPole-v1"}
    config |= {"policy": "single", "runtime": "inline", "replicas": None, "seed": seed, "headrace": "0"}
    (path / "config.json").write_text(json.dumps(config | changes))
    rows = []
    for i, score in enumerate(returns):
        for half in (0, 50):
            row = {"time/env_steps": 100 * (i + 1) + half, "time/elapsed_s": 10.0 * (i + 1) + half / 10}
            row |= {"rollout/ep_rew_mean": score / 2, "eval/mean_reward": None}
            if evaluated:
                row |= {"eval/mean_reward": score, "eval/version": i, "eval/std_reward": 0.0}
            rows.append(row)
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_interquartile_mean_leaves_out_a_quarter_at_each_end():
    assert interquartile_mean(np.array([8.0, 1, 2, 7, 3, 6, 4, 5])) == (3 + 4 + 5 + 6) / 4
    assert interquartile_mean(np.array([0.0, 1, 2, 3, 100])) == 2  # five: int(1.25) at each end
    assert interquartile_mean(np.array([1.0, 3, 8])) == 4  # three: nothing
    np.testing.assert_array_equal(interquartile_mean(np.array([[1.0, 5], [3, 5]])), [2, 5])


def test_it_is_that_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(1)
    for count in range(1, 14):
        scores = rng.normal(size=(count, 3))
        np.testing.assert_allclose(interquartile_mean(scores), stats.trim_mean(scores, 0.25, axis=0))


def test_the_interval_is_that_of_all_ways_to_draw_the_seeds():
    # Two seeds: drawn again, their mean is 0, 1/2 or 1 with chances 1/4, 1/2, 1/4.
    assert [float(end) for end in interval(np.array([0.0, 1]))] == [0, 1]
    assert [float(end) for end in interval(np.array([0.0, 1]), share=0.4)] == [0.5, 0.5]
    # Three: the mean is 9 once in 27 times, 3.7 %, which is more than the 2.5 % above the interval.
    assert [float(end) for end in interval(np.array([0.0, 0, 9]))] == [0, 9]
    assert [float(end) for end in interval(np.array([0.0, 0, 9]), share=0.9)] == [0, 6]
    assert [float(end) for end in interval(np.full(5, 3.0))] == [3, 3]


def test_curves_hold_a_return_until_the_next_and_go_as_far_as_all_seeds(tmp_path):
    runs = read_runs([a_run(tmp_path / "a", [1, 2, 3]), a_run(tmp_path / "b", [3, 4], seed=1)])
    assert runs[0].steps.tolist() == [100, 200, 300]
    assert runs[0].seconds.tolist() == [10, 20, 30]
    (group,) = groups_of(runs)
    assert group.final[0] == (3 + 4) / 2
    curve = group.curve("steps")
    assert (curve.at[0], curve.at[-1]) == (100, 200)
    assert (curve.middle[0], curve.middle[-2], curve.middle[-1]) == (2, 2, 3)
    assert (curve.low[0], curve.high[0]) == (1, 3)
    assert group.curve("seconds").at[-1] == 20


def test_groups_are_named_by_what_they_differ_in(tmp_path):
    paths = [a_run(tmp_path / "a", [1]), a_run(tmp_path / "b", [1], seed=1)]
    paths += [a_run(tmp_path / "c", [1], settings={"gamma": 0.9}), a_run(tmp_path / "d", [1], env="Acrobot-v1")]
    groups = groups_of(read_runs(paths))
    names = ["PPO on CartPole-v1 (gamma 0.99)", "PPO on CartPole-v1 (gamma 0.9)", "PPO on Acrobot-v1"]
    assert [(group.name, len(group.runs)) for group in groups] == list(zip(names, (2, 1, 1), strict=True))


def test_without_evaluations_the_episodes_trained_in_are_compared(tmp_path):
    runs = read_runs([a_run(tmp_path / "a", [4]), a_run(tmp_path / "b", [8], seed=1, evaluated=False)])
    assert [run.returns.tolist() for run in runs] == [[2, 2], [4, 4]]
    with pytest.raises(UsageError, match="has no returns to compare yet"):
        read_runs([a_run(tmp_path / "c", [])])


def test_runs_without_returns_and_a_seed_that_is_there_twice_are_left_out(tmp_path, capsys):
    first, again = a_run(tmp_path / "a", [1]), a_run(tmp_path / "b", [3])
    short = a_run(tmp_path / "c", [], seed=1)
    assert main(["compare", str(first), str(again), str(short)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[1].split() == ["PPO", "on", "CartPole-v1", "1", "3.0", "-", "100", "10.0"]
    assert said.err.splitlines() == [
        f"left out: run {short} has no returns to compare yet.",
        f"left out: run {first} has the seed of {again}, which counts.",
    ]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_command_prints_a_table_and_draws(tmp_path, capsys, suffix):
    pytest.importorskip("matplotlib")
    for seed in range(3):
        a_run(tmp_path / "many" / f"seed-{seed}", [10, 20 + seed], seed=seed)
    a_run(tmp_path / "other", [5, 15], algorithm="headrace.algorithms.a3c:A3C")
    file = tmp_path / f"curves.{suffix}"
    assert main(["compare", str(tmp_path / "many"), str(tmp_path / "other"), "--out", str(file)]) == 0
    head, first, second, drawn = capsys.readouterr().out.strip().splitlines()
    assert head.split() == ["seeds", "return", "(IQM)", "95", "%", "interval", "steps", "seconds"]
    assert first.split() == ["PPO", "on", "CartPole-v1", "3", "21.0", "20.0", "to", "22.0", "200", "20.0"]
    assert second.split() == ["A3C", "on", "CartPole-v1", "1", "15.0", "-", "200", "20.0"]
    assert drawn == f"drawn: {file}"
    if suffix == "svg":
        text = file.read_text()
        assert all(colour.lower() in text for colour in COLOURS[:2])
        assert text.count("<!-- environment steps -->") == text.count("<!-- wall time (s) -->") == 1
        assert "<!-- PPO on CartPole-v1, 3 seeds -->" in text
    else:
        assert file.read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_refused_first(tmp_path, capsys):
    assert main(["compare", str(tmp_path), "--out", "curves.jpg"]) == 2
    assert ".png or .svg file, got 'curves.jpg'" in capsys.readouterr().err
    assert main(["compare", str(tmp_path), "--out", str(tmp_path / "none" / "a.png")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["compare", str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err
