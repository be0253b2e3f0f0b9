"""The examples do what they say."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import headrace
from headrace.core.algorithm import Algorithm
from headrace.graph import Plan
from headrace.runtimes import Options, Processes, inline

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


def test_two_trainers_learn_in_less_than_150_lines(tmp_path: Path) -> None:
    assert len((ROOT / "examples" / "two_trainers.py").read_text().splitlines()) < 150
    algorithm = example("two_trainers").TwoTrainers()
    options = {"policy": "single", "seed": 2, "out": tmp_path / "run", "progress": False}
    run = headrace.train(algorithm, "CartPole-v1", until=200, seconds=900, **options)
    assert run.reached
    measured = run.metrics[-1]
    assert {"train/q_loss", "train/policy_gradient_loss"} < set(measured)
    # Each had its share: 8 replayed for each transition after the warm-up, but for a last program, and each taken once.
    replayed = measured["time/update_frames"] - measured["time/env_steps"]
    assert replayed / (measured["time/env_steps"] - algorithm.config.warmup) == pytest.approx(8, rel=0.01)


def test_two_trainers_are_for_discrete_actions() -> None:
    with pytest.raises(headrace.HeadraceError, match="TwoTrainers needs Discrete actions"):
        headrace.trace(example("two_trainers").TwoTrainers(), "Pendulum-v1")


def small(name: str) -> Algorithm[Any]:
    settings = {"num_envs": 4, "warmup": 64, "batch_size": 32, "hidden": (16,), "replay_capacity": 500}
    return headrace.DQN(**settings) if name == "dqn" else example(name).TwoTrainers(horizon=8, **settings)


def laid_out(name: str, layout: str, **options: Any) -> Plan:
    policy = f"{ROOT / 'examples' / layout}.py:{layout}"
    return headrace.plan(small(name), "CartPole-v1", policy, replicas=2, **options)


LAYOUTS = {
    "apex": {
        "samplers": ["env.observe", "act", "env.step"],
        "replay": ["replay.insert", "replay.sample"],
        "learner": ["learn"],
    },
    "inference_server": {
        "environments": ["env.observe", "env.step"],
        "acting": ["act"],
        "storing": ["replay.insert"],
        "learning": ["replay.sample", "learn"],
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_ones_own_are_what_they_say(layout: str) -> None:
    plan = laid_out("dqn", layout)
    assert {fragment.id: list(fragment.nodes) for fragment in plan.fragments} == LAYOUTS[layout]
    assert [fragment.replicas for fragment in plan.fragments] == [2] + [1] * (len(plan.fragments) - 1)
    carried = {(cut.source, cut.target): (cut.channel, cut.staleness) for cut in plan.cuts}
    assert carried["learn", "act"] == ("latest", 2)
    assert carried["env.step", "replay.insert"] == ("stream", 0)
    if layout == "apex":
        assert carried["replay.sample", "learn"] == ("stream", 0)
    else:
        assert carried["env.observe", "act"] == carried["act", "env.step"] == ("stream", 0)
        assert carried["replay.insert", "replay.sample"] == ("table", 0)
    # What one of the stores needs fresh is never stale.
    assert {cut.staleness for cut in laid_out("two_trainers", layout).cuts} == {0}


def trained(plan: Plan, name: str, runtime: str, steps: int) -> tuple[dict[str, Any], list[np.ndarray], int]:
    """The counters after so many steps, the cells, and how many processes there were."""
    algorithm = small(name)
    if runtime == "inline":
        running = inline(plan, algorithm, "CartPole-v1", 3)
    else:
        options = Options(evaluate=False, steps=steps, hang_seconds=600)
        running = Processes(plan, algorithm, "CartPole-v1", 3, options)
    try:
        while running.progress.env_steps < steps:
            running.advance()
        if runtime == "processes":
            running._finish()
        cells = [np.asarray(leaf) for leaf in jax.tree.leaves(running.cells()) if isinstance(leaf, jax.Array)]
        return running.progress.counters(), cells, len(running.pids())
    finally:
        running.close()


@pytest.mark.parametrize("name", ["dqn", "two_trainers"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_ones_own_give_the_bits_of_inline_in_processes(layout: str, name: str) -> None:
    plan = laid_out(name, layout, staleness=0)
    expected, ours, _ = trained(plan, name, "inline", 640)
    counters, theirs, processes = trained(plan, name, "processes", 640)
    assert processes == sum(fragment.replicas for fragment in plan.fragments) == len(LAYOUTS[layout]) + 1
    assert counters == expected
    assert counters["learned"] > 100
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_ones_own_train_by_their_path(layout: str, tmp_path: Path) -> None:
    from headrace.cli import main

    policy = f"{ROOT / 'examples' / layout}.py:{layout}"
    settings = ["--set", "num_envs=4", "warmup=64", "batch_size=32", "hidden=16", "replay_capacity=2000"]
    words = ["train", "dqn", "CartPole-v1", "--policy", policy, "--replicas", "2", "--steps", "1024", *settings]
    assert main([*words, "--out", str(tmp_path / "run"), "--no-eval", "--quiet"]) == 0
    last = headrace.Run.load(tmp_path / "run").metrics[-1]
    assert last["time/update_frames"] / (last["time/env_steps"] - 64) == pytest.approx(16, rel=0.05)
