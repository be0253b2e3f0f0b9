"""From nothing to a run: the interpreter that make takes, and a wheel that needs no checkout."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from email.parser import Parser
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TINY = ["num_envs=2", "warmup=64", "batch_size=32", "hidden=8", "replay_capacity=1000"]
BROUGHT = {"imageio_ffmpeg": ["imageio"], "IPython": ["ipykernel"]}
"""What comes with an extra of what is asked for."""

MINUTES = 600.0
needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not here")


def interpreter(path: Path, fits: bool = True) -> None:
    """A Python of some name: this one, or one that is too old to fit."""
    path.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n' if fits else "#!/bin/sh\nexit 1\n")
    path.chmod(0o755)


def make(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What make does where only the interpreters in `path` are there."""
    command = [str(shutil.which("make")), f"VENV={path / 'venv'}", *words]
    found = {"PATH": str(path)}
    return subprocess.run(command, cwd=ROOT, env=found, capture_output=True, text=True, timeout=MINUTES)


@needs_make
def test_make_takes_the_newest_python_that_fits(tmp_path: Path) -> None:
    for name in ("python3.11", "python3.13", "python3"):
        interpreter(tmp_path / name)
    interpreter(tmp_path / "python3.14", fits=False)  # such as one without venv
    for target in ("demo", "test"):
        assert make(tmp_path, "-n", target).stdout.count(f"python3.13 -m venv {tmp_path}") == 1
    assert f"mine -m venv {tmp_path}" in make(tmp_path, "-n", "demo", "PYTHON=mine").stdout
    for name in ("python3.11", "python3.13"):
        (tmp_path / name).unlink()
    assert f"python3 -m venv {tmp_path}" in make(tmp_path, "-n", "demo").stdout


@needs_make
def test_make_says_so_where_no_python_fits(tmp_path: Path) -> None:
    interpreter(tmp_path / "python3", fits=False)
    for words in ([], [f"PYTHON={tmp_path}/python3"], ["PYTHON=/nowhere/python3"]):
        done = make(tmp_path, "demo", *words)
        assert done.returncode == 2
        assert done.stdout.startswith("headrace needs Python 3.11 or newer with its venv module")
        assert "set PYTHON=/path/to/python3" in done.stdout
    assert not (tmp_path / "venv").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, timeout=MINUTES)
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_has_every_file(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("headrace/")}
    source = ROOT / "src"
    there = {str(path.relative_to(source)) for path in (source / "headrace").rglob("*") if path.is_file()}
    assert held == {name for name in there if "__pycache__" not in name}


def imports(tree: ast.Module) -> tuple[set[str], set[str]]:
    """The packages that a module imports when it is loaded, and those that it imports later."""
    found: tuple[set[str], set[str]] = set(), set()
    now = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in (
            "optional",
            "import_module",
        ):
            names = [word.value for word in node.args[:1] if isinstance(word, ast.Constant)]
        found[id(node) not in now].update(name.partition(".")[0] for name in names)
    return found


def test_the_wheel_asks_for_what_is_imported(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as held:
        (name,) = [name for name in held.namelist() if name.endswith("METADATA")]
        told = Parser().parsestr(held.read(name).decode()).get_all("Requires-Dist", [])
    required = {plain(one) for one in told if "extra ==" not in one}
    extras = {plain(one) for one in told if "extra ==" in one}
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert required == {plain(one) for one in settings["dependencies"]}
    first, later = set[str](), set[str]()
    for path in (ROOT / "src" / "headrace").rglob("*.py"):
        now, then = imports(ast.parse(path.read_text()))
        first |= now
        later |= then
    ours = {"headrace", *sys.stdlib_module_names}
    distributions = packages_distributions()
    for names, asked in ((first - ours, required), (later - ours, required | extras)):
        for name in names:
            found = BROUGHT.get(name) or distributions.get(name, [name])
            assert asked & {plain(one) for one in found}, f"nobody asks for {name}"


def plain(requirement: str) -> str:
    """The name of a distribution in a requirement."""
    cut = next((i for i, letter in enumerate(requirement) if letter in " ;[<>=!~("), len(requirement))
    return requirement[:cut].lower().replace("_", "-")


def trains(python: Path, folder: Path) -> None:
    """Train from another folder by the command that the wheel brought, with no way to the checkout."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*words: str) -> str:
        done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=MINUTES)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = run(str(python), "-c", "import importlib.util as u; print(u.find_spec('headrace').origin)").strip()
    assert Path(where).is_relative_to(python.parents[1])
    command = [str(python.with_name("headrace")), "train", "sac", "Pendulum-v1", "--steps", "200", "--out", "run"]
    said = run(*command, "--quiet", "--no-eval", "--no-tune", "--set", *TINY)
    assert said.startswith("done after ")
    assert (folder / "run" / "checkpoints").is_dir()


def test_the_wheel_trains_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    """What it depends on is taken from here: a path in a .pth file, where the one to the checkout is not followed."""
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)]
    subprocess.run(command, check=True, timeout=MINUTES)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    import jax

    (site / "dependencies.pth").write_text(str(Path(jax.__file__).parents[1]) + "\n")
    (tmp_path / "elsewhere").mkdir()
    trains(python, tmp_path / "elsewhere")


@pytest.mark.skipif(os.environ.get("HEADRACE_LONG") != "1", reason="downloads everything that headrace depends on")
def test_the_wheel_installs_into_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", str(wheel)], check=True, timeout=MINUTES)
    (tmp_path / "elsewhere").mkdir()
    trains(python, tmp_path / "elsewhere")
