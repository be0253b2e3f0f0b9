"""recipe: an environment with its arguments, from what a user gives to what every process makes."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import ClipReward, RescaleAction, TransformReward

import headrace
from headrace import Run, train
from headrace.cli import main
from headrace.envs import HostEnv, Recipe, make, recipe
from headrace.errors import CheckpointError, EnvError, UsageError
from headrace.types import empty_like, struct

from .scripted import Counter

TINY = {"num_envs": 2, "hidden": (8,), "batch_size": 8, "warmup": 8, "replay_capacity": 100}
OPTIONS = {"policy": "single", "progress": False, "eval_episodes": 2}


def sent(env: Any) -> Recipe:
    """What another process gets."""
    return Recipe.from_json(json.loads(json.dumps(env.to_json())))


def lengths(env: Any, num_envs: int = 2) -> list[int]:
    """Of the first episodes."""
    made = make(env, num_envs)
    assert isinstance(made, HostEnv)
    made.reset(0)
    for _ in range(12):
        made.step(empty_like(struct(made.spec.action, num_envs)))
    made.close()
    return [episode.length for episode in made.drain()]


@pytest.mark.parametrize(
    ("env", "kwargs"),
    [
        ("Pendulum-v1", {"max_episode_steps": 6}),
        (Counter, {"length": 6}),
        ("tests.envs.scripted:Counter", {"length": 6}),
        ("envpool:Pendulum-v1", {"max_episode_steps": 6}),
        ("pettingzoo:mpe2.simple_spread_v3", {"max_cycles": 6}),
    ],
)
def test_every_kind_takes_its_own_arguments_and_so_does_every_process(env: Any, kwargs: dict[str, Any]) -> None:
    if isinstance(env, str) and env.partition(":")[0] in ("envpool", "pettingzoo"):
        pytest.importorskip(env.partition(":")[0])
    assert lengths(sent(recipe(env, kwargs))) == [6, 6, 6, 6]


@pytest.mark.parametrize(
    ("env", "kwargs", "said"),
    [
        ("CartPole-v1", {"suton_barto_reward": 1}, "no argument 'suton_barto_reward'; did you mean 'sutton_barto_rew"),
        (Counter, {"lenght": 1}, r"no argument 'lenght'; did you mean 'length'\? \(it takes length, action_space"),
        ("envpool:Pendulum-v1", {"lenght": 1}, "takes no argument 'lenght'"),
        ("pettingzoo:mpe2.simple_spread_v3", {"M": 1}, "takes no argument 'M'"),
    ],
)
def test_an_argument_that_is_not_taken(env: Any, kwargs: dict[str, Any], said: str) -> None:
    if isinstance(env, str) and ":" in env:
        pytest.importorskip(env.partition(":")[0])
    with pytest.raises(EnvError, match=said):
        make(recipe(env, kwargs), 1)


def test_what_cannot_be_written_down_is_refused() -> None:
    with pytest.raises(UsageError, match="but 'action_space' holds a Discrete; pass a function"):
        recipe(Counter, {"action_space": gym.spaces.Discrete(2)})
    kwargs = {"a": (1, [2.5, ("x", None)]), "b": {"c": float("inf")}, "d": True}
    assert sent(recipe("X-v0", kwargs)).kwargs == kwargs
    assert sent(recipe("X-v0", {"a": np.float32(0.5)})).kwargs == {"a": 0.5}


def test_an_object_is_made_again_with_its_arguments_and_wrappers() -> None:
    with RescaleAction(gym.make("Pendulum-v1", g=5.0, max_episode_steps=6, render_mode="rgb_array"), -3, 3) as env:
        made = make(sent(recipe(env)), 2)
    assert isinstance(made, HostEnv)
    assert [one.unwrapped.g for one in made._envs] == [5.0, 5.0]  # type: ignore[attr-defined]
    assert all(one.action_space.high == 3 and one.unwrapped is not env for one in made._envs)  # type: ignore[attr-defined]
    assert lengths(recipe(env)) == [6, 6, 6, 6]


def test_an_object_that_cannot_be_made_again_is_refused() -> None:
    class Plain(gym.Wrapper):  # type: ignore[type-arg]
        pass

    env = gym.make("CartPole-v1")
    for given, said in (
        (Counter(), "a Counter was given that has no spec"),
        (Plain(env), "given inside Plain, a wrapper that does not keep its arguments"),
        (TransformReward(env, lambda reward: reward), "was made with a function, which cannot be written down"),
    ):
        with pytest.raises(EnvError, match=said + ".*; pass a class or function that makes it"):
            recipe(given)
    with pytest.raises(UsageError, match="is made already"):
        recipe(env, {"sutton_barto_reward": True})


def test_a_run_keeps_its_arguments(tmp_path: Any) -> None:
    run = train(headrace.DQN(**TINY), Counter, env_kwargs={"length": 2}, steps=16, out=tmp_path / "run", **OPTIONS)
    assert json.loads((run.path / "config.json").read_text())["env_kwargs"] == {"length": 2}
    assert run.metrics[-1]["rollout/ep_len_mean"] == run.metrics[-1]["eval/mean_ep_length"] == 2
    assert Run.load(run.path, Counter).evaluate(2).lengths == (2, 2)
    assert Run.load(run.path, Counter).env.kwargs == {"length": 2}
    more = train(resume=run.path, env=Counter, steps=32, progress=False, evaluate=False)
    assert more.metrics[-1]["rollout/ep_len_mean"] == 2
    with pytest.raises(
        CheckpointError, match=r"trained with env_kwargs {'length': 2}, not {'length': 3}; name that one"
    ):
        train(resume=run.path, env=Counter, env_kwargs={"length": 3}, steps=64)
    with pytest.raises(UsageError, match="--env-kwargs and --action-scale need the environment"):
        train(resume=run.path, env_kwargs={"length": 3}, steps=64)
    assert headrace.trace("ppo", "CartPole-v1", env_kwargs={"sutton_barto_reward": True}).spec.id == "CartPole-v1"


def test_a_run_of_an_object_is_loaded_where_gymnasium_knows_its_parts(tmp_path: Any) -> None:
    env = ClipReward(gym.make("CartPole-v1", max_episode_steps=3), 0.0, 0.5)
    run = train(headrace.DQN(**TINY), env, steps=16, out=tmp_path / "run", evaluate=False, **OPTIONS)
    assert run.metrics[-1]["rollout/ep_len_mean"] == 3
    assert Run.load(run.path).evaluate(2).returns == (1.5, 1.5)
    config = json.loads((run.path / "config.json").read_text())
    config["env_spec"]["additional_wrappers"][0]["entry_point"] = "stranger:Wrapper"
    (run.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(EnvError, match="made by stranger:Wrapper, which is not Gymnasium's own; pass the environment"):
        Run.load(run.path)
    assert isinstance(Run.load(run.path, env).env, Recipe)


def test_arguments_are_typed_as_python_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "ppo", "CartPole-v1", "--env-kwargs", "sutton_barto_reward=true"]) == 0
    capsys.readouterr()
    assert main(["graph", "ppo", "CartPole-v1", "--env-kwargs", "sutton=1"]) == 2
    assert "'CartPole-v1' takes no argument 'sutton'" in capsys.readouterr().err
    assert main(["graph", "ppo", "CartPole-v1", "--env-kwargs", "sutton"]) == 2
    assert "--env-kwargs takes KEY=VALUE, got 'sutton'" in capsys.readouterr().err


def test_arguments_have_names():
    with pytest.raises(UsageError, match=r"env_kwargs takes a dict of arguments by name, got \[1\]"):
        headrace.trace(headrace.SAC(), "Pendulum-v1", env_kwargs=[1])
