"""An exported actor plays as the original does, and needs neither headrace nor JAX."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from headrace import DQN, MAPPO, PPO, SAC, Reads, Run, stage, trace, train
from headrace.cli import main
from headrace.compile.cells import make_cells
from headrace.errors import UsageError
from headrace.run.export import export_actor
from headrace.types import Array

BATCH = 7


class Parts(gym.Env):
    """Shows a Dict of parts far from zero and takes choices counted from 5."""

    observation_space = gym.spaces.Dict(
        {
            "place": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "kind": gym.spaces.Discrete(3),
            "body": gym.spaces.Dict({"angle": gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)}),
        }
    )
    action_space = gym.spaces.Discrete(4, start=5)

    def look(self):
        draw = self.np_random
        place, angle = draw.normal(40, 3, 2).astype(np.float32), draw.normal(-2, 9, 1).astype(np.float32)
        return {"place": place, "kind": int(draw.integers(3)), "body": {"angle": angle}}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.look(), {}

    def step(self, action):
        assert 5 <= action <= 8
        self.t += 1
        return self.look(), float(action == 6), False, self.t == 5, {}


class Uneven(gym.Env):
    """Bounds that differ from dimension to dimension."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(np.array([-2, 0], np.float32), np.array([2, 9], np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=3).astype(np.float32), {}

    def step(self, action):
        return self.np_random.normal(size=3).astype(np.float32), 0.0, False, False, {}


class Dicey(PPO):
    @stage
    def play(self, obs, actor: Reads, normaliser: Reads, key: Array):
        return actor(normaliser(obs)).sample(key)


class Strange(PPO):
    @stage
    def play(self, obs, actor: Reads, normaliser: Reads):
        chosen = actor(normaliser(obs)).mode()
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(chosen.shape, chosen.dtype), chosen)


SMALL = {"hidden": (16,), "num_envs": 2}
REPLAY = SMALL | {"batch_size": 8, "warmup": 8, "replay_capacity": 200}
ROLLOUT = SMALL | {"horizon": 16, "minibatch_size": 16}
CASES = {
    "continuous": (SAC(**REPLAY), Uneven),
    "discrete": (DQN(**REPLAY), Parts),
    "normalising": (PPO(**ROLLOUT), Parts),
}


