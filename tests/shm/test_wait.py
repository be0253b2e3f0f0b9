"""wait: ends when ready, with the peer, or in time."""

from __future__ import annotations

import time

import pytest

from headrace.errors import HeadraceError, OverdueError, PeerGone
from headrace.shm.wait import wait


def test_what_is_ready_is_not_waited_for_and_its_peer_not_asked_about():
    wait(lambda: True, 0.0, lambda: pytest.fail("asked"))


def test_it_returns_when_ready():
    looks = iter([False] * 60 + [True])
    wait(lambda: next(looks), 600.0, lambda: True)
    assert next(looks, "none") == "none"


def test_it_ends_with_the_peer():
    lives = iter([True] * 20 + [False])
    with pytest.raises(PeerGone, match="the server has ended"):
        wait(lambda: False, 600.0, lambda: next(lives), "the server")
    assert next(lives, "none") == "none"


def test_what_a_peer_finished_before_its_end_counts():
    done = []

    def ends_after_finishing():
        done.append(True)
        return False

    wait(lambda: bool(done), 5.0, ends_after_finishing)


def test_it_ends_in_time():
    start = time.monotonic()
    with pytest.raises(OverdueError, match=r"waited 0\.05 s for the server"):
        wait(lambda: False, 0.05, lambda: True, "the server")
    assert 0.05 <= time.monotonic() - start < 600.0
    assert issubclass(OverdueError, TimeoutError)
    assert issubclass(OverdueError, HeadraceError)
