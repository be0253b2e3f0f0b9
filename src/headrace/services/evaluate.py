"""The evaluator: plays episodes without exploration, in its own environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from headrace.compile.cells import CellLayout, cached_program
from headrace.compile.programs import Programs
from headrace.compile.rng import PassRng, bases
from headrace.core.cells import Cell
from headrace.envs import SUCCESS, make_host, scored
from headrace.graph import Graph
from headrace.types import Tree

EVALUATION_SEED = 0x5EED
"""Combined with the seed, so that evaluation environments differ from training ones."""

LONGEST = 100_000
"""Longest episode in steps; it is then scored as it is, because some environments never end one."""


@dataclass(frozen=True)
class Score:
    """The returns and lengths of some episodes."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    version: int = 0
    """The version of the weights that played, where there is one."""
    env_steps: int = 0
    """Environment steps collected when the episodes began."""
    actor: dict[str, Tree] | None = None
    """The cells that played; None if they are the current ones."""
    successes: tuple[float, ...] = ()
    """`is_success` at the end of the episodes that report it."""

    @property
    def mean_reward(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std_reward(self) -> float:
        return float(np.std(self.returns))

    @property
    def success_rate(self) -> float | None:
        """Share of the episodes that reached their goal; None where no episode reports it."""
        return float(np.mean(self.successes)) if self.successes else None

    @property
    def mean_ep_length(self) -> float:
        return float(np.mean(self.lengths))


class Player:
    """An actor made from cells: batched observations in, batched actions out."""

    def __init__(self, graph: Graph, cells: Mapping[str, Cell]):
        self.cell_layout = CellLayout(cells)
        self.programs = Programs(graph, self.cell_layout)
        self.play = graph.play
        read = self.programs.reader(self.play.nodes, self.play.action)
        self.compiled = cached_program(graph, "playing", lambda: jax.jit(read))
        self.bases = bases(graph, 0, replica=0)
        self.load(cells)

    def load(self, cells: Mapping[str, Cell]) -> None:
        """Use these cells from now on."""
        self.modules = self.programs.modules(self.play.nodes, self.cell_layout.flat(cells))

    def __call__(self, obs: Tree, number: int = 0) -> Tree:
        chosen = self.compiled(
            self.modules, {"env.observe": jax.tree.leaves(obs)}, PassRng(self.bases, np.uint32(number))
        )
        return jax.tree.map(np.asarray, chosen)


class Evaluator:
    """Plays one episode in each of `episodes` environments and reports the returns."""

    def __init__(self, graph: Graph, cells: Mapping[str, Cell], env: Any, seed: int, episodes: int):
        self.player = Player(graph, cells)
        self.env = make_host(scored(env), episodes)
        self.episodes = episodes
        self.seed = seed ^ EVALUATION_SEED

    def score(self, cells: Mapping[str, Cell], tick: Callable[[], None] = lambda: None) -> Score:
        """The first episode of every environment, from the same starts each time; `tick` is called at every step."""
        self.player.load(cells)
        obs = self.env.reset(self.seed)
        self.env.drain()
        returns, lengths = np.zeros(self.episodes), np.zeros(self.episodes, int)
        running = np.ones(self.episodes, bool)
        successes: list[float] = []
        number = 0
        while running.any() and number < LONGEST:
            step = self.env.step(self.player(obs, number))
            obs = step.obs
            returns += running * step.reward
            lengths += running
            ended = step.terminated | step.truncated
            for index, episode in zip(np.flatnonzero(ended), self.env.drain() if ended.any() else (), strict=False):
                if running[index] and SUCCESS in episode.info:
                    successes.append(episode.info[SUCCESS])
            running &= ~ended
            number += 1
            tick()
        return Score(tuple(returns.tolist()), tuple(lengths.tolist()), successes=tuple(successes))

    def close(self) -> None:
        self.env.close()
