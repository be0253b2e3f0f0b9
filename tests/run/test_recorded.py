"""What is loaded from a run is data: code of the user's own runs only when the user names it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import gymnasium as gym
import pytest

from headrace import DQN, Run, train
from headrace.cli import main
from headrace.envs import env_id, is_installed_env
from headrace.envs.installed import is_installed
from headrace.errors import CheckpointError, ConfigError, UsageError
from headrace.run.directory import RunConfig
from headrace.settings.objects import findable, object_path

OWN = """
import os
from pathlib import Path

Path(os.environ["MARKER"]).write_text("ran")

import gymnasium as gym
import headrace
from headrace.nets.mlp import MLP
from headrace.policies import POLICIES


class Mine(headrace.DQN):
    pass


def make():
    return gym.make("CartPole-v1")


def parallel_env():
    return make()


def network(inputs, outputs, key, **hints):
    return MLP(inputs, outputs, key, **hints)


def policy(graph, machine, replicas):
    return POLICIES["single"](graph, machine, replicas)


if "Mine-v0" not in gym.registry:
    gym.register("Mine-v0", make)
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recorded") / "run"
    return small("CartPole-v1", out).path


class Folder:
    """Where a stranger's run was unpacked, with a file of theirs beside it."""

    def __init__(self, here: Path, plain: Path):
        self.marker, self.run, self.file = here / "marker", here / "run", here / "own.py"
        shutil.copytree(plain, self.run)
        self.file.write_text(OWN)

    def says(self, **changes) -> None:
        config = json.loads((self.run / "config.json").read_text())
        settings = config["settings"] | changes.pop("settings", {})
        (self.run / "config.json").write_text(json.dumps(config | changes | {"settings": settings}))

    @property
    def ran(self) -> bool:
        return self.marker.exists()


@pytest.fixture
def folder(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])  # `main` adds to it
    monkeypatch.setenv("MARKER", str(tmp_path / "marker"))
    for name in [name for name in sys.modules if name == "own"]:
        monkeypatch.delitem(sys.modules, name)
    return Folder(tmp_path, plain)


NAMES = {
    "a file as algorithm": {"algorithm": "{here}/own.py:Mine"},
    "a module as algorithm": {"algorithm": "own:Mine"},
    "a file as environment": {"env": "{here}/own.py:make"},
    "a file beside the run": {"env": "own.py:make"},
    "a module as environment": {"env": "own:make"},
    "an id that a module registers": {"env": "own:Mine-v0"},
    "a team in a module": {"env": "pettingzoo:own"},
    "a function of the standard library": {"env": "os:abort"},
    "a function of an installed package": {"env": "gymnasium:make"},
    "a program of an installed package": {"env": "pip.__main__:X-v0"},
    "an id that makes another": {"env": "GymV21Environment-v0", "env_kwargs": {"env_id": "own:Mine-v0"}},
    "a network": {"settings": {"network": "{here}/own.py:network"}},
    "a network in a module": {"settings": {"network": "own:network"}},
}


@pytest.mark.parametrize("what", NAMES)
@pytest.mark.parametrize("command", ["eval", "train"])
def test_a_strangers_run_executes_nothing(folder: Folder, capsys, what: str, command: str) -> None:
    folder.says(**json.loads(json.dumps(NAMES[what]).replace("{here}", str(folder.file.parent))))
    words = ["eval", "run"] if command == "eval" else ["train", "--resume", "run", "--steps", "20", "--quiet"]
    sys.path.insert(0, os.getcwd())  # as `python -m headrace` has it
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "was made with code of your own, which runs only if you name it" in said
    assert f"type: headrace {command} " in said
    with pytest.raises(UsageError, match="only if you name it"):
        Run.load("run")
    assert not folder.ran


