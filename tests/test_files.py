"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.files import write_whole


def test_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    write_whole(path, "old")
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["config.json"]


def test_where_that_fails_the_old_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    write_whole(path, "old")

    def full(self: Path, text: str) -> None:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["config.json"]
