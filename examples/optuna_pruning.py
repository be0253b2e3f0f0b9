"""A search for settings with Optuna in which poor trials end early: each evaluation is reported by a callback.

pip install 'headrace[optuna]'
python examples/optuna_pruning.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import optuna

import headrace


def objective(trial: optuna.Trial, runs: Path, steps: int = 20_000, eval_every: int = 2_000) -> float:
    """The return after `steps`, unless the trial is pruned before."""
    algorithm = headrace.PPO(
        learning_rate=trial.suggest_float("learning_rate", 1e-5, 1e-2, log=True),
        num_envs=8,
        horizon=32,
        minibatch_size=64,
        hidden=(32,),
    )

    def prune(event: headrace.Event) -> None:
        if event.kind == "evaluation":
            trial.report(event.score.mean_reward, event.row["time/env_steps"])
            if trial.should_prune():
                event.stop()

    run = headrace.train(
        algorithm,
        "CartPole-v1",
        policy="single",
        steps=steps,
        eval_every=eval_every,
        callbacks=[prune],
        out=runs / f"trial-{trial.number}",
        progress=False,
    )
    if run.stopped:
        raise optuna.TrialPruned
    return run.metrics[-1]["eval/mean_reward"]


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=3))
    runs = Path(tempfile.mkdtemp(prefix="headrace-optuna-"))
    study.optimize(lambda trial: objective(trial, runs), n_trials=10)
    print(f"best return {study.best_value:.1f} with {study.best_params}; runs: {runs}")
