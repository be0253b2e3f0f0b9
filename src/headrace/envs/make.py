"""Makes environments from ids, functions and objects."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, find_highest_version, get_env_id, load_env_creator, parse_env_id

from headrace import types
from headrace.envs.atari import ATARI, make_atari, not_atari, register_atari
from headrace.envs.base import HostEnv, JaxEnv, cannot_make
from headrace.envs.brax_env import make_brax
from headrace.envs.envpool_env import EnvPoolEnv
from headrace.envs.gymnasium_env import GymnasiumEnv
from headrace.envs.gymnax_env import make_gymnax
from headrace.envs.ids import suggest
from headrace.envs.jax_env import HostedJaxEnv
from headrace.envs.pettingzoo_env import PettingZooEnv, is_parallel, make_pettingzoo
from headrace.envs.recipe import Recipe, env_id, recipe
from headrace.envs.stepped import quiet
from headrace.errors import ConfigError, EnvError, sentence
from headrace.extras import installing
from headrace.settings.objects import load_object, loading

EnvLike = str | Callable[..., Any] | gym.Env[Any, Any] | Recipe
"""A Gymnasium id, `module:id`, `envpool:ID`, `gymnax:ID`, `brax:ID`, `pettingzoo:MODULE`, a function making one, an
object of Gymnasium's with a spec, or any of them with arguments."""


def make(env: EnvLike, num_envs: int, *, render: bool = False) -> HostEnv | JaxEnv:
    """`num_envs` environments side by side.

    make("HalfCheetah-v5", 8)
    make("my_package:MyEnv-v0", 8)       # imports my_package first, as gymnasium.make does
    make("envpool:Pong-v5", 64)
    make("gymnax:CartPole-v1", 1024)     # pure JAX, as is brax:ant
    make("pettingzoo:mpe2.simple_spread_v3", 8)    # a team of agents
    make(lambda: MyEnv(size=5), 8)       # a gymnasium.Env, or a pettingzoo.ParallelEnv
    make(MyJaxEnv, 1024)                 # a function with an argument is given num_envs
    make(recipe("HalfCheetah-v5", {"forward_reward_weight": 2.0}), 8)    # with arguments
    """
    if num_envs < 1:
        raise EnvError(f"num_envs={num_envs} must be at least 1.")
    if render:
        _prepare_to_draw()
    given = recipe(env)
    asked = given if isinstance(given, Recipe) else Recipe(given)
    named, kwargs = asked.env, asked.kwargs
    options: dict[str, Any] = {"render": render, "action_scale": asked.action_scale}
    if asked.spec:
        return _make_gymnasium(asked.gym_spec(), env_id(asked), num_envs, {}, options)
    if not isinstance(named, str):
        return _call(named, env_id(named), num_envs, kwargs, options)
    prefix, colon, rest = named.partition(":")
    if kwargs.get(ATARI) and colon and prefix not in ("envpool", "ale_py"):
        raise not_atari(named)
    match prefix if colon else "":
        case "":
            return _make_gymnasium(_registered(named, named), named, num_envs, kwargs, options)
        case "envpool":
            return EnvPoolEnv(named, num_envs, kwargs, **options)
        case "gymnax":
            return make_gymnax(named, num_envs, kwargs, action_scale=asked.action_scale)
        case "brax":
            _refuse_scale(named, asked.action_scale)
            return make_brax(named, num_envs, **kwargs)
        case "pettingzoo":
            return make_pettingzoo(named, num_envs, kwargs, **options)
    if prefix.endswith(".py"):
        return _call(load_object(named), named, num_envs, kwargs, options)
    import_for(prefix, named)
    if rest in gym.registry:
        return _make_gymnasium(_registered(rest, named), named, num_envs, kwargs, options)
    try:
        function = load_object(named)
    except ConfigError:  # the module has no such name, so it is an id
        return _make_gymnasium(_registered(rest, named), named, num_envs, kwargs, options)
    return _call(function, named, num_envs, kwargs, options)


def make_host(env: EnvLike, num_envs: int, *, render: bool = False) -> HostEnv:
    """`num_envs` environments that are stepped from the host, whatever they are written in."""
    made = make(env, num_envs, render=render)
    return HostedJaxEnv(made) if isinstance(made, JaxEnv) else made


def describe_env(env: EnvLike, num_envs: int) -> types.EnvSpec:
    """The spec of an environment, found by making one and closing it again."""
    probe = make(env, 1)
    if isinstance(probe, HostEnv):
        probe.close()
    return probe.spec.with_envs(num_envs)


