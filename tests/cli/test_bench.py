"""`headrace bench`: a row as soon as it is measured, what is being done meanwhile, and rows kept on Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import time
from typing import Any

import pytest

from headrace.cli import bench, main

TINY = ["num_envs=2", "horizon=16", "minibatch_size=32", "hidden=8"]
WORDS = ["bench", "ppo", "CartPole-v1", "--seconds", "0.2", "--set", *TINY]


def test_it_says_what_it_does_and_prints_the_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--policy", "single"]) == 0
    said = capsys.readouterr()
    head, row = said.out.splitlines()
    assert head.split("  ")[0] == "policy"
    assert re.fullmatch(r"single +[\d,]+ +[\d,]+  all \d+%", row)
    assert said.err.splitlines() == [
        "single: starting", "single: warming up for 0.2 s", "single: measuring for 0.2 s"
    ]  # fmt: skip


def test_rows_are_kept_on_an_interrupt(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    real = bench.try_out

    def first_only(plan: Any, *rest: Any, **options: Any) -> Any:
        if plan.policy != "single":
            printed.append(capsys.readouterr().out)
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does
            time.sleep(600)
        return real(plan, *rest, **options)

    monkeypatch.setattr(bench, "try_out", first_only)
    assert main(WORDS) == 130
    assert re.search(r"^single +[\d,]+ ", printed[0], flags=re.MULTILINE)  # before the next one had begun
    assert capsys.readouterr().err.endswith("headrace: interrupted; what was measured until then is above.\n")
