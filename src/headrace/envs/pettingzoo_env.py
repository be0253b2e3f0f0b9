"""PettingZoo's parallel environments: teams of agents that act at once."""

from __future__ import annotations

import importlib
import math
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from headrace.envs.base import Step, cannot_make, numbers, optional
from headrace.envs.spaces import Actions, MisfitError, ObsBuffer, observations
from headrace.envs.stepped import Stepped, quiet
from headrace.errors import EnvError, nearest
from headrace.types import Array, Box, Discrete, EnvSpec, MultiDiscrete, Space, Tree


class PettingZooEnv(Stepped):
    """Parallel environments of one kind, side by side; with `render`, the first of them can be drawn.

    To the loop a team is one actor: its observation has a row for each agent, its action concatenates theirs, and its
    reward is the mean of theirs. An episode ends for all agents at once.
    """

    def __init__(self, name: str, envs: Sequence[Any], *, render: bool = False, action_scale: float | None = None):
        self._agents = list(getattr(envs[0], "possible_agents", None) or ())
        if not self._agents:
            raise EnvError(f"'{name}' does not say who its possible_agents are; headrace must know before it starts.")
        team, num_envs = len(self._agents), len(envs)
        with quiet():
            seen, acted = _spaces(envs[0], self._agents, name)
            # A row for each agent of each environment, as if every agent were an environment of its own.
            self._rows = num_envs * team
            self._actions = Actions(acted, name, self._rows, action_scale)
            if not isinstance(seen, gym.spaces.Box):
                raise EnvError(f"'{name}' shows each agent {seen}; in a team headrace observes Box alone: flatten it.")
            layout = observations(seen, self._actions.space, name)
        self._shape = acted.shape
        assert isinstance(layout.space, Box)
        seen_by_all = Box((team, math.prod(seen.shape)), layout.space.dtype)
        spec = EnvSpec(name, seen_by_all, _side_by_side(self._actions.space, team), num_envs, agents=team)
        super().__init__(spec, envs, layout, render=render, team=team)

    def reset(self, seed: int) -> Tree:
        return self._shown(self._reset_all(seed))

    def step(self, action: Array) -> Step:
        if len(action) != self.spec.num_envs:
            raise EnvError(f"'{self.spec.id}' has {self.spec.num_envs} environments but got {len(action)} actions.")
        rows = self._actions.decode(np.reshape(action, (self._rows, *self._shape)))
        choices = rows.tolist() if rows.ndim == 1 else list(rows)
        self._count += 1
        buffers, team = self._next_buffers(), len(self._agents)
        seen: list[Any] = []
        gains: list[float] = []
        ended: list[int] = []
        infos: list[Any] = []
        for index, env in enumerate(self._envs):
            chosen = dict(zip(self._agents, choices[index * team : (index + 1) * team], strict=True))
            try:
                obs, paid, terminated, truncated, info = env.step(chosen)
                seen.extend(obs[agent] for agent in self._agents)
                gain = sum(float(paid[agent]) for agent in self._agents) / team
                over = [agent for agent in self._agents if terminated[agent] or truncated[agent]]
                if over:
                    self._require_all(index, over)
                    buffers.end(index, all(terminated[agent] for agent in over), first=not ended)
                    ended.append(index)
            except EnvError:
                raise
            except Exception as error:
                raise self._blame(index, error) from error
            gains.append(gain)
            infos.append(_mean_info(info) if index in ended else {})
        self._returns += gains
        self._take_in(buffers.next_obs, seen)
        buffers.pay(gains)
        if not buffers.surely_finite():
            self._require_finite(buffers.reward, "a reward", rows)
            self._require_finite(buffers.next_obs.tree, "an observation", rows)
        next_obs = self._shown(buffers.next_obs)
        if not ended:
            return Step(next_obs, buffers.reward, self._none, self._none, next_obs)
        buffers.obs.copy(buffers.next_obs)
        self._end(ended, infos)
        for index in ended:
            self._reset_one(index, buffers.obs, None)
        self._require_finite(buffers.obs.tree, "a first observation")
        return Step(self._shown(buffers.obs), buffers.reward, buffers.terminated, buffers.truncated, next_obs)

    def _shown(self, rows: ObsBuffer) -> Tree:
        """The observations of teams, with an axis of agents."""
        return rows.tree.reshape(self.spec.num_envs, len(self._agents), -1)

    def _require_all(self, index: int, over: list[Any]) -> None:
        if len(over) < len(self._agents):
            raise EnvError(
                f"'{self.spec.id}' (environment {index}) ended at step {self._count} for {', '.join(map(str, over))} "
                f"and not for the others; headrace plays teams that stay together: wrap it so that all end at once."
            )

    def _reset_one(self, index: int, obs: ObsBuffer, seed: int | None) -> None:
        try:
            seen, _ = self._envs[index].reset(seed=seed)
            for place, agent in enumerate(self._agents):
                obs.write(index * len(self._agents) + place, seen[agent], None)
        except Exception as error:
            raise self._blame(index, error) from error

    def _take_in(self, rows: ObsBuffer, seen: list[Any]) -> None:
        try:
            rows.gather(seen, ())
        except (MisfitError, TypeError, ValueError):
            for row, obs in enumerate(seen):
                try:
                    rows.write(row, obs, None)
                except Exception as error:
                    raise self._blame(row // len(self._agents), error) from error
            raise

    def _blame(self, index: int, error: BaseException) -> EnvError:
        if isinstance(error, KeyError) and error.args and error.args[0] in self._agents:
            error = MisfitError(f"returned nothing for agent '{error.args[0]}'")
        return super()._blame(index, error)


def make_pettingzoo(
    name: str, num_envs: int, kwargs: dict[str, Any], *, render: bool = False, action_scale: float | None = None
) -> PettingZooEnv:
    """The environments of `pettingzoo:MODULE`, where the module has a function `parallel_env`."""
    optional("pettingzoo", "marl", name)
    module = _module(name, name.removeprefix("pettingzoo:"))
    make = getattr(module, "parallel_env", None)
    if make is None:
        raise EnvError(f"'{name}' has no function parallel_env in its module {module.__name__}; name one that has.")
    try:
        with quiet():
            drawn = kwargs | ({"render_mode": "rgb_array"} if render else {})
            envs = [make(**(kwargs if i else drawn)) for i in range(num_envs)]
    except Exception as error:
        raise cannot_make(name, error, kwargs) from error
    return PettingZooEnv(name, envs, render=render, action_scale=action_scale)


def is_parallel(env: Any) -> bool:
    """Whether something is a PettingZoo environment, without importing PettingZoo."""
    pettingzoo: Any = sys.modules.get("pettingzoo")
    return pettingzoo is not None and isinstance(env, pettingzoo.ParallelEnv)


def _module(name: str, path: str) -> Any:
    if not path:
        raise EnvError(f"'{name}' names no module; it looks like 'pettingzoo:mpe2.simple_spread_v3'.")
    try:
        with quiet():
            return importlib.import_module(path)
    except ImportError as error:
        parent, _, last = path.rpartition(".")
        package = sys.modules.get(parent)
        if package is None or error.name != path:
            return optional(path, "marl", name)
    known = [module.name for module in pkgutil.iter_modules(package.__path__)]
    raise EnvError(f"'{name}' is not a module of {parent}{nearest(last, known) or '.'}")


def _mean_info(info: Any) -> dict[str, float]:
    """The infos of a team: for each key, the mean over the agents that have it."""
    each = [numbers(one) for one in info.values()]
    names = {name for one in each for name in one}
    return {name: float(np.mean([one[name] for one in each if name in one])) for name in sorted(names)}


def _spaces(env: Any, agents: list[Any], name: str) -> tuple[Any, Any]:
    first, *others = [(env.observation_space(agent), env.action_space(agent)) for agent in agents]
    for agent, own in zip(agents[1:], others, strict=True):
        for what, mine, theirs in zip(("observations", "actions"), first, own, strict=True):
            if mine != theirs:
                raise EnvError(
                    f"'{name}' has {what} of {mine} for agent '{agents[0]}' but of {theirs} for '{agent}'; headrace "
                    f"plays teams of equals: pad them, as supersuit does."
                )
    return first


def _side_by_side(action: Space, team: int) -> Space:
    match action:
        case Discrete(n, start):
            return MultiDiscrete((n,) * team, (start,) * team if start else ())
        case MultiDiscrete(counts, start):
            return MultiDiscrete(counts * team, start * team)
        case Box(shape, dtype, bounded, low, high):
            return Box((team * math.prod(shape),), dtype, bounded, low * team, high * team)
        case _:
            raise TypeError(f"no actions side by side in {action}")
