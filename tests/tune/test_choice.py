"""A choice settles an algorithm, places a plan, and is remembered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headrace
from headrace.errors import ConfigError
from headrace.graph import fuse, verify
from headrace.machine import Machine
from headrace.policies import dual_device
from headrace.tune import Choice, cached, remember
from headrace.tune.cache import _path, describe

MACHINE = Machine(4, 1 << 34, ("cpu:0",))
CHOICE = Choice(16, 2, 16, 512, {"collect": (2, 3), "learn": (0, 1)}, "frames/s", 30_000.5)


def test_it_survives_json() -> None:
    assert Choice.from_json(json.loads(json.dumps(CHOICE.to_json()))) == CHOICE
    bare = Choice(8, 1, 1, None)
    assert Choice.from_json(json.loads(json.dumps(bare.to_json()))) == bare


@pytest.mark.parametrize(
    "change", [{"num_envs": "8"}, {"cores": [1]}, {"cores": {"learn": ["a"]}}, {"repeat": 0}, {"replicas": 3}, {"x": 1}]
)
def test_it_refuses_what_is_no_choice(change: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        Choice.from_json(CHOICE.to_json() | change)
    with pytest.raises(ConfigError):
        Choice.from_json({})


def test_it_settles_an_algorithm() -> None:
    settled = CHOICE.settle(headrace.SAC(hidden=(16,)))
    assert isinstance(settled, headrace.SAC)
    assert (settled.config.num_envs, settled.config.batch_size, settled.config.hidden) == (16, 512, (16,))
    assert Choice(4, 1, 1, None).settle(headrace.PPO()).config.num_envs == 4


def test_it_places_a_plan() -> None:
    settled = CHOICE.settle(headrace.SAC(hidden=(16,)))
    plan = fuse(dual_device(headrace.trace(settled, "Pendulum-v1"), MACHINE, CHOICE.replicas))
    learners = [fragment.id for fragment in plan.learners]
    chosen = Choice(16, 2, 16, 512, {plan.collector.id: (3,), learners[0]: (0, 1), learners[1]: (2,)})
    placed = verify(chosen.place(plan), MACHINE)
    assert placed.collector.cores == (3,)
    assert placed.collector.replicas == 2
    assert [fragment.cores for fragment in placed.learners] == [(0, 1), (2,)]
    assert {fragment.repeat for fragment in placed.learners} == {16}
    assert placed.collector.repeat == 1
    assert placed.cuts == plan.cuts


def test_it_is_one_line_for_a_person() -> None:
    cores = "collect on cores 2-3, learn on cores 0-1"
    assert str(CHOICE) == f"2 samplers, 16 environments, 16 updates fused, batch 512, {cores}: 30.0k frames/s expected"
    assert str(Choice(8, 1, 1, None, {"all": ()}, "steps/s")) == "1 sampler, 8 environments"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_a_choice_is_remembered_for_exactly_what_it_was_made_for(home: Path) -> None:
    asked = (headrace.SAC(), "Pendulum-v1", "desktop", MACHINE)
    assert cached(*asked) is None
    remember(CHOICE, *asked)
    assert cached(*asked) == CHOICE
    assert cached(headrace.SAC(batch_size=128), *asked[1:]) is None
    assert cached(*asked, replicas=2) is None
    assert cached(*asked[:2], "dual_device", MACHINE) is None
    assert cached(*asked[:3], Machine(8, 1 << 34, ("cpu:0",))) is None
    assert cached(*asked[:3], Machine(4, (1 << 34) + 4096, ("cpu:0",))) == CHOICE  # memory counts in GiB
    (file,) = home.rglob("*.json")
    assert not list(home.rglob("*.part"))
    assert file.parent == home / "headrace" / "tuned"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"of": {}, "choice": {}}', "\xff"])
def test_a_spoilt_file_is_ignored_and_rewritten(home: Path, text: str) -> None:
    asked = (headrace.SAC(), "Pendulum-v1", "desktop", MACHINE)
    remember(CHOICE, *asked)
    (file,) = home.rglob("*.json")
    file.write_bytes(text.encode("latin-1"))
    assert cached(*asked) is None
    remember(CHOICE, *asked)
    assert cached(*asked) == CHOICE


def test_a_choice_of_another_format_is_ignored(home: Path) -> None:
    asked = (headrace.SAC(), "Pendulum-v1", "desktop", MACHINE)
    remember(CHOICE, *asked)
    key = describe(*asked, None)
    values = {name: value for name, value in CHOICE.to_json().items() if name != "repeat"}
    _path(key).write_text(json.dumps({"of": key, "choice": values}))
    assert cached(*asked) is None


def test_a_home_that_cannot_be_written_does_not_matter(home: Path) -> None:
    (home / "headrace").write_text("in the way")
    remember(CHOICE, headrace.SAC(), "Pendulum-v1", "desktop", MACHINE)
    assert cached(headrace.SAC(), "Pendulum-v1", "desktop", MACHINE) is None
