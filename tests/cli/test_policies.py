"""Policies of one's own from the command line, and what is refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli import main

ROOT = Path(__file__).parents[2]
HEAD = """
from headrace.graph import Fragment, cut

def halves(graph):
    return [tuple(node.id for node in graph.where(domain=domain)) for domain in ("collect", "learn")]

def mine(graph, machine, replicas=None):
    collect, learn = halves(graph)
"""
TINY = """
import jax.numpy as jnp, optax
from headrace import Algorithm, Config, Env, Learned, Reads, Rollout, Writes, stage

class Tiny(Algorithm[Config]):
    def cells(self, spec, key):
        return {"weights": Learned(jnp.zeros(()), optax.sgd(0.1))}

    @stage
    def act(self, obs, weights: Reads):
        return jnp.zeros(obs.shape[0], jnp.int32)

    play = act

    @stage
    def learn(self, trajectory, weights: Writes):
        weights, loss = weights.minimise(lambda w: (w - 1) ** 2)
        return weights, {"loss": loss}

    def loop(self, env: Env, rollout: Rollout):
        rollout.put(env.step(self.act(env.observe())))
        self.learn(rollout.take())
"""
BAD = {
    "a node left out": (
        "return cut(graph, 'mine', (Fragment('a', collect[1:]), Fragment('b', learn)), 0)",
        "leaves out env.observe",
    ),
    "the store left out": ("return cut(graph, 'mine', (Fragment('a', collect),), 0)", "leaves out learn, rollout.take"),
    "nothing placed": ("return cut(graph, 'mine', (), 0)", "leaves out act, env.observe, env.step"),
    "a node twice": (
        "return cut(graph, 'mine', (Fragment('a', collect), Fragment('b', learn + collect[:1])), 0)",
        "places 'env.observe' 2 times",
    ),
    "an edge that cannot be cut": (
        "return cut(graph, 'mine', (Fragment('a', ('env.step',)), Fragment('b', tuple("
        "n.id for n in graph.nodes if n.id != 'env.step'))), 0)",
        "an environment's state cannot be sent",
    ),
    "a device that is not there": (
        "return cut(graph, 'mine', (Fragment('a', collect, device='cuda:7'), Fragment('b', learn)), 0)",
        "placed on device 'cuda:7', but this machine has cpu:0",
    ),
    "more replicas than environments": (
        "return cut(graph, 'mine', (Fragment('a', collect, replicas=99), Fragment('b', learn)), 0)",
        "asks for 99 replicas of 4 environment(s)",
    ),
    "stale data": (
        "return cut(graph, 'mine', (Fragment('a', collect), Fragment('b', learn)), 3)",
        "learns on-policy from at most 0",
    ),
    "weights of tomorrow": (
        "return cut(graph, 'mine', (Fragment('a', collect), Fragment('b', learn)), -3)",
        "has staleness -3",
    ),
    "it exits": ("raise SystemExit(0)", "raised SystemExit: 0"),
    "no Python": ("return (", "cannot be loaded: SyntaxError"),
    "it raises": ("return 1 / 0", "raised ZeroDivisionError: division by zero"),
    "no plan": ("return None", "returned a NoneType"),
}
TRAIN = [
    "CartPole-v1",
    "--steps",
    "256",
    "--set",
    "num_envs=4",
    "horizon=16",
    "minibatch_size=32",
    "hidden=16",
    "--quiet",
]


@pytest.mark.parametrize("what", BAD)
def test_a_bad_policy_is_refused_in_a_sentence(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body, sentence = BAD[what]
    file = tmp_path / "bad.py"
    file.write_text(HEAD + f"    {body}\n")
    out = tmp_path / "run"
    assert main(["train", "ppo", *TRAIN, "--policy", f"{file}:mine", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said
    assert not out.exists()


def test_a_mistake_is_shown_where_it_is_in_ones_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.py"
    file.write_text("import json\n\ndef mine(graph, machine, replicas=None):\n    return json.loads('{')\n")
    assert main(["graph", "ppo", "CartPole-v1", "--policy", f"{file}:mine"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[1] == f"  at {file}:4: return json.loads('{{')"


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ("nowhere.py:mine", "nowhere.py"),
        ("desktopp", "did you mean 'desktop'"),
        (f"{ROOT}/examples/inference_server.py:nothing", "nothing"),
    ],
)
def test_a_policy_that_is_not_there(policy: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "ppo", "CartPole-v1", "--policy", policy]) == 2
    assert sentence in capsys.readouterr().err


def test_staleness_that_would_change_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for policy in ("single", "multiple_learners"):
        assert main(["graph", "ppo", "CartPole-v1", "--policy", policy, "--staleness", "1"]) == 2
        assert "staleness 1 would change nothing" in capsys.readouterr().err
        assert main(["graph", "ppo", "CartPole-v1", "--policy", policy, "--staleness", "0"]) == 0


def test_passes_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "ppo", "CartPole-v1", "--passes", "--format", "svg"]) == 2
    assert "--passes is text" in capsys.readouterr().err


def test_auto_is_for_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "ppo", "CartPole-v1", "--policy", "auto"]) == 2
    assert "headrace bench" in capsys.readouterr().err


def test_a_policy_of_ones_own_trains(tmp_path: Path) -> None:
    policy = f"{ROOT}/examples/inference_server.py:inference_server"
    settings = ["--set", "num_envs=4", "warmup=64", "batch_size=32", "hidden=16", "replay_capacity=2000"]
    words = ["train", "sac", "Pendulum-v1", "--policy", policy, "--replicas", "2", "--steps", "400", *settings]
    assert main([*words, "--out", str(tmp_path / "run"), "--quiet"]) == 0


def test_ones_own_single_over_a_jax_environment_is_one_program(tmp_path: Path) -> None:
    pytest.importorskip("gymnax")
    file, out = tmp_path / "own.py", tmp_path / "run"
    file.write_text(HEAD + "    return cut(graph, 'mine', (Fragment('all', collect + learn),), 0)\n" + TINY)
    asked = ["train", f"{file}:Tiny", "gymnax:CartPole-v1", "--policy", f"{file}:mine", "--out", str(out)]
    assert main([*asked, "--steps", "64", "--no-eval", "--quiet"]) == 0
    assert json.loads((out / "config.json").read_text())["runtime"] == "inline"


def test_what_cannot_run_as_drawn_is_refused_by_its_law(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apart = "tuple(node for node in collect if node != 'act')"
    for replicas, code in ((1, 0), (2, 2)):
        file = tmp_path / f"own_{replicas}.py"
        acting, learning = "Fragment('act', ('act',), replicas=2)", f"Fragment('learn', learn, replicas={replicas})"
        fragments = f"(Fragment('collect', {apart}), {acting}, {learning})"
        file.write_text(HEAD + f"    return cut(graph, 'mine', {fragments}, 0)\n")
        assert main(["graph", "ppo", "CartPole-v1", "--policy", f"{file}:mine"]) == code
    said = capsys.readouterr()
    assert "env.observe -> act" in said.out
    assert "each of which would write the cell" in said.err


def test_policies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies"]) == 0
    said = capsys.readouterr().out
    for name in ("single_learner_fine", "multiple_learners", "device_only", "environments", "central", "auto"):
        assert name in said


def test_passes_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "sac", "Pendulum-v1", "--passes"]) == 0
    said = capsys.readouterr().out
    assert "learn_critic, learn_actor are one jitted call" in said
    assert "8 learning passes are one scan" in said
    assert main(["graph", "sac", "gymnax:Pendulum-v1", "--passes"]) == 0
    assert "one XLA program" in capsys.readouterr().out
