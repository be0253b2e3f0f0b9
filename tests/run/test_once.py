"""An environment is found and described once in a run; only who steps it makes more of them."""

from __future__ import annotations

import os
from pathlib import Path

import gymnasium as gym
import pytest

from headrace import DQN, train

MADE = "HEADRACE_TEST_MADE"


def made_and_noted() -> gym.Env:
    """CartPole; each one that is made leaves a line with the process that did."""
    with open(os.environ[MADE], "a") as file:
        file.write(f"{os.getpid()}\n")
    return gym.make("CartPole-v1")


@pytest.mark.parametrize("runtime", ["inline", "processes"])
def test_an_environment_is_described_once(runtime: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MADE, str(tmp_path / "made"))
    small = DQN(num_envs=4, warmup=64, batch_size=32, replay_capacity=500, hidden=(8,))
    train(
        small,
        made_and_noted,
        policy="desktop" if runtime == "processes" else "single",
        replicas=1,
        steps=200,
        evaluate=False,
        out=tmp_path / "run",
        progress=False,
    )
    pids = [int(line) for line in (tmp_path / "made").read_text().split()]
    here = pids.count(os.getpid())
    assert here == (1 if runtime == "processes" else 1 + 4)
    assert len(pids) - here == (4 if runtime == "processes" else 0)
