"""algorithms: small files that know nothing of placement, and n-step goals as rlax has them."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import rlax

import headrace.algorithms
from headrace.algorithms import ALGORITHMS
from headrace.stores.replay import Table
from headrace.types import Box, Discrete, EnvSpec, Transition, struct, transition_struct

FOLDER = Path(headrace.algorithms.__file__).parent
FILES = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")


def test_there_is_one_file_for_each_algorithm():
    assert {path.stem for path in FILES} == set(ALGORITHMS) == {"a3c", "dqn", "impala", "mappo", "ppo", "sac", "td3"}
    for name, kind in ALGORITHMS.items():
        assert Path(inspect.getfile(kind)).stem == name
        assert kind().name == name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_algorithm_fits_on_a_few_screens(path):
    assert len(path.read_text().splitlines()) <= 215


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_algorithm_imports_only_what_it_is_written_in(path):
    imported = {node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in imported if name.startswith("headrace")}
    assert ours <= {"headrace.core", "headrace.core.returns", "headrace.nets", "headrace.types"}


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_goals_of_the_table_are_the_n_step_targets_of_rlax(steps):
    rng = np.random.default_rng(0)
    length, gamma = 30, 0.9
    spec = EnvSpec("toy", Box((1,)), Discrete(2), 1)
    table = Table(transition_struct(spec, struct(spec.action, 1), {}), 1, length)
    rewards = rng.normal(size=length).astype(np.float32)
    terminated = rng.random(length) < 0.15
    values = rng.normal(size=length + 1).astype(np.float32)
    for t in range(length):
        obs, after = np.full((1, 1), t, np.float32), np.full((1, 1), t + 1, np.float32)
        flag, none = terminated[t : t + 1], np.zeros(1, bool)
        table.insert(Transition(obs, np.zeros(1, np.int32), rewards[t : t + 1], flag, none, after, {}))
    batch = table.sample(np.random.default_rng(1), (200,), gamma, steps)
    goal = batch.reward + batch.discount * values[batch.next_obs[:, 0].astype(int)]
    oracle = rlax.n_step_bootstrapped_returns(
        jnp.asarray(rewards), jnp.asarray(gamma * ~terminated, jnp.float32), jnp.asarray(values[1:]), steps
    )
    at = batch.obs[:, 0].astype(int)
    assert set(at) == set(range(length - steps + 1))
    np.testing.assert_allclose(goal, np.asarray(oracle)[at], rtol=1e-4, atol=1e-5)
