"""The one direction of imports, and what an algorithm may know."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import headrace
from headrace.algorithms import ALGORITHMS
from headrace.core.stage import Stage

ROOT = Path(headrace.__file__).parent

# What each part may import of headrace, besides itself. DESIGN section 8, drawn as a table.
BASE = {"errors", "extras", "types", "settings", "files", "version"}
EXECUTION = {"graph", "compile", "shm", "stores", "fabric", "exec"}
"""What runs a plan, below the runtimes."""

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "extras": {"errors"},
    "version": set(),
    "files": set(),
    "types": {"errors"},
    "settings": {"errors", "types"},
    "machine": {"errors", "types"},
    "core": BASE,
    "nets": BASE | {"core"},
    "envs": BASE | {"core"},
    "algorithms": {"core", "nets", "types"},
    "shm": {"errors", "types", "machine"},
    "stores": BASE | {"core", "shm", "machine"},
    "graph": BASE | {"core", "machine", "stores"},
    "compile": BASE | {"core", "graph", "stores"},
    "policies": BASE | {"core", "graph", "machine", "compile"},
    "draw": BASE | {"core", "graph", "machine"},
    "fabric": BASE | {"core", "envs", "graph", "compile", "shm", "stores"},
    "exec": BASE | {"core", "envs", "graph", "compile", "fabric", "shm", "stores"},
    "services": BASE | {"core", "envs", "graph", "compile", "machine"},
    "runtimes": BASE | {"core", "envs", "machine", "services"} | EXECUTION,
    "api": BASE | {"core", "envs", "graph", "compile", "draw", "machine", "algorithms", "policies"},
    "tune": BASE | {"core", "envs", "machine", "policies", "runtimes", "services", "api"} | EXECUTION,
    "run": BASE
    | {"core", "envs", "graph", "compile", "draw", "machine", "algorithms", "policies"}
    | {"services", "runtimes", "api", "tune"},
    "cli": BASE
    | {"core", "envs", "graph", "draw", "machine", "algorithms", "policies", "runtimes", "services", "api"}
    | {"tune", "run"},
}
ENVS = {"sac": "Pendulum-v1", "td3": "Pendulum-v1", "mappo": "pettingzoo:mpe2.simple_spread_v3"}
"""Where an algorithm does not learn CartPole-v1."""

DOORS = {"__init__", "__main__"}
MODULES = sorted(
    path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0].removesuffix(".py") not in DOORS
)


def imported(path: Path) -> set[str]:
    """The parts of headrace that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "headrace":
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("headrace.")}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert imported(path) - {part} <= ALLOWED[part]


@pytest.mark.parametrize("path", sorted((ROOT / "algorithms").glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_an_algorithm_imports_nothing_about_devices_or_processes(path: Path) -> None:
    allowed = {"__future__", "collections", "dataclasses", "typing", "math", "jax", "optax", "equinox", "headrace"}
    tree = ast.parse(path.read_text())
    modules = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    modules |= {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    assert {name.split(".")[0] for name in modules} <= allowed
    assert len(path.read_text().splitlines()) <= 215


def test_what_runs_algorithms_names_none_of_their_classes_stages_or_cells() -> None:
    names: set[str] = set()
    for name, kind in ALGORITHMS.items():
        graph = headrace.trace(kind(), ENVS.get(name, "CartPole-v1"))
        stages = {attribute for attribute, held in vars(kind).items() if isinstance(held, Stage)}
        names |= {kind.__name__, kind.config_type.__name__} | stages | set(graph.cells)
    # The stage every algorithm has, the name of a rate domain, and the end of an edge.
    names -= {"play", "learn", "target"}
    assert {"SAC", "learn_critic", "log_alpha"} <= names
    for part in ("policies", "draw", "runtimes", *EXECUTION):
        for path in (ROOT / part).glob("*.py"):
            tree = ast.parse(path.read_text())
            words = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
            words |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id[0].isupper()}
            assert not names & words, path


def test_nothing_is_unpickled() -> None:
    for path in ROOT.rglob("*.py"):
        text = path.read_text()
        assert "pickle" not in text.replace("unpickle", ""), path
        assert "marshal" not in text, path
