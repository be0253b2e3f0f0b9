"""Sweeps: many runs in one process share what is compiled, let it go, and close what they open."""

from __future__ import annotations

import gc
import importlib
import weakref
from pathlib import Path

import equinox as eqx
import gymnasium as gym
import jax
import numpy as np
import pytest

import headrace
from headrace.envs import recipe_json
from headrace.nets import MLP
from headrace.settings.objects import object_path
from headrace.settings.values import to_json
from headrace.tune.probe import ProbeTask, prepare

SETTINGS = {"num_envs": 2, "warmup": 16, "batch_size": 4, "hidden": (4,), "replay_capacity": 100}
OBS = np.ones(4, np.float32)


class Own(headrace.DQN):
    """The same loop in code of the user's own, which may be edited between two runs."""


class Counted(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gym.spaces.Discrete(2)
    opened = 0

    def __init__(self):
        Counted.opened += 1

    def reset(self, *, seed=None, options=None):
        return OBS, {}

    def step(self, action):
        return OBS, 0.0, False, True, {}

    def close(self):
        Counted.opened -= 1


def train(out, kind=headrace.DQN, env="CartPole-v1", **settings):
    made = kind(**SETTINGS | settings)
    return headrace.train(
        made, env, policy="single", runtime="inline", out=out, steps=40, progress=False, evaluate=False
    )


def maps():
    return len(Path("/proc/self/maps").read_text().splitlines())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(tmp_path_factory.mktemp("sweep") / "run")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_sixty_loads_and_their_actors_take_no_more_memory_maps_than_a_few(finished):
    runs = [headrace.Run.load(finished.path)]
    first = runs[0].actor(OBS)
    before = maps()
    runs += [headrace.Run.load(finished.path) for _ in range(59)]
    assert all(run.actor(OBS) == first for run in runs)
    assert maps() - before < 20


def test_equal_runs_share_their_programs_and_the_last_lets_them_go(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.import_module("headrace.graph.trace"), "_traced", weakref.WeakValueDictionary())
    first = train(tmp_path / "0", hidden=(5,))
    second = train(tmp_path / "1", hidden=(5,))
    assert first.graph is second.graph is not headrace.trace(headrace.DQN(**SETTINGS), "CartPole-v1")
    assert first.actor.player.compiled is second.actor.player.compiled
    graph = weakref.ref(first.graph)
    del first
    gc.collect()
    assert graph() is second.graph
    del second
    gc.collect()
    assert graph() is None


@pytest.mark.parametrize(("kind", "settings"), [(Own, {}), (headrace.DQN, {"network": MLP})])
def test_what_may_have_been_edited_is_not_shared(kind, settings):
    first = headrace.trace(kind(**SETTINGS | settings), "CartPole-v1")
    assert headrace.trace(kind(**SETTINGS | settings), "CartPole-v1") is not first


def test_the_actor_is_made_once_and_again_for_other_cells(finished):
    run = headrace.Run.load(finished.path)
    assert run.actor is run.actor
    actions = [run.actor(OBS)]
    before, values = run.actor, run.actor.player.modules
    flipped = jax.tree.map(lambda leaf: -leaf if eqx.is_array_like(leaf) else leaf, run.cells["critic"])
    run.cells["critic"] = flipped
    assert run.actor is not before
    np.testing.assert_array_equal(run.actor.player.modules[0], -values[0])
    assert actions[0] in (0, 1)


def test_environments_that_were_only_looked_at_are_closed(tmp_path):
    Counted.opened = 0
    run = train(tmp_path / "run", env=Counted)
    run.evaluate(2)
    assert Counted.opened == 0
    algorithm = headrace.DQN(**SETTINGS)
    prepare(
        ProbeTask(
            role="learn",
            threads=1,
            algorithm=object_path(headrace.DQN),
            settings=to_json(algorithm.config),
            env=recipe_json(Counted),
            spec=run.graph.spec.to_json(),
            fragments=[],
            parent=0,
        )
    )
    assert Counted.opened == 0
