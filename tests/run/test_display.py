"""What a person sees: how far it is, words that explain themselves, and the end of it, which stays."""

from __future__ import annotations

import io
import re

import nbformat
import pytest
from nbclient import NotebookClient
from rich.console import Console

from headrace.cli import main
from headrace.run.display import Display, duration
from headrace.run.stop_rule import StopRule

LINE = {
    "time/elapsed_s": 20.0,
    "time/env_steps": 2_000,
    "time/fps": 100.0,
    "time/updates": 500,
    "time/update_frames": 128_000,
    "rollout/ep_rew_mean": -900.0,
    "rollout/ep_len_mean": 200.0,
    "eval/mean_reward": None,
    "rate/per_insert": 16.0,
    "lag/actor_versions": 1.24,
    "lag/actor_versions_max": 3.0,
    "busy/learner_0": 0.98,
}


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is written to a terminal of 100 columns from here on."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr("headrace.run.display.Console", lambda **options: console)
    return screen


def test_the_panel_says_how_far_it_is_and_how_long_it_will_take_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminal(monkeypatch)
    display = Display("sac on Pendulum-v1", StopRule(steps=10_000), None)
    assert "starting: processes begin, programs are compiled" in screen.getvalue()
    display.show(LINE | {"time/env_steps": 0, "time/elapsed_s": 4.0}, best=float("-inf"))
    display.live.refresh()
    assert "starting: processes begin, programs are compiled, 4 s" in screen.getvalue()
    display.show(LINE, best=float("-inf"))
    display.live.refresh()
    shown = screen.getvalue()
    assert "20%, 1 min 20 s left" in shown  # 8,000 steps at 100 in a second
    assert re.search(r"reused +16 times +behind +1\.2 versions +at most +3 ", shown)
    assert not re.search(r"\blag\b|per insert|\bK\b", shown)
    ended = LINE | {"time/env_steps": 10_000, "time/elapsed_s": 100.0, "eval/mean_reward": -150.0}
    display.show(ended, best=-150.0, last=True)
    display.close()
    after = screen.getvalue()[len(shown) :].replace("\x1b[?25h", "").rstrip()  # the cursor is shown again
    frame = after[after.rindex("╭") :]
    assert frame.endswith("╯")  # the last thing on the screen: nothing erases it
    assert "100%" in frame
    assert "left" not in frame
    assert "-150" in frame
    assert "\x1b[2K" not in frame


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        (StopRule(steps=10_000), "20%, 1 min 20 s left"),
        (StopRule(seconds=80.0), "25%, 1 min 0 s left"),
        (StopRule(steps=10_000, seconds=25.0), "80%, 5 s left"),
        (StopRule(steps=4_000_000, until=1.0), "0%, 11 h 6 min left"),
        (StopRule(until=1.0), ""),
    ],
)
def test_a_log_says_it_too_and_its_last_line_is_the_end(
    goal: StopRule, said: str, capsys: pytest.CaptureFixture
) -> None:
    display = Display("sac on Pendulum-v1", goal, None)
    for seconds in (20.0, 21.0, 22.0):
        display.show(LINE | {"time/elapsed_s": seconds}, best=0.0)
    display.show(LINE | {"time/elapsed_s": 23.0}, best=0.0, last=True)
    display.close()
    first, last = capsys.readouterr().err.splitlines()
    assert first.endswith(said)
    assert "left" not in last
    assert last.startswith("     23 s  steps    2000")


def test_durations_are_short() -> None:
    assert [duration(s) for s in (0.2, 59.4, 60, 3599, 3600, 90_000)] == [
        "0 s", "59 s", "1 min 0 s", "59 min 59 s", "1 h 0 min", "25 h 0 min"
    ]  # fmt: skip


def test_help_explains_the_words_of_the_panel(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    said = capsys.readouterr().out
    for word in ("env steps", "learned/s", "evaluated", "reused", "behind", "at most", "busy"):
        assert re.search(rf"^  .*{word}.*   ", said, flags=re.MULTILINE), word


CELL = """
from headrace.run.display import Display
from headrace.run.stop_rule import StopRule
display = Display("sac on Pendulum-v1", StopRule(steps=10_000))
for steps in (0, 2_000, 10_000):
    display.show({line} | {{"time/env_steps": steps}}, best=0.0, last=steps == 10_000)
display.close()
"""


def test_in_a_notebook_one_line_is_written_anew() -> None:
    """In a real kernel, whose cell has one output: the newest."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL.format(line=LINE))])
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data"
    assert output.data["text/plain"].startswith("sac on Pendulum-v1: 20 s  steps   10.0k")
    assert output.data["text/plain"].endswith("100%")
