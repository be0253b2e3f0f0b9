"""track: W&B in its offline mode has config, metrics and videos of a run; where it fails the run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import headrace
from headrace.cli import main
from headrace.errors import UsageError
from headrace.run.callbacks import Event
from headrace.run.track import WandbTracker

pytest.importorskip("wandb")

SETTINGS = ["hidden=8", "num_envs=4", "batch_size=16", "warmup=32", "samples_per_insert=4", "replay_capacity=500"]
WORDS = ["train", "dqn", "CartPole-v1", "--policy", "single", "--eval-every", "64", "--steps", "128", "--quiet"]


def records(folder: Path) -> list:
    """What W&B wrote: protocol buffers in LevelDB's log format."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("*.wandb")
    data, at, whole, found = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # what is left of a block has no room for a head
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            found.append(Record.FromString(whole))
            whole = b""
    return found


def read(folder: Path) -> tuple[dict, list[dict]]:
    config, rows = {}, []
    for record in records(folder):
        for item in record.run.config.update:
            config[item.key] = json.loads(item.value_json)
        if record.history.item:
            rows.append({(i.key or "/".join(i.nested_key)): json.loads(i.value_json) for i in record.history.item})
    return config, rows


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """A run of the command line and what it said; no process of it is left."""
    out = tmp_path_factory.mktemp("tracked") / "run"
    words = [*WORDS, "--out", str(out), "--track", "wandb:mine", "--set", *SETTINGS]
    started = subprocess.Popen(
        [sys.executable, "-m", "headrace", *words],
        env=os.environ | {"WANDB_MODE": "offline"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    said = started.communicate(timeout=300)[1]
    assert started.returncode == 0, said
    left = [process for process in psutil.process_iter() if _session(process) == started.pid]
    assert not psutil.wait_procs(left, timeout=600)[1]
    return out, said


@pytest.fixture(autouse=True)
def wandb_reads_the_environment_anew(monkeypatch):
    import wandb

    monkeypatch.delenv("WANDB_MODE", raising=False)
    yield
    wandb.teardown()


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def test_the_rows_and_the_config_are_logged(tracked):
    out, said = tracked
    (folder,) = (out / "wandb").glob("offline-run-*")
    assert f"headrace: tracked at {folder}" in said
    config, rows = read(folder)
    assert config["settings"]["hidden"] == [8]
    assert (config["env"], config["seed"]) == ("CartPole-v1", 0)
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == len(metrics) >= 2
    for logged, row in zip(rows, metrics, strict=True):
        assert {name: logged[name] for name, value in row.items() if value is not None} == {
            name: value for name, value in row.items() if value is not None
        }
    assert rows[-1]["time/env_steps"] == 128
    (run,) = [record.run for record in records(folder) if record.run.run_id]
    assert (run.project, run.display_name) == ("mine", "run")
    assert json.loads((out / "config.json").read_text())["options"]["track"] == "wandb:mine"  # kept by --resume


def test_a_video_is_logged_once(tmp_path, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "000000000128.gif").write_bytes(b"GIF89a")
    (tmp_path / "videos" / ".000000000256.gif.part").write_bytes(b"GIF8")
    tracker = WandbTracker("mine")
    for steps in (128, 256):
        tracker(Event("metrics", {"time/env_steps": steps, "eval/mean_reward": None}, None, tmp_path, {"seed": 1}))
    tracker.close(failed=False)
    assert not tracker.broken
    wandb.teardown()  # its service writes what it holds
    (folder,) = (tmp_path / "wandb").glob("offline-run-*")
    first, second = read(folder)[1]
    assert first["video/_type"] == "video-file"
    assert (folder / "files" / first["video/path"]).read_bytes() == b"GIF89a"
    assert "video/path" not in second
    assert "eval/mean_reward" not in first


def test_training_goes_on_without_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_API_KEY", "too short")
    words = [*WORDS, "--out", str(tmp_path / "run"), "--track", "wandb", "--set", *SETTINGS]
    assert main(words) == 0
    said = capsys.readouterr().err
    assert said.count("W&B failed (AuthenticationError:") == said.count("training goes on without it") == 1
    assert headrace.Run.load(tmp_path / "run").metrics[-1]["time/env_steps"] == 128


def test_another_tracker_is_refused(tmp_path):
    with pytest.raises(UsageError, match="--track takes wandb or wandb:PROJECT, got 'wand'; did you mean 'wandb'"):
        headrace.train("dqn", "CartPole-v1", track="wand", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
