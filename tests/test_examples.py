"""The examples do what they say."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import headrace

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def examples_are_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def example(name: str):
    return importlib.import_module(f"examples.{name}")


def test_reinforce_learns_in_less_than_eighty_lines(tmp_path: Path) -> None:
    assert len((ROOT / "examples" / "reinforce.py").read_text().splitlines()) < 80
    algorithm = example("reinforce").Reinforce()
    options = {"policy": "single", "seed": 1, "out": tmp_path / "run", "progress": False}
    run = headrace.train(algorithm, "CartPole-v1", until=200, seconds=900, **options)
    assert run.reached
    assert headrace.Run.load(run.path, best=True, algorithm=type(algorithm)).evaluate().mean_reward >= 150


def test_the_corridor_is_learned_with_its_mask(tmp_path: Path) -> None:
    algorithm = headrace.DQN(warmup=500, hidden=(32,))
    corridor = example("custom_env").Corridor
    options = {"policy": "single", "seed": 1, "out": tmp_path / "run", "progress": False}
    run = headrace.train(algorithm, corridor, until=0.99, seconds=900, **options)
    assert run.reached
    assert run.evaluate().mean_ep_length <= 8


def test_a_network_of_ones_own_is_learned(tmp_path: Path) -> None:
    residual = example("custom_network").residual
    algorithm = headrace.SAC(network=residual, hidden=(64, 64), warmup=256)
    run = headrace.train(
        algorithm, "Pendulum-v1", steps=1_500, policy="single", seed=1, out=tmp_path / "run", progress=False
    )
    assert run.metrics[-1]["time/updates"] > 0
    assert type(run.cells["actor"].module).__name__ == "Residual"
    assert headrace.Run.load(run.path, network=residual).cells["actor"].module.inputs == (run.graph.spec.observation,)


def test_an_algorithm_in_a_file_is_found_by_its_path(tmp_path: Path) -> None:
    from headrace.cli import main

    where = f"{ROOT / 'examples' / 'reinforce.py'}:Reinforce"
    words = ["train", where, "CartPole-v1", "--policy", "single", "--steps", "1024", "--quiet"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert main(["eval", str(tmp_path / "run"), "--episodes", "2", "--algorithm", where]) == 0


def test_optuna_ends_a_trial_that_does_worse_at_its_first_evaluation(tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    objective = example("optuna_pruning").objective
    # At the first evaluation nobody can do better than 500, so a threshold of 501 prunes whatever was learned.
    for lower, state in ((0.0, "COMPLETE"), (501.0, "PRUNED")):
        study = optuna.create_study(direction="maximize", pruner=optuna.pruners.ThresholdPruner(lower=lower))
        study.enqueue_trial({"learning_rate": 3e-4})
        study.optimize(lambda trial, state=state: objective(trial, tmp_path / state, 1_024, 512), n_trials=1)
        (trial,) = study.trials
        assert trial.state.name == state
        assert sorted(trial.intermediate_values) == ([512, 1_024] if state == "COMPLETE" else [512])
