"""What a person sees while a run goes on: a live panel in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table

from headrace.services.goal import Goal

PLAIN_SECONDS = 10.0
"""Seconds between two plain lines."""


class Display:
    """Shows each line of metrics; `None` for `wanted` means if somebody watches."""

    def __init__(self, title: str, goal: Goal, wanted: bool | None = None):
        self.title = title
        self.goal = goal
        self.console = Console(stderr=True)
        self.silent = wanted is False
        self.live: Live | None = None
        self.printed = -PLAIN_SECONDS
        if not self.silent and self.console.is_terminal:
            self.live = Live(console=self.console, refresh_per_second=4, transient=True)
            self.live.start()

    def say(self, notice: str) -> None:
        """Tell a person something that happened."""
        if not self.silent:
            self.console.print(f"headrace: {notice}", style="yellow", highlight=False, markup=False, soft_wrap=True)

    def show(self, line: dict[str, Any], best: float) -> None:
        """Show where the run stands."""
        if self.live is not None:
            self.live.update(self._panel(line, best))
        elif not self.silent and line["time/elapsed_s"] - self.printed >= PLAIN_SECONDS:
            self.printed = line["time/elapsed_s"]
            print(plain(line), file=sys.stderr, flush=True)

    def _panel(self, line: dict[str, Any], best: float) -> Panel:
        grid = Table.grid(padding=(0, 2))
        for style in ("dim", "bold", "dim", "bold", "dim", "bold"):
            grid.add_column(style=style, justify="left" if style == "dim" else "right", min_width=9)
        cells = [
            ("env steps", number(line["time/env_steps"])),
            ("steps/s", number(line["time/fps"])),
            ("elapsed", f"{line['time/elapsed_s']:.0f} s"),
            ("updates", number(line["time/updates"])),
            ("frames/s", number(line["time/update_frames"] / max(line["time/elapsed_s"], 1e-9))),
            ("episode", number(line["rollout/ep_len_mean"])),
            ("return", number(line["rollout/ep_rew_mean"])),
            ("evaluated", number(line["eval/mean_reward"])),
            ("best", number(best if best > float("-inf") else None)),
        ]
        if "rate/per_insert" in line:
            cells += [
                ("per insert", number(line["rate/per_insert"])),
                ("lag", number(line.get("lag/actor_versions"))),
                ("lag max", number(line.get("lag/actor_versions_max"))),
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
            whole.add_row(ProgressBar(total=1.0, completed=share, width=66))
        return Panel(whole, title=self.title, subtitle=str(self.goal), expand=False, border_style="cyan")

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()


def plain(line: dict[str, Any]) -> str:
    """A line of metrics for a log."""
    return (
        f"{line['time/elapsed_s']:7.0f} s  steps {number(line['time/env_steps']):>7}  "
        f"{number(line['time/fps']):>6}/s  updates {number(line['time/updates']):>7}  "
        f"return {number(line['rollout/ep_rew_mean']):>8}  evaluated {number(line['eval/mean_reward']):>8}"
    )


def number(value: float | None) -> str:
    """A number short enough to read at a glance."""
    if value is None:
        return "-"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            scale = 1e3 if unit == "k" else size
            return f"{value / scale:.3g}{unit}" if unit != "k" else f"{value / 1e3:.1f}k"
    return f"{value:.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.1f}"
