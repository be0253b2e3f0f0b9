"""What goes wrong in a run costs what it must and no more: real processes, real signals."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace

import jax
import numpy as np
import pytest
from faulty_envs import Breaks
from torture import ALGORITHM, TIMEOUT, Torture, left_behind

import headrace
from headrace.errors import FragmentError
from headrace.runtimes import Options, Processes

ENV = "faulty_envs:Checked"
LONG = os.environ.get("HEADRACE_LONG") == "1"


def test_kills_cost_nothing_that_was_committed() -> None:
    tortured = Torture("desktop", seed=1)
    tortured.get_on(spectators=False)
    tortured.run(kills=6, pause=0.5, among="learner 0")
    tortured.get_on(spectators=False)
    found = tortured.end()
    del tortured
    assert left_behind() == []
    assert found["kills"] >= 6
    assert "learner 0" in found["killed"]
    assert found["rows checked at the end"] > 64
    assert found["rows compared across kills"] > 64
    for what in (
        "counters that went back",
        "rows lost or changed across kills",
        "rows torn",
        "rows that do not follow the one before",
    ):
        assert found[what] == 0, found
    assert found["optimiser steps at the end"] > found["optimiser steps before the first kill"] > 0


@pytest.fixture
def processes():
    """Makes a runtime, and closes it."""
    made: list[Processes] = []

    def make(policy: str, algorithm=ALGORITHM, env=ENV, replicas=None, **options) -> Processes:
        plan = headrace.plan(algorithm, env, policy, replicas=replicas)
        made.append(
            Processes(plan, algorithm, env, 0, Options(evaluate=False, **({"hang_seconds": TIMEOUT} | options)))
        )
        return made[-1]

    yield make
    for runtime in made:
        runtime.close()


def until(runtime: Processes, condition) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end
        runtime.advance()


def process_of(runtime: Processes, name: str):
    return next(process for process in runtime.processes if process.name == name)


def replaced(runtime: Processes, name: str, number: int) -> None:
    """Signal a process, and wait until another one is started in its place."""
    process = process_of(runtime, name)
    pid = process.handle.pid
    os.kill(pid, number)
    until(runtime, lambda: process.handle.pid != pid)


def test_a_stopped_sampler_is_replaced_and_a_killed_learner_goes_on_from_its_state(processes) -> None:
    runtime = processes("dual_device", restarts=1000)
    ledger, fabric = runtime.ledger, runtime.fabric
    first, second = runtime.sections.learning
    until(runtime, lambda: ledger.learned.min() >= 50)

    patient, began = runtime.options, time.monotonic()
    runtime.options = replace(patient, hang_seconds=2.0)
    replaced(runtime, "sampler 0", signal.SIGSTOP)
    assert time.monotonic() - began > 2.0
    runtime.options = patient  # on a busy machine the others may be as silent
    assert any("in sampler 0; it gave no sign of life for 2 s" in said for said in runtime.progress.notices)
    passes = runtime.progress.passes
    until(runtime, lambda: runtime.progress.passes > passes + 5)

    survivor = process_of(runtime, "learner 0").handle.pid
    runtime._pause_training()  # so that whatever changes is the successor's doing
    channels = [fabric.state(first), fabric.weights(first), fabric.state(second)]
    before, published, written = (
        [channel.read() for channel in channels],
        fabric.weights(second).version,
        ledger.passes.copy(),
    )
    replaced(runtime, "learner 1", signal.SIGKILL)
    until(runtime, lambda: fabric.weights(second).version > published)
    for (version, arrays), channel in zip(before, channels, strict=True):
        # The successor stands still too, and has then kept once more what it began with.
        assert channel.version == version or channel is channels[2]
        for held, array in zip(arrays, channel.read()[1], strict=True):
            np.testing.assert_array_equal(held, array)
    np.testing.assert_array_equal(ledger.passes, written)

    def steps() -> dict[str, int]:
        cells = runtime.cells()
        return {name: int(cells[name].updates) for name in ("critic", "actor")}

    kept, learned = steps(), ledger.learned.copy()
    assert min(kept.values()) >= 50
    until(runtime, lambda: (ledger.learned >= learned + 50).all())
    assert all(number >= kept[name] + 50 for name, number in steps().items())
    assert process_of(runtime, "learner 0").handle.pid == survivor


def test_a_learner_that_died_between_two_queues_goes_on(processes) -> None:
    algorithm = headrace.PPO(num_envs=2, horizon=16, minibatch_size=32, hidden=(16,))
    runtime = processes("desktop", algorithm, "CartPole-v1", replicas=2)
    ((first, second),) = runtime.fabric.store("rollout", 0).queues
    first.restart(3)
    second.restart(2)
    second.commit(version=0)  # learned from, and not given back
    runtime.ledger.learned[0] = 3
    runtime.ledger.begun[:] = runtime.ledger.passes[:] = 3
    until(runtime, lambda: runtime.progress.learned >= 6)
    runtime._pause_training()
    assert first.consumed == second.consumed == runtime.ledger.learned[0]


@pytest.mark.parametrize(
    ("policy", "killed"),
    [("multiple_learners", "loop 1"), ("single_learner_fine", "environment 0"), ("central", "applier 0")][
        : 3 if LONG else 2
    ],
)
def test_whoever_dies_in_a_replicated_loop_is_replaced(processes, policy: str, killed: str) -> None:
    algorithm = headrace.A3C(num_envs=4, horizon=8, hidden=(16,))
    runtime = processes(policy, algorithm, "CartPole-v1", replicas=1 if "fine" in policy else 2)
    until(runtime, lambda: runtime.progress.learned >= 10)
    before = runtime.updates()
    replaced(runtime, killed, signal.SIGKILL)
    learned = runtime.progress.learned
    until(runtime, lambda: runtime.progress.learned >= learned + 20)
    cells = runtime.cells()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(cells) if isinstance(leaf, jax.Array))
    assert int(cells["actor"].updates) > before
    runtime.state()  # those that learn as one still do


def test_too_many_kills_end_the_run(processes) -> None:
    runtime = processes("desktop", deaths=1)
    runtime.advance()
    for process in runtime.processes:
        process.kill()
    with pytest.raises(FragmentError, match=r"killed 2 times in a minute, the last the \w+ 0 by signal 9; look"):
        until(runtime, lambda: False)


def test_a_fragment_that_fails_by_itself_ends_the_run_the_third_time(processes, monkeypatch) -> None:
    monkeypatch.setattr("headrace.runtimes.supervisor.MINUTE", TIMEOUT)  # a busy machine may start fewer in a minute
    runtime = processes("desktop", Breaks(num_envs=2), "CartPole-v1")
    with pytest.raises(FragmentError, match=r"^learner 0 failed 3 times in a minute, at last: .*the learner broke"):
        until(runtime, lambda: False)
    assert sum("learner 0 failed" in said and "started anew" in said for said in runtime.progress.notices) == 2