def test_a_policy_is_not_run_when_going_on(folder: Folder, capsys) -> None:
    folder.says(policy=f"{folder.file}:policy")
    assert main(["train", "--resume", "run", "--steps", "20", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert f"type: headrace train dqn CartPole-v1 --resume run --policy {folder.file}:policy" in said
    assert not folder.ran
    assert main(["eval", "run", "--episodes", "1"]) == 0  # which needs none
    words = ["train", "--resume", "run", "--steps", "20", "--quiet", "--no-eval"]
    assert main([*words, "--policy", "own.py:other"]) == 2
    assert not folder.ran
    assert main([*words, "--policy", "own.py:policy"]) == 0
    assert folder.ran


def test_what_the_sentence_says_works_when_typed(folder: Folder, capsys) -> None:
    here = folder.file.parent
    network = {"network": f"{here}/own.py:network"}
    folder.says(algorithm=f"{here}/own.py:Mine", env=f"{here}/own.py:make", settings=network)
    assert main(["eval", "run"]) == 2
    said = capsys.readouterr().err
    own = f"{here}/own.py"
    typed = f"headrace eval run --algorithm {own}:Mine --network {own}:network --env {own}:make"
    assert f"type: {typed} (in Python: Run.load('run', algorithm=Mine, network=network, env=make))." in said
    assert main([*shlex.split(typed)[1:], "--episodes", "1"]) == 0
    assert capsys.readouterr().out.startswith("mine on ")
    assert main(["eval", "run", "--env", f"{own}:make"]) == 2  # what was typed already is typed again
    assert f"type: {typed.replace(f' --env {own}:make', '')}" in capsys.readouterr().err.replace(
        f" --env {own}:make", ""
    )
    assert main(["train", "--resume", "run"]) == 2
    said = capsys.readouterr().err
    typed = f"headrace train {own}:Mine {own}:make --resume run --set network={own}:network"
    assert f"type: {typed} (in Python: train(resume='run', algorithm=Mine, network=network, env=make))." in said
    assert main([*shlex.split(typed)[1:], "--steps", "20", "--quiet", "--no-eval"]) == 0


def test_a_file_that_moved_or_is_a_module_is_the_same_and_another_is_refused(folder: Folder) -> None:
    folder.says(algorithm="/gone/own.py:Mine", settings={"network": "somewhere.own:network"})
    assert Run.load("run", algorithm="own.py:Mine", network="own.py:network").algorithm.name == "mine"
    with pytest.raises(
        CheckpointError, match=r"was trained with algorithm /gone/own\.py:Mine, not headrace\.algo.*DQN"
    ):
        Run.load("run", algorithm="dqn", network="own.py:network")
    with pytest.raises(CheckpointError, match=r"was trained with network somewhere\.own:network, not .*own\.py:make"):
        Run.load("run", algorithm="own.py:Mine", network="own.py:make")
    with pytest.raises(CheckpointError, match=r"was trained with env CartPole-v1, not Acrobot-v1"):
        Run.load("run", "Acrobot-v1", algorithm="own.py:Mine", network="own.py:network")
    folder.says(algorithm="headrace.algorithms.dqn:DQN")
    with pytest.raises(CheckpointError, match=r"was trained with num_envs 2, not 8"):
        Run.load("run", algorithm=DQN())


def test_ids_of_installed_packages_are_found_as_before(folder: Folder) -> None:
    found = ["CartPole-v1", "gymnax:CartPole-v1", "brax:ant", "envpool:CartPole-v1", "pettingzoo:mpe2.simple_spread_v3"]
    assert all(is_installed_env(env) for env in found)
    assert is_installed_env("gymnasium:CartPole-v1")
    assert not is_installed_env("gymnasium:make")
    assert is_installed("gymnasium.envs.classic_control")
    assert not any(is_installed(module) for module in ("json", "pip.__main__", "nowhere", "", "..", "own"))
    folder.says(env="gymnasium:CartPole-v1")
    assert Run.load("run").graph.spec.id == "gymnasium:CartPole-v1"


def test_a_package_that_the_current_folder_hides_is_the_users_own(folder: Folder, monkeypatch) -> None:
    folder.file.rename("envpool.py")
    sys.path.insert(0, os.getcwd())
    monkeypatch.delitem(sys.modules, "envpool", raising=False)
    assert not is_installed_env("envpool:CartPole-v1")
    assert not folder.ran


@pytest.mark.parametrize(
    "changes",
    [
        {"env": "a\nb"},
        {"env": "\x1b[2J"},
        {"env": 3},
        {"seed": "0"},
        {"settings": {"network": "\x1b:x"}},
        {"replicas": {}},
    ],
)
def test_a_config_with_other_values_is_refused(folder: Folder, changes) -> None:
    folder.says(**changes)
    with pytest.raises(CheckpointError, match=r"config\.json' cannot be read"):
        RunConfig.read(folder.run)


def test_what_a_run_says_is_quoted_as_text(folder: Folder, capsys) -> None:
    folder.says(env="x.py:a; rm -rf ~ #")
    assert main(["eval", "run"]) == 2
    assert "headrace eval run --env 'x.py:a; rm -rf ~ #'" in capsys.readouterr().err


def small(env, out: Path) -> Run:
    dqn = DQN(hidden=(8,), num_envs=2, batch_size=8, warmup=8, replay_capacity=100)
    return train(dqn, env, policy="single", steps=16, out=out, evaluate=False, progress=False)


def test_an_environment_without_a_name_is_recorded_so(tmp_path: Path) -> None:
    def make(limit: int = 9) -> gym.Env:
        return gym.make("CartPole-v1", max_episode_steps=limit)

    run = small(lambda: make(), tmp_path / "run")
    assert (RunConfig.read(run.path).env, run.graph.spec.id) == ("<lambda>", "<lambda>")
    with pytest.raises(UsageError, match=r"its env had no name that could be rec.*--env FILE\.py:NAME.*env=\.\.\."):
        Run.load(run.path)
    assert Run.load(run.path, make).env is make
    assert [env_id(env) for env in (make, partial(make, 5), type("Own", (gym.Env,), {})())] == ["<make>"] * 2 + [
        "<Own>"
    ]


SCRIPT = """
import gymnasium as gym, headrace

def make():
    return gym.make("CartPole-v1")

dqn = headrace.DQN(hidden=(8,), num_envs=2, batch_size=8, warmup=8, replay_capacity=100)
run = headrace.train(dqn, make, steps=16, out="run", evaluate=False, progress=False)
print("in", run.path)
"""


def test_a_script_on_the_standard_input_runs_in_one_process(tmp_path: Path) -> None:
    ran = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run([sys.executable, "-"], input=SCRIPT, **ran)
    assert (done.returncode, done.stdout) == (0, "in run\n"), done.stderr
    assert "'make' cannot be found by other processes, so all runs in this one" in done.stderr
    config = RunConfig.read(tmp_path / "run")
    assert (config.env, config.policy, config.runtime) == ("<make>", "single", "inline")
    # The same in a file, without a main guard: named, it is loaded and does not train again.
    (tmp_path / "script.py").write_text(SCRIPT)
    with pytest.raises(ConfigError, match=r"train was called while '.*script\.py:make' is loaded; put the call under"):
        Run.load(tmp_path / "run", f"{tmp_path / 'script.py'}:make")


@pytest.mark.parametrize("file", [None, "<stdin>", "/dev/fd/63", "started", "script.py"])
def test_what_stands_in_a_script_is_found_where_the_script_is_a_file(tmp_path, monkeypatch, file: str | None) -> None:
    """None: `-c`, a notebook or IPython; `started`: a script that is not called .py, which cannot be imported."""
    main_module = ModuleType("__main__")
    if file is not None:
        main_module.__file__ = file if file[0] in "</" else str(tmp_path / file)
        for name in ("started", "script.py"):
            (tmp_path / name).write_text("")
    monkeypatch.setitem(sys.modules, "__main__", main_module)

    def make() -> None: ...

    make.__module__, make.__qualname__ = "__main__", "make"
    assert findable(make) == (file == "script.py")
    assert object_path(make) == (f"{tmp_path}/script.py:make" if file == "script.py" else "<make>")


def test_a_config_that_is_none_is_refused_in_a_sentence(folder, capsys) -> None:
    (folder.run / "config.json").write_text("[1, 2]")
    assert main(["eval", str(folder.run)]) == 2
    assert "cannot be read (it holds a list, not named values)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"goal": {"steps": "many"}}, "--steps takes a number, got 'many'"),
        ({"goal": {"stepz": 5}}, "cannot be read (goal has stepz)"),
        ({"options": {"eval_episodes": "ten"}}, "--eval-episodes takes a whole number, got 'ten'"),
        ({"options": {"eval_episode": 5}}, "train has no option 'eval_episode'; did you mean 'eval_episodes'?"),
        ({"options": {"checkpoint_every": []}}, "--checkpoint-every takes a number, got []"),
    ],
)
def test_a_goal_or_option_edited_by_hand_is_refused_in_a_sentence(changes, words, folder, capsys) -> None:
    folder.says(**changes)
    assert main(["train", "--resume", str(folder.run)]) == 2
    assert words in capsys.readouterr().err
