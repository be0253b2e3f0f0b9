"""docs/coming-from.md names settings, options, commands and metrics that there are, and theirs are met with a hint."""

from __future__ import annotations

import dataclasses
import inspect
import re
import shlex
from pathlib import Path

import pytest

import headrace
from headrace.algorithms import ALGORITHMS
from headrace.cli.parser import parse
from headrace.errors import ConfigError
from headrace.runtimes import Options
from headrace.settings.values import override

PAGE = (Path(__file__).parents[1] / "docs" / "coming-from.md").read_text()
ROWS = [row[1:3] for row in (line.split(" | ") for line in PAGE.replace("\n| ", "\n | ").splitlines()) if len(row) == 3]
SETTINGS = {field.name for kind in ALGORITHMS.values() for field in dataclasses.fields(kind.config_type)}
ARGUMENTS = {*inspect.signature(headrace.train).parameters, *(field.name for field in dataclasses.fields(Options))}
METRICS = re.findall(r"`([a-z]+/\w+)`", (Path(__file__).parents[1] / "docs" / "runs.md").read_text())


def ours() -> list[str]:
    """Everything in code that stands on the right."""
    return sorted({code for _, right in ROWS for code in re.findall(r"`([^`]+)`", right)})


def test_the_page_has_all_four() -> None:
    assert re.findall("^## (.*)", PAGE, re.MULTILINE) == ["Stable-Baselines3", "CleanRL", "RLlib", "Sample Factory"]
    assert len(ROWS) > 60


@pytest.mark.parametrize("code", ours())
def test_what_stands_on_the_right_is_there(code: str) -> None:
    if code.startswith("headrace "):
        assert parse(shlex.split(code)[1:])
    elif code.startswith("--"):
        assert parse(["train", "sac", "Pendulum-v1", *_filled(code)])
    elif code.startswith(("headrace.", "run.")):
        for dotted in re.findall(r"(?<![\w\"])((?:headrace|run)(?:\.\w+)+)", code):
            _exists(dotted)
        for name in re.findall(r"(\w+)=", code):
            assert name in SETTINGS | ARGUMENTS, code
    elif "/" in code:
        assert code in METRICS
    else:
        assert code.partition("=")[0] in SETTINGS | ARGUMENTS | {"best"}
        name, _, value = code.partition("=")
        if name in SETTINGS and value and not value.isupper():
            kind = next(kind for kind in ALGORITHMS.values() if hasattr(kind.config_type(), name))
            override(kind.config_type(), {name: value.strip('()"')})


def _filled(code: str) -> list[str]:
    """An option with values in place of what stands for one."""
    words = {"N": "2", "S": "60", "FILE": "x.gif", "P": "single", "KEY=VALUE": "g=9.0", "wandb:P": "wandb:mine"}
    return [words.get(word, word) for word in shlex.split(code)]


def _exists(dotted: str) -> None:
    root, *rest = dotted.split(".")
    found = headrace if root == "headrace" else headrace.Run
    for part in rest:
        assert hasattr(found, part) or part in inspect.getsource(headrace.Run.__init__), dotted
        found = getattr(found, part, None)


@pytest.mark.parametrize(("name", "ours"), [("lr", "learning_rate"), ("buffer_size", "replay_capacity")])
def test_their_settings_are_met_with_ours(name: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=f"it is called '{ours}' here"):
        override(headrace.SAC().config, {name: "1"})
