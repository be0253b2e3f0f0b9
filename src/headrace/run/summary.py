"""A run in a line, or as a small table of a notebook."""

from __future__ import annotations

from html import escape
from pathlib import Path

from headrace.run.record import read_metrics


def facts(path: Path, algorithm: str, env: str, seed: int) -> dict[str, str]:
    """The main facts about a run."""
    found = {"run": str(path), "algorithm": algorithm, "environment": env, "seed": str(seed)}
    lines = read_metrics(path) if (path / "metrics.jsonl").exists() else []
    if lines:
        last = lines[-1]
        found["steps"] = f"{last['time/env_steps']:,}"
        found["time"] = f"{last['time/elapsed_s']:,.0f} s"
        score = last.get("eval/mean_reward")
        found["return"] = "not evaluated" if score is None else f"{score:.1f}"
    return found


def as_line(facts: dict[str, str]) -> str:
    """`Run('runs/...': sac on Pendulum-v1, seed 0, 5,000 steps, 12 s, return -150.3)`"""
    words = [f"{facts['algorithm']} on {facts['environment']}", f"seed {facts['seed']}"]
    if "steps" in facts:
        words += [f"{facts['steps']} steps", facts["time"], f"return {facts['return']}"]
    return f"Run({facts['run']!r}: {', '.join(words)})"


def as_html(facts: dict[str, str]) -> str:
    """A table of two columns."""
    rows = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
    return f"<table>{''.join(rows)}</table>"
