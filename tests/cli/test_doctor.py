"""`headrace doctor`: says what is there and what to type for what is not."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from headrace.cli import main
from headrace.cli.doctor import EXTRAS


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main(["doctor"]) == 0
    found = (line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    return {name.strip(): said.strip() for name, said in found}


def test_every_extra_is_there_with_a_version(capsys: pytest.CaptureFixture[str]) -> None:
    said = rows(capsys)
    for extra, modules in EXTRAS.items():
        assert [each.split()[0] for each in said[f"[{extra}]"].split(", ")] == list(modules)
        assert all(each.split()[1][0].isdigit() for each in said[f"[{extra}]"].split(", "))


def test_what_is_missing_is_named_with_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec

    def without_cv2(name: str, *rest: Any) -> Any:
        return None if name == "cv2" else real(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without_cv2)
    said = rows(capsys)["[atari]"]
    assert said.startswith("missing cv2; ")
    assert said.endswith("[atari]'")
