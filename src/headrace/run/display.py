"""The progress display: a panel in a terminal, a line updated in place in a notebook, plain lines elsewhere."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from headrace.run.stop_rule import StopRule

PLAIN_SECONDS = 10.0
"""Seconds between two plain lines."""

STARTING = "starting: processes begin, programs are compiled"


class Display:
    """Shows each line of metrics; `wanted=None` means only in a terminal or notebook."""

    def __init__(self, title: str, goal: StopRule, wanted: bool | None = None):
        self.title = title
        self.goal = goal
        self.console = Console(stderr=True)
        self.silent = wanted is False
        self.live: Live | None = None
        self.line = None if self.silent or not in_notebook() else NotebookLine()
        self.printed = -PLAIN_SECONDS
        if not self.silent and self.line is None and self.console.is_terminal:
            self.live = Live(self._framed(STARTING), console=self.console)
            self.live.start(refresh=True)

    def say(self, notice: str) -> None:
        if not self.silent:
            self.console.print(f"headrace: {notice}", style="yellow", highlight=False, markup=False, soft_wrap=True)

    def show(self, line: dict[str, Any], best: float, last: bool = False) -> None:
        """Show where the run stands, or where it ended, which stays."""
        if self.live is not None:
            self.live.update(self._panel(line, best, last))
        elif self.line is not None:
            self.line.write(f"{self.title}: {log_line(line, self._way(line, last)).strip()}")
        elif not self.silent and (last or line["time/elapsed_s"] - self.printed >= PLAIN_SECONDS):
            self.printed = line["time/elapsed_s"]
            print(log_line(line, self._way(line, last)), file=sys.stderr, flush=True)

    def _way(self, line: dict[str, Any], last: bool) -> str:
        if not self.goal.bounded:
            return ""
        steps, elapsed = line["time/env_steps"], line["time/elapsed_s"]
        share = f"{self.goal.share(steps, elapsed):.0%}"
        left = None if last else self.goal.left(steps, elapsed, line["time/fps"])
        return share if left is None else f"{share}, {duration(left)} left"

    def _panel(self, line: dict[str, Any], best: float, last: bool) -> Panel:
        if not (line["time/env_steps"] or last):
            return self._framed(f"{STARTING}, {duration(line['time/elapsed_s'])}")
        grid = Table.grid(padding=(0, 2))
        for style in ("dim", "bold", "dim", "bold", "dim", "bold"):
            grid.add_column(style=style, justify="left" if style == "dim" else "right", min_width=8)
        cells = [
            ("env steps", number(line["time/env_steps"])),
            ("steps/s", number(line["time/fps"])),
            ("elapsed", duration(line["time/elapsed_s"])),
            ("updates", number(line["time/updates"])),
            ("learned/s", number(line["time/update_frames"] / max(line["time/elapsed_s"], 1e-9))),
            ("ep. length", number(line["rollout/ep_len_mean"])),
            ("return", number(line["rollout/ep_rew_mean"])),
            ("evaluated", number(line["eval/mean_reward"])),
            ("best", number(best if best > float("-inf") else None)),
        ]
        if "rate/per_insert" in line:
            cells += [
                ("reused", f"{number(line['rate/per_insert'])} times"),
                ("behind", f"{number(line.get('lag/actor_versions'))} versions"),
                ("at most", number(line.get("lag/actor_versions_max"))),
            ]
        for i in range(0, len(cells), 3):
            grid.add_row(*(part for pair in cells[i : i + 3] for part in pair))
        whole = Table.grid()
        whole.add_row(grid)
        busy = {name.removeprefix("busy/"): value for name, value in line.items() if name.startswith("busy/")}
        if busy:
            whole.add_row(
                "[dim]busy[/]  " + "  ".join(f"{name} [bold]{100 * value:.0f}[/] %" for name, value in busy.items())
            )
        if self.goal.bounded:
            share = self.goal.share(line["time/env_steps"], line["time/elapsed_s"])
            way = Table.grid(padding=(0, 2))
            way.add_row(ProgressBar(total=1.0, completed=share, width=40), self._way(line, last))
            whole.add_row(way)
        return self._framed(whole)

    def _framed(self, content: Any) -> Panel:
        return Panel(content, title=self.title, subtitle=str(self.goal), expand=False, border_style="cyan")

    def close(self) -> None:
        """Release the terminal; the last panel stays."""
        if self.live is not None:
            self.live.stop()


class NotebookLine:
    """An output of a notebook's cell that is updated in place."""

    handle: Any = None

    def write(self, text: str) -> None:
        display: Any = importlib.import_module("IPython.display").display  # always installed in a notebook
        held = {"text/plain": text}
        if self.handle is None:
            self.handle = display(held, raw=True, display_id=True)
        else:
            self.handle.update(held, raw=True)


def in_notebook() -> bool:
    """Whether the output goes to a notebook: to a kernel of IPython's, not to its terminal."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def log_line(line: dict[str, Any], way: str = "") -> str:
    """A line of metrics for a log."""
    return (
        f"{line['time/elapsed_s']:7.0f} s  steps {number(line['time/env_steps']):>7}  "
        f"{number(line['time/fps']):>6}/s  updates {number(line['time/updates']):>7}  "
        f"return {number(line['rollout/ep_rew_mean']):>8}  evaluated {number(line['eval/mean_reward']):>8}"
        + (f"  {way}" if way else "")
    )


def duration(seconds: float) -> str:
    """A time short enough to read at a glance."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def number(value: float | None) -> str:
    """A number short enough to read at a glance."""
    if value is None:
        return "-"
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    if abs(value) >= 1e4:
        return f"{value / 1e3:.1f}k"
    return f"{value:.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.1f}"
