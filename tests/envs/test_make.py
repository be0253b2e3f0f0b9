from __future__ import annotations

import importlib
import sys
from functools import partial
from typing import Any

import gymnasium as gym
import pytest
from gymnasium import spaces

from headrace.envs import HostEnv, JaxEnv, env_id, make
from headrace.errors import EnvError
from headrace.extras import installing

from . import scripted
from .scripted import Counter


def refusal(env: Any, num_envs: int = 1) -> str:
    with pytest.raises(EnvError) as caught:
        make(env, num_envs)
    text = str(caught.value)
    assert "\n" not in text
    assert text[-1] in ".?"
    return text


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("HalfCheeta-v5", "HalfCheetah-v5"),
        ("Pendulum-v9", "Pendulum-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("envpool:Pendulm-v1", "Pendulum-v1"),
        ("gymnax:Cartpole-v2", "CartPole-v1"),
        ("brax:HalfCheetah", "halfcheetah"),
        ("pettingzoo:mpe2.simple_spred_v3", "simple_spread_v3"),
    ],
)
def test_a_misspelt_id_gets_the_nearest(asked: str, meant: str) -> None:
    pytest.importorskip(asked.partition(":")[0] if ":" in asked else "gymnasium")
    text = refusal(asked)
    assert text.startswith(f"'{asked}' is not")
    assert text.endswith(f"; did you mean '{meant}'?")


def test_an_id_like_nothing_known_gets_no_hint() -> None:
    assert refusal("Qqqqqq-v0") == "'Qqqqqq-v0' is not a registered Gymnasium environment."
    assert "look like 'CartPole-v1'" in refusal("what is this?")


@pytest.mark.parametrize(
    ("asked", "package", "extra"),
    [
        ("envpool:X", "envpool", "envpool"),
        ("gymnax:X", "gymnax", "jaxenvs"),
        ("brax:ant", "brax.envs", "jaxenvs"),
        ("pettingzoo:mpe2.simple_spread_v3", "pettingzoo", "marl"),
    ],
)
def test_a_missing_package_names_its_extra(
    asked: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    assert installing(extra) in refusal(asked)


def test_gymnasium_environments_without_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def needs(text: str) -> Any:
        raise gym.error.DependencyNotInstalled(text)

    assert installing("mujoco") in refusal(lambda: needs('MuJoCo is not installed, run `pip install "x"`'))
    assert "needs a package that is not installed: Box2D is not" in refusal(lambda: needs("Box2D is not installed."))


def test_modules_are_imported_first() -> None:
    assert "'no_such_module', which cannot be imported" in refusal("no_such_module:Env-v0")
    env = make(f"{scripted.__name__}:counter", 2)
    assert isinstance(env, HostEnv)
    assert env.spec.num_envs == 2
    assert env.spec.id == env_id(scripted.counter)
    assert "is not a registered" in refusal(f"{scripted.__name__}:Nothing-v0")


def test_an_id_without_version_is_the_newest() -> None:
    assert make("Pendulum", 1).spec.action == make("Pendulum-v1", 1).spec.action


def test_unsupported_spaces_are_named() -> None:
    class Text(Counter):
        def __init__(self) -> None:
            Counter.__init__(self)
            self.observation_space = spaces.Text(3)

    assert "observations of Text" in refusal(Text)
    text = refusal(lambda: Counter(action_space=spaces.Dict({"a": spaces.Discrete(2)})))
    assert "actions of Dict" in text
    assert "Discrete, MultiDiscrete and real-valued Box" in text


def test_functions_that_make_something_else_are_refused() -> None:
    assert "made a int" in refusal(lambda: 5)
    assert "must take no arguments" in refusal(lambda length: Counter(length))
    assert "got 5" in refusal(5)
    assert "num_envs=0" in refusal("CartPole-v1", 0)
    wrong = partial(make, "gymnax:CartPole-v1", 3)
    assert "made 3 environments where 2" in refusal(lambda: wrong(), 2)


def test_functions_of_a_number_make_jax_environments() -> None:
    pytest.importorskip("gymnax")
    for function in (lambda num_envs: make("gymnax:CartPole-v1", num_envs), lambda n: make("gymnax:CartPole-v1", n)):
        env = make(function, 5)
        assert isinstance(env, JaxEnv)
        assert env.spec.num_envs == 5
        assert env.spec.pure


def test_names() -> None:
    assert env_id("ALE/Pong-v5") == "ALE/Pong-v5"
    assert env_id(Counter) == f"{Counter.__module__}:Counter"
    assert env_id(partial(Counter, 3)) == "<Counter>"  # another environment than the one of that name


def test_a_way_of_drawing_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    real = importlib.import_module

    def without_osmesa(name: str, *rest: Any) -> Any:
        if name == "mujoco":  # as it fails where the library is missing
            raise AttributeError("'NoneType' object has no attribute 'glGetError'")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without_osmesa)
    with pytest.raises(EnvError, match=r"MUJOCO_GL=osmesa says .*; install what that needs .*libosmesa6"):
        make("HalfCheetah-v5", 1)