def _prepare_to_draw() -> None:
    """Tell rendering libraries, before they load, that no window or sound is wanted; variables already set stay."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    if sys.platform == "linux" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("MUJOCO_GL", "egl")


def _make_gymnasium(
    spec: EnvSpec, env: str, num_envs: int, kwargs: dict[str, Any], options: dict[str, Any]
) -> GymnasiumEnv:
    if "mujoco" in str(spec.entry_point) and find_spec("mujoco"):
        _import_mujoco(env)  # or `quiet` would not know whom to quieten
    with quiet():
        # Only the first is rendered, and setting up rendering is expensive.
        envs = [_create(spec, env, options["render"] and i == 0, kwargs) for i in range(num_envs)]
    return GymnasiumEnv(env, envs, **options)


def _import_mujoco(env: str) -> None:
    try:
        importlib.import_module("mujoco")
    except Exception as error:
        if not (how := os.environ.get("MUJOCO_GL")):
            raise
        raise EnvError(
            f"'{env}' needs MuJoCo, which cannot draw as MUJOCO_GL={how} says ({sentence(error)}); install what that "
            "needs (Debian's packages: libegl1 for egl, libosmesa6 for osmesa) or set it to another of these."
        ) from error


def _registered(name: str, env: str) -> EnvSpec:
    """What Gymnasium knows under a name; the newest version where none is given."""
    if name in gym.registry:
        return gym.registry[name]
    try:
        namespace, plain, version = parse_env_id(name)
    except gym.error.Error:
        raise EnvError(f"'{env}' is not a Gymnasium id, which look like 'CartPole-v1'.") from None
    newest = find_highest_version(namespace, plain) if version is None else None
    if newest is not None:
        return gym.registry[get_env_id(namespace, plain, newest)]
    if namespace == "ALE" and "ale_py" not in sys.modules:
        register_atari(env)
        return _registered(name, env)
    raise EnvError(f"'{env}' is not a registered Gymnasium environment{suggest(name, gym.registry)}")


def _create(spec: EnvSpec, env: str, render: bool, kwargs: dict[str, Any]) -> Any:
    options = {"disable_env_checker": True} | kwargs

    def create(**given: Any) -> Any:
        return make_atari(spec, env, given) if kwargs.get(ATARI) else gym.make(spec, **given)

    try:
        if render:
            try:
                return create(**options | {"render_mode": "rgb_array"})
            except TypeError as error:
                if "render_mode" not in str(error):
                    raise
        return create(**options)
    except Exception as error:
        entry = spec.entry_point
        maker = load_env_creator(entry) if isinstance(entry, str) and isinstance(error, TypeError) else entry
        raise _refusal(env, error, kwargs, maker) from error


def _call(function: Any, name: str, num_envs: int, kwargs: dict[str, Any], options: dict[str, Any]) -> HostEnv | JaxEnv:
    if not callable(function):
        raise EnvError(f"an environment is an id or a function that makes one, got {function!r}.")
    parameters = inspect.signature(function).parameters
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wants_number = any(
        p.name == "num_envs" or (p.default is p.empty and p.kind in positional and p.name not in kwargs)
        for p in parameters.values()
    )

    def attempt(drawn: bool) -> Any:
        given = kwargs | ({"render_mode": "rgb_array"} if drawn and "render_mode" in parameters else {})
        try:
            with quiet():
                if "num_envs" in parameters:
                    return function(num_envs=num_envs, **kwargs)
                return function(num_envs, **kwargs) if wants_number else function(**given)
        except Exception as error:
            raise _refusal(name, error, kwargs, function) from error

    made = attempt(options["render"])
    if isinstance(made, gym.Env) or is_parallel(made):
        kind, sort = (PettingZooEnv, "ParallelEnv") if is_parallel(made) else (GymnasiumEnv, "gymnasium.Env")
        if wants_number:
            raise EnvError(f"'{name}' makes one {sort}, so it must take no arguments; wrap it in a function.")
        return kind(name, [made, *(attempt(False) for _ in range(num_envs - 1))], **options)
    _refuse_scale(name, options["action_scale"])
    if not isinstance(made, JaxEnv | HostEnv):
        raise EnvError(f"'{name}' made a {type(made).__name__}, not a gymnasium.Env or a headrace.envs.JaxEnv.")
    if made.spec.num_envs != num_envs:
        raise EnvError(
            f"'{name}' made {made.spec.num_envs} environments where {num_envs} were asked for; "
            f"let it take num_envs as its argument."
        )
    return made


def _refuse_scale(env: str, scale: float | None) -> None:
    if scale is not None:
        raise EnvError(
            f"'{env}' scales its actions itself, so --action-scale is not for it; "
            "let its step do so, and declare them as Box(..., bounded=True)."
        )


def import_for(module: str, env: str) -> None:
    """Import the module that registers an environment."""
    try:
        with loading(env):
            importlib.import_module(module)
    except ImportError as error:
        raise EnvError(f"'{env}' needs the module '{module}', which cannot be imported ({error}).") from error


def _refusal(env: str, error: Exception, kwargs: dict[str, Any], maker: Any) -> EnvError:
    if not isinstance(error, ImportError | gym.error.DependencyNotInstalled):
        return cannot_make(env, error, kwargs, maker)
    text = " ".join(str(error).split()).rstrip(".")
    if "mujoco" in text.lower() and "gymnasium-robotics" not in text:
        return EnvError(f"'{env}' needs MuJoCo; install it with: {installing('mujoco')}.")
    return EnvError(f"'{env}' needs a package that is not installed: {text}.")