def made(algorithm, env, out: Path) -> Run:
    return train(algorithm, env, policy="single", steps=64, out=out, evaluate=False, progress=False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    here = tmp_path_factory.mktemp("export")
    return {name: made(algorithm, env, here / name) for name, (algorithm, env) in CASES.items()}


def observed(run: Run) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Observations by the names of a file's inputs, and what the original does."""
    draw = np.random.default_rng(1)
    if run.env is Uneven:
        inputs = {"observation": draw.normal(size=(BATCH, 3)).astype(np.float32) * 3}
        return inputs, np.asarray(run.actor(inputs["observation"]))
    place, angle = (draw.normal(m, s, (BATCH, n)).astype(np.float32) for m, s, n in ((40, 3, 2), (-2, 9, 1)))
    kind = draw.integers(0, 3, BATCH).astype(np.int32)
    parts = {"body/angle": angle, "kind": kind, "place": place}
    return parts, np.asarray(run.actor(parts))


ALONE = """
import sys
for name in ("jax", "jaxlib", "headrace", "equinox"):
    sys.modules[name] = None
import numpy as np, onnxruntime as ort
for folder in sys.argv[1:]:
    session = ort.InferenceSession(folder + "/actor.onnx", providers=["CPUExecutionProvider"])
    given = dict(np.load(folder + "/given.npz"))
    assert sorted(given) == sorted(part.name for part in session.get_inputs()), [p.name for p in session.get_inputs()]
    whole = session.run(["action"], given)[0]
    one = session.run(["action"], {name: part[:1] for name, part in given.items()})[0]
    np.savez(folder + "/chosen.npz", whole=whole, one=one)
"""


def test_onnx_plays_the_same_with_onnxruntime_alone(runs: dict[str, Run], capsys) -> None:
    pytest.importorskip("jax2onnx")
    expected = {}
    for name, run in runs.items():
        given, expected[name] = observed(run)
        np.savez(run.path / "given.npz", **given)
        if name == "continuous":
            assert main(["export", str(run.path), "--env", f"{__file__}:Uneven"]) == 0
            assert f": {run.path}/actor.onnx" in capsys.readouterr().out
        else:
            assert run.export(run.path / "actor.onnx") == run.path / "actor.onnx"
    folders = [str(run.path) for run in runs.values()]
    done = subprocess.run([sys.executable, "-c", ALONE, *folders], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for name, run in runs.items():
        with np.load(run.path / "chosen.npz") as file:
            chosen = dict(file)
        assert chosen["whole"].dtype == expected[name].dtype
        assert np.abs(chosen["whole"] - expected[name]).max() <= 1e-5
        assert np.abs(chosen["one"] - expected[name][:1]).max() <= 1e-5
    # The cases are not trivial: actions reach beyond [-1, 1], choices differ, moments are not those of the start.
    assert expected["continuous"][:, 1].min() >= 0
    assert expected["continuous"][:, 1].max() > 2
    assert set(expected["discrete"]) <= {5, 6, 7, 8}
    assert len(set(expected["normalising"]) | set(expected["discrete"])) > 1
    assert float(runs["normalising"].cells["normaliser"].module.moments["['place']"].mean[0]) > 30


def test_stablehlo_plays_the_same(runs: dict[str, Run]) -> None:
    pytest.importorskip("flatbuffers")
    for name, run in runs.items():
        given, expected = observed(run)
        file = run.export(run.path / "a.bin", format="stablehlo")
        program = jax.export.deserialize(bytearray(file.read_bytes()))
        assert {"cpu", "cuda", "tpu"} <= set(program.platforms)
        for count in (1, BATCH):
            chosen = np.asarray(program.call(*(part[:count] for part in given.values())))
            assert np.abs(chosen - expected[:count]).max() <= 1e-5, name


class Pixels(gym.Env):
    observation_space = gym.spaces.Box(0, 255, (10, 10, 1), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros((10, 10, 1), np.uint8), {}


@pytest.mark.parametrize(
    ("algorithm", "env", "form"),
    [
        (DQN(**REPLAY), Pixels, "onnx"),
        (MAPPO(**ROLLOUT), "pettingzoo:mpe2.simple_spread_v3", "stablehlo"),
    ],
)
def test_pictures_and_teams_are_exported_too(algorithm, env, form: str, tmp_path: Path) -> None:
    pytest.importorskip("jax2onnx")
    graph = trace(algorithm, env)
    export_actor(graph, make_cells(algorithm, graph, 0), tmp_path / f"actor.{form}")  # which compares both
    assert (tmp_path / f"actor.{form}").stat().st_size > 1_000


def test_what_cannot_be_exported_is_refused_and_nothing_is_written(runs: dict[str, Run], tmp_path: Path) -> None:
    run = runs["discrete"]
    with pytest.raises(UsageError, match="exported as onnx or stablehlo, got 'txt'"):
        run.export(tmp_path / "actor.txt")
    with pytest.raises(UsageError, match=r"the folder '.*nowhere' is not there"):
        run.export(tmp_path / "nowhere" / "actor.onnx")
    for algorithm, form, words in (
        (Dicey(**ROLLOUT), "onnx", "stage 'play' plays with a random key"),
        (Strange(**ROLLOUT), "onnx", "this actor cannot be exported as onnx"),
        (Strange(**ROLLOUT), "stablehlo", "this actor cannot be exported as stablehlo"),
    ):
        graph = trace(algorithm, "CartPole-v1")
        with pytest.raises(UsageError, match=words):
            export_actor(graph, make_cells(algorithm, graph, 0), tmp_path / f"actor.{form}")
    assert not list(tmp_path.iterdir())


def test_a_converter_that_is_wrong_is_found_out(runs: dict[str, Run], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(
        "headrace.run.export._stablehlo", lambda graph, play, inputs: (b"", lambda *parts: jnp.tanh(play(*parts)))
    )
    with pytest.raises(UsageError, match="does not play as the original does; it is not written"):
        runs["continuous"].export(tmp_path / "actor.stablehlo")
    assert not list(tmp_path.iterdir())
