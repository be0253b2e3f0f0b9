"""After a run: what it says to type next, and `headrace eval` of one run, several, and the latest."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from html import escape
from pathlib import Path

import pytest

from headrace import Run
from headrace.cli import main
from headrace.cli.video import film_names

SMALL = ["--set", "num_envs=2", "horizon=32", "minibatch_size=32", "hidden=8"]
WORDS = ["train", "ppo", "CartPole-v1", "--policy", "single", "--no-eval", "--quiet"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two runs were made, one after the other."""
    here = tmp_path_factory.mktemp("two")
    for name in ("first", "second"):
        assert main([*WORDS, "--steps", "64", "--out", str(here / "runs" / name), *SMALL]) == 0
    os.utime(here / "runs" / "first" / "config.json", (0, 0))
    return here


@pytest.fixture(autouse=True)
def in_two(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(two)
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_a_run_ends_with_what_to_type_next(tmp_path: Path, capsys) -> None:
    out = tmp_path / "a run"
    assert main([*WORDS, "--steps", "64", "--out", str(out), *SMALL]) == 0
    last = capsys.readouterr().out.splitlines()[-3:]
    where = shlex.quote(str(out))
    assert last == [
        f"run: {out}",
        f"play:  headrace eval {where}",
        f"go on: headrace train --resume {where} --steps 128",
    ]
    assert main([*shlex.split(last[1])[2:], "--episodes", "1"]) == 0
    assert main([*shlex.split(last[2])[3:], "--quiet"]) == 0
    assert Run.load(out).metrics[-1]["time/env_steps"] == 128


CALLBACK = """
import os, signal

def stop(event, sent=[]):
    if not sent:
        sent.append(os.kill(os.getpid(), signal.SIGINT))
"""


def test_ctrl_c_says_so_too(tmp_path: Path, capsys) -> None:
    (tmp_path / "stop.py").write_text(CALLBACK)
    words = [*WORDS, "--out", str(tmp_path / "run"), "--callback", f"{tmp_path / 'stop.py'}:stop", *SMALL]
    assert main(words) == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("interrupted after ")
    assert said[-1] == f"go on: headrace train --resume {tmp_path / 'run'}"


def test_what_to_type_next_names_what_is_the_users_own(tmp_path: Path, capsys) -> None:
    own = tmp_path / "own.py"
    own.write_text("import headrace\nclass Mine(headrace.PPO):\n    pass\n")
    assert main(["train", f"{own}:Mine", *WORDS[2:], "--steps", "64", "--out", str(tmp_path / "run"), *SMALL]) == 0
    play, go_on = capsys.readouterr().out.splitlines()[-2:]
    assert play == f"play:  headrace eval {tmp_path / 'run'} --algorithm {own}:Mine"
    assert go_on == f"go on: headrace train {own}:Mine CartPole-v1 --resume {tmp_path / 'run'} --steps 128"
    assert main([*shlex.split(play)[2:], "--episodes", "1"]) == 0


def test_several_runs_and_the_latest(capsys) -> None:
    assert main(["eval", "runs/first", "runs/second", "--episodes", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["runs/first", "runs/second"]
    assert all(": ppo on CartPole-v1: return " in line for line in lines)
    assert main(["eval", "latest", "runs/first", "--episodes", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("runs/second: ")
    assert main(["train", "--resume", "latest", "--steps", "64", "--quiet"]) == 0
    assert "run: runs/second" in capsys.readouterr().out


def test_each_of_several_runs_has_a_video_of_its_own(capsys, tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    film = tmp_path / "pole.gif"
    assert main(["eval", "runs/first", "runs/second", "--episodes", "1", "--record", str(film)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pole-first.gif", "pole-second.gif"]
    assert f"frames: {tmp_path / 'pole-second.gif'}" in capsys.readouterr().out
    assert film_names("a/b.mp4", [Path("runs/x")]) == ["a/b.mp4"]
    assert film_names("a/b.mp4", [Path("x/run"), Path("y/run"), Path("z")]) == [
        f"a/b-{n}.mp4" for n in ("run-1", "run-2", "z")
    ]


def test_a_wrong_one_among_several_is_refused_before_anything_is_played(capsys, tmp_path: Path, monkeypatch) -> None:
    film = tmp_path / "film.gif"
    assert main(["eval", "runs/first", "runs/nowhere", "--record", str(film)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "'runs/nowhere' is not a run" in said.err
    assert main(["eval", "runs/first", "--record", str(tmp_path / "new" / "film.gif")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert f"there is no folder '{tmp_path / 'new'}'; make it, or choose another file" in said.err
    assert not list(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "latest"]) == 2
    assert "'latest' is the newest run under runs/, and there is none" in capsys.readouterr().err


def test_a_folder_of_seeds(capsys, tmp_path: Path) -> None:
    assert main([*WORDS, "--steps", "64", "--seeds", "2", "--out", str(tmp_path / "seeds"), *SMALL]) == 0
    *_, where, compare, play, go_on = capsys.readouterr().out.splitlines()
    assert where == f"seeds: {tmp_path / 'seeds'}"
    assert compare.startswith(f"compare: headrace compare {tmp_path / 'seeds'}")
    assert go_on == f"go on: headrace train --resume {tmp_path / 'seeds'} --steps 128"
    assert main([*shlex.split(play)[2:], "--episodes", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [f"{tmp_path}/seeds/seed-{i}" for i in range(2)]


def test_a_run_shows_itself(two: Path) -> None:
    run = Run.load("runs/first")
    assert repr(run).startswith("Run('runs/first': ppo on CartPole-v1, seed 0, 64 steps, ")
    assert repr(run).endswith(", return not evaluated)")
    html = run._repr_html_()
    assert html.startswith("<table><tr><th>run</th><td>runs/first</td></tr><tr><th>algorithm</th><td>ppo</td>")
    shutil.copytree("runs/first", "runs/<b>")
    try:
        assert escape("runs/<b>") in Run.load("runs/<b>")._repr_html_()
        (Path("runs/<b>") / "metrics.jsonl").unlink()
        assert repr(Run.load("runs/<b>")) == "Run('runs/<b>': ppo on CartPole-v1, seed 0)"
    finally:
        shutil.rmtree("runs/<b>")
