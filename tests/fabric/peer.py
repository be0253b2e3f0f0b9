"""A process that runs one fragment of a plan over the fabric of these tests: `python peer.py ALGORITHM PORT`."""

from __future__ import annotations

import socket
import sys
import time

import matrix
import numpy as np
from tcp import Line, TcpFabric

from headrace.compile.cells import CellLayout, cell_shapes, make_cells
from headrace.envs import make
from headrace.exec.runner import Runner
from headrace.fabric.memory import local
from headrace.graph.sections import Sections
from headrace.runtimes import Options

SEED, PASSES = 3, 4


class Host:
    """The process that a fragment runs in."""

    def __init__(self, plan, algorithm, fragment, line, steps):
        layout = CellLayout(cell_shapes(algorithm, plan.graph))
        self.part, self.seed, self.options, self.who, self.last = plan.graph, SEED, Options(steps=steps), 0, None
        self.fabric = TcpFabric(local(Sections(plan), plan.graph, layout), line, fragment)
        start = make_cells(algorithm, plan.graph, SEED)
        for held, leaf in zip(self.fabric.begin, layout.flat(start), strict=True):
            held[...] = leaf
        self.beat = self.suspend_watchdog = self.begin = self.stepped = lambda: None
        self.check_divergence = lambda *report: None

    def over(self):
        self.fabric.look()
        return self.fabric.line.gone or bool(self.last is not None and self.last())

    def wait(self, ready):
        while not ready():
            if self.over():
                return False
            time.sleep(0.0005)
        return True


def run(name, fragment_id, connection, last=None):
    """Run one fragment of an algorithm's plan, and return the cells that it ends with."""
    plan = matrix.placed(name, "single_learner_coarse", staleness=0, replicas=1)
    algorithm, env = matrix.case(name, "single_learner_coarse")
    fragment = next(one for one in plan.fragments if one.id == fragment_id)
    host = Host(plan, algorithm, fragment, Line(connection), matrix.steps_for(plan, PASSES))
    host.last = None if last is None else lambda: last(host.fabric.ledger)
    runner = Runner(host, fragment, 0, lambda: [make(env, plan.graph.spec.num_envs)])
    runner.run()
    return [np.asarray(leaf) for leaf in runner.cells.flat], int(host.fabric.ledger.learned[0])


if __name__ == "__main__":
    run(sys.argv[1], "collect", socket.create_connection(("127.0.0.1", int(sys.argv[2]))))
