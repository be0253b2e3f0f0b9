"""The next fabric can be any: two processes that share no memory run SAC and PPO unchanged, to the bit."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import headrace

HERE = Path(__file__).parent
CONFORMANCE = HERE.parent / "conformance"
sys.path[:0] = [str(HERE), str(CONFORMANCE)]

import matrix  # noqa: E402
import peer  # noqa: E402

TIMEOUT = 600.0


@pytest.mark.parametrize("name", ["sac", "ppo"])
def test_a_fabric_over_tcp_runs_an_algorithm_to_the_bits_of_inline(name: str) -> None:
    plan = matrix.placed(name, "single_learner_coarse", staleness=0, replicas=1)
    steps, domain = matrix.steps_for(plan, peer.PASSES), plan.graph.domains[0]
    repeat = plan.learners[0].repeat if domain.fused else 1
    due = domain.due(steps // plan.graph.collected) // repeat * repeat
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(TIMEOUT)
        path = os.pathsep.join([str(Path(headrace.__file__).parents[1]), str(HERE), str(CONFORMANCE)])
        words = [sys.executable, str(HERE / "peer.py"), name, str(server.getsockname()[1])]
        other = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": path})
        try:
            connection, _ = server.accept()
            with connection:
                theirs, learned = peer.run(name, "learn", connection, lambda ledger: ledger.learned[0] >= due)
                connection.shutdown(socket.SHUT_RDWR)  # a thread reads from it, which closing alone would wait for
            assert learned == due
            assert other.wait(TIMEOUT) == 0
        finally:
            other.kill()
            other.wait()
    same, ours = matrix.learned(name, plan, "single_learner_coarse", "inline", passes=due)
    assert same == due
    # In the order of cells, which is that of `arrays`.
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_fabric_is_small() -> None:
    assert len((HERE / "tcp.py").read_text().splitlines()) < 150
