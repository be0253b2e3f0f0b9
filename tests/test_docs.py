"""What the docs promise is what the package has."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import headrace
import headrace.nets
from headrace.algorithms import ALGORITHMS
from headrace.cli.doctor import EXTRAS
from headrace.types import Batch, Transition

ROOT = Path(__file__).parents[1]


def test_all_is_sorted_and_documented() -> None:
    listed = re.findall(r"^### `(\w+)`", (ROOT / "docs" / "api.md").read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(headrace.__all__)
    assert all(getattr(headrace, name) is not None for name in headrace.__all__)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_page(name: str) -> None:
    assert f"headrace train {name}" in (ROOT / "docs" / "algorithms" / f"{name}.md").read_text()


def test_the_settings_in_the_docs_are_those_of_the_code() -> None:
    done = subprocess.run([sys.executable, "docs/settings.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_in_the_docs_lead_somewhere() -> None:
    for page in (*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")):
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_readme_reaches_a_running_command_within_thirty_lines() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()[:30]
    assert any(line.startswith("make demo") for line in lines)
    assert any(line.startswith("headrace train") for line in lines)


def test_every_extra_is_used_and_known_to_the_doctor() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = {name: needs for name, needs in extras.items() if name not in ("dev", "all")}
    assert set(extras) == set(EXTRAS)
    (offered,) = re.findall(r"# extras: (.*) all$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert sorted(offered.split()) == sorted(extras)
    files = [path for folder in ("src", "examples") for path in (ROOT / folder).rglob("*.py")]
    code = "".join(path.read_text() for path in files if path.name != "doctor.py")
    for extra, packages in EXTRAS.items():
        assert any(re.search(rf'(import |from |"){package}', code) for package in packages), extra


@pytest.mark.parametrize(
    "name",
    [
        "apex",
        "custom_env",
        "custom_network",
        "inference_server",
        "optuna_pruning",
        "reinforce",
        "two_trainers",
        "wrapped_env",
    ],
)
def test_examples_load(name: str) -> None:
    assert runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="example")


def test_the_api_page_has_every_field_of_what_stages_are_given_and_every_part_of_networks() -> None:
    page = (ROOT / "docs" / "api.md").read_text().split("## What stages are given")[1]
    first = [re.findall(r"`([\w.]+)", line.split(" | ")[0]) for line in page.splitlines() if line.startswith("| `")]
    named = {name for names in first for name in names}
    wanted = {*Transition._fields, *Batch._fields, *headrace.nets.__all__}
    assert wanted <= {name.split(".")[0] for name in named}
