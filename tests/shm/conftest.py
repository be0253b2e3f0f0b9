"""No process outlives the test that started it."""

from __future__ import annotations

import pytest

from .peers import STARTED


@pytest.fixture(autouse=True)
def _nothing_left_running():
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.wait()
        process.stdout.close()
