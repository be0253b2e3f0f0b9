"""A picture of learning curves: the interquartile mean over seeds, in the band of its interval."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.errors import UsageError
from headrace.extras import needed
from headrace.run.compare import SeedGroup

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's, which people with any colour vision can distinguish; without the yellow, which is faint on white."""

STYLES = ("-", "--", ":", "-.")
"""Used when the colours run out."""

AXES = {"steps": "environment steps", "seconds": "wall time (s)"}


def check_picture(file: str) -> None:
    """Refuse what cannot be drawn, before anything is read."""
    if Path(file).suffix not in (".png", ".svg"):
        raise UsageError(f"--out is a .png or .svg file, got '{file}'.")
    if not Path(file).resolve().parent.is_dir():
        raise UsageError(f"there is no folder '{Path(file).parent}'; make it, or choose another --out.")
    needed("matplotlib", "plot", f"--out {file}")


def draw(groups: Sequence[SeedGroup], file: str) -> None:
    """Write the picture: a row for each environment, against steps on the left and against time on the right."""
    figures: Any = importlib.import_module("matplotlib.figure")
    envs = list(dict.fromkeys(group.runs[0].config.env for group in groups))
    height = 3.4 * len(envs) + 0.35 + 0.22 * len(groups)
    figure = figures.Figure(figsize=(10, height), layout="constrained", dpi=150)
    panels = figure.subplots(len(envs), 2, squeeze=False, sharey="row")
    lines = []
    for i, group in enumerate(groups):
        look = {"color": COLOURS[i % len(COLOURS)], "linestyle": STYLES[i // len(COLOURS) % len(STYLES)]}
        row = panels[envs.index(group.runs[0].config.env)]
        for panel, axis in zip(row, AXES, strict=True):
            curve = group.curve(axis)
            single = curve.at[0] == curve.at[-1]
            panel.fill_between(curve.at, curve.low, curve.high, color=look["color"], alpha=0.18, linewidth=0)
            (line,) = panel.plot(curve.at, curve.middle, linewidth=1.8, marker="o" if single else None, **look)
        count = len(group.runs)
        line.set_label(f"{group.name}, {count} seed{'s' if count > 1 else ''}")
        lines.append(line)
    whence = "evaluated" if groups[0].runs[0].evaluated else "while training"
    for env, row in zip(envs, panels, strict=True):
        row[0].set_ylabel(f"return, {whence}")
        for panel, name in zip(row, AXES.values(), strict=True):
            panel.set_title(env, fontsize="medium")
            panel.set_xlabel(name)
            panel.grid(alpha=0.25)
            panel.spines[["top", "right"]].set_visible(False)
            panel.ticklabel_format(axis="x", style="sci", scilimits=(-3, 5), useMathText=True)
    title = "interquartile mean, band: 95 % bootstrap interval over seeds"
    figure.legend(handles=lines, loc="outside lower center", frameon=False, title=title)
    try:
        figure.savefig(file)
    except OSError as error:
        raise UsageError(f"'{file}' cannot be written ({error.strerror}); choose another --out.") from None
