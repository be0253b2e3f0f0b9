"""checkpoint: what is written is what is read, and what is broken is refused with a sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import headrace
from headrace.errors import CheckpointError
from headrace.run import checkpoint

SOURCE = Path(headrace.__file__).parent


def arrays():
    return {
        "cells": {
            "actor": [jnp.arange(6.0).reshape(2, 3), jnp.asarray(3, jnp.int32)],
            "flag": np.asarray([True, False]),
        },
        "replay": {"rows": [np.arange(8, dtype=np.uint8).reshape(2, 4)], "written": np.asarray([4], np.int64)},
        "key": jax.random.key(5),
    }


def like():
    return jax.tree.map(lambda leaf: leaf, arrays())


VALUES = {"env_steps": 12, "elapsed": 1.5}


@pytest.fixture
def saved(tmp_path):
    return checkpoint.save(tmp_path / "checkpoints" / "000000000012", arrays(), VALUES)


def test_round_trip(saved):
    found, values = checkpoint.load(saved, like())
    assert values == VALUES
    assert jax.tree.structure(found) == jax.tree.structure(arrays())
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(arrays()), strict=True):
        assert mine.dtype == theirs.dtype
        if jnp.issubdtype(theirs.dtype, jax.dtypes.prng_key):
            mine, theirs = jax.random.key_data(mine), jax.random.key_data(theirs)
        assert np.array_equal(mine, theirs)


def test_a_part_may_be_read_alone(saved):
    found, _ = checkpoint.load(saved, {"cells": like()["cells"]}, whole=False)
    assert np.array_equal(found["cells"]["actor"][0], arrays()["cells"]["actor"][0])


def test_rows_of_the_replay_may_have_grown_but_nothing_else(saved):
    smaller = like()
    smaller["replay"]["rows"] = [np.zeros((2, 0), np.uint8)]
    found, _ = checkpoint.load(saved, smaller)
    assert found["replay"]["rows"][0].shape == (2, 4)
    other = like()
    other["cells"]["actor"][0] = jnp.zeros((2, 4))
    with pytest.raises(
        CheckpointError,
        match=r"holds \['cells'\]\['actor'\]\[0\] as float32\[2, 3\], these settings make it float32\[2, 4\]",
    ):
        checkpoint.load(saved, other)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda t: t["cells"].update(critic=np.zeros(2)), r"'\['cells'\]\['critic'\]' does not match"),
        (lambda t: t.pop("key"), r"'\['key'\]' does not match"),
        (lambda t: t["cells"].update(flag=np.zeros(2, np.int32)), r"as bool\[2\], these settings make it int32\[2\]"),
    ],
)
def test_other_settings_are_refused(saved, change, what):
    other = like()
    change(other)
    with pytest.raises(CheckpointError, match=what) as refused:
        checkpoint.load(saved, other)
    assert "resume with the settings in the run's config.json" in str(refused.value)


@pytest.mark.parametrize("kept", [0, 1, 100])
def test_a_truncated_file_is_refused(saved, kept):
    path = saved / checkpoint.ARRAYS
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(
        CheckpointError, match=rf"is truncated: state.safetensors has {kept} of {size:,} bytes; remove that folder"
    ):
        checkpoint.load(saved, like())


def test_a_missing_file_is_refused(saved):
    (saved / checkpoint.ARRAYS).unlink()
    with pytest.raises(CheckpointError, match=r"is truncated: state\.safetensors has 0 of"):
        checkpoint.load(saved, like())


@pytest.mark.parametrize("where", [0, 0.5, 0.999])
def test_a_flipped_byte_is_refused(saved, where):
    path = saved / checkpoint.ARRAYS
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(
        CheckpointError,
        match=r"is corrupt: state\.safetensors does not match its checksum; remove that folder to use the one before",
    ):
        checkpoint.load(saved, like())


BAD = {
    "empty": "",
    "cut off": '{"format": 1, "fil',
    "no object": "[]",
    "null": "null",
    "nothing in it": "{}",
    "files is a list": '{"format": 1, "files": [], "values": {}}',
    "no sums": '{"format": 1, "files": {"state.safetensors": {}}, "values": {}}',
    "file is a number": '{"format": 1, "files": {"state.safetensors": 3}, "values": {}}',
    "values is a number": '{"format": 1, "files": {}, "values": 3}',
    "nothing is vouched for": '{"format": 1, "files": {}, "values": {}}',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_a_bad_manifest_is_refused(saved, text):
    (saved / checkpoint.MANIFEST).write_text(text)
    with pytest.raises(CheckpointError, match="manifest"):
        checkpoint.load(saved, like())


def test_a_manifest_that_is_not_text_or_not_there_is_refused(saved):
    (saved / checkpoint.MANIFEST).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointError, match="has no readable manifest"):
        checkpoint.load(saved, like())
    (saved / checkpoint.MANIFEST).unlink()
    with pytest.raises(CheckpointError, match="has no readable manifest"):
        checkpoint.load(saved, like())


def test_another_format_is_refused(saved):
    manifest = json.loads((saved / checkpoint.MANIFEST).read_text())
    (saved / checkpoint.MANIFEST).write_text(json.dumps(manifest | {"format": 99}))
    with pytest.raises(CheckpointError, match=r"has format 99, this headrace reads \d+"):
        checkpoint.load(saved, like())


def test_what_was_left_by_a_crash_is_ignored_and_replaced(saved, tmp_path):
    left = tmp_path / "checkpoints" / ".000000000024.part"
    left.mkdir()
    (left / checkpoint.ARRAYS).write_bytes(b"half")
    assert checkpoint.newest(tmp_path) == saved
    newer = checkpoint.save(tmp_path / "checkpoints" / "000000000024", arrays(), VALUES)
    assert checkpoint.newest(tmp_path) == newer
    assert not left.exists()
    checkpoint.load(newer, like())


def test_a_failed_write_leaves_nothing_and_keeps_what_there_was(saved, tmp_path, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_flush", full)
    for name in ("000000000012", "000000000024"):
        with pytest.raises(OSError, match="No space left"):
            checkpoint.save(tmp_path / "checkpoints" / name, {"x": np.zeros(1)}, {})
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["000000000012"]
    checkpoint.load(saved, like())


def test_saving_again_replaces(saved):
    checkpoint.save(saved, {"x": np.ones(2)}, {"n": 1})
    found, values = checkpoint.load(saved, {"x": np.zeros(2)})
    assert (found["x"].tolist(), values) == ([1, 1], {"n": 1})


def test_prune_keeps_the_newest_two(tmp_path):
    for steps in (5, 100, 20, 3000):
        checkpoint.save(tmp_path / "checkpoints" / f"{steps:012d}", {"x": np.zeros(1)}, {})
        checkpoint.prune(tmp_path)
    assert sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir()) == [100, 3000]


def test_a_run_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(
        CheckpointError, match="has no checkpoint; give the folder of a run that was trained for a while"
    ):
        checkpoint.newest(tmp_path)


def test_nothing_is_ever_unpickled():
    wanted = re.compile(
        r"\b(pickle|cloudpickle|dill|joblib|allow_pickle|np\.load|numpy\.load|torch\.load|marshal|shelve)\b"
    )
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if wanted.search(line) and not line.lstrip().startswith(("#", '"""'))
    ]
    assert found == []
