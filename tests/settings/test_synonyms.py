"""Hints know the words of other libraries, and every word of ours that they name is there."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import pytest

import headrace
from headrace.algorithms import ALGORITHMS
from headrace.errors import ConfigError, UsageError
from headrace.runtimes import Options
from headrace.settings.synonyms import OPTIONS, SETTINGS


def test_ours_are_real_and_theirs_are_not() -> None:
    known = {field.name for kind in ALGORITHMS.values() for field in fields(kind.config_type)}
    options = {*inspect.signature(headrace.train).parameters} | {field.name for field in fields(Options)}
    assert set(SETTINGS) <= known
    assert set(OPTIONS) <= options
    assert not {name for theirs in OPTIONS.values() for name in theirs} & options


@pytest.mark.parametrize(
    ("algorithm", "theirs", "ours"),
    [
        ("sac", "lr", "learning_rate"),
        ("ppo", "n_envs", "num_envs"),
        ("sac", "buffer_size", "replay_capacity"),
        ("sac", "ent_coef", "initial_alpha"),
        ("ppo", "entropy_coeff", "ent_coef"),
        ("ppo", "net_arch", "hidden"),
        ("ppo", "n_steps", "horizon"),
        ("dqn", "n_steps", "n_step"),
        ("ppo", "batch_size", "minibatch_size"),
        ("td3", "learning_starts", "warmup"),
    ],
)
def test_a_setting_under_another_name(algorithm: str, theirs: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=f"no setting '{theirs}'; it is called '{ours}' here: "):
        ALGORITHMS[algorithm](**{theirs: 1})


def test_an_option_under_another_name(tmp_path: Path) -> None:
    for theirs, said in (
        ("total_timesteps", "train has no option 'total_timesteps'; it is called 'steps' here"),
        ("eval_freq", "it is called 'eval_every' here"),
        (
            "lr",
            "it is a setting of the algorithm: --set learning_rate=..., or learning_rate= where its class is called",
        ),
        ("gamma", "it is a setting of the algorithm: --set gamma=..."),
        ("evaluat", "did you mean 'evaluate'?"),
    ):
        with pytest.raises(UsageError, match=said.replace("?", r"\?").replace(".", r"\.")):
            headrace.train("sac", "Pendulum-v1", out=tmp_path / "run", **{theirs: 1})
    assert not (tmp_path / "run").exists()
