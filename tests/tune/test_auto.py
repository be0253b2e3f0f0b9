"""`auto`: what it predicts follows from what is dear, and it tries what it predicts."""

from __future__ import annotations

import os

import pytest

import headrace
from headrace.errors import PlanError
from headrace.graph import Graph
from headrace.machine import Machine
from headrace.tune import auto
from headrace.tune.model import Costs

CHEAP, DEAR = 2e-6, 500e-6


MACHINE = Machine(2, 1 << 34, ("cpu:0",))


def measured(graph: Graph, step: float, act: float, learn: float, wide: float) -> Costs:
    """Seconds of a core for one environment step: to `step`, to `act`, to `learn`; to learn with both cores, `wide`."""
    domain, envs = graph.domains[0], graph.spec.num_envs
    size = domain.frames if domain.fused else domain.collected
    collect = {n: graph.steps * (n * step + envs * act) for n in (envs // 2, envs)}
    each = {1: learn, 2: wide}
    return Costs(collect, {("all", k, 1, size): each[k] / float(domain.rate) for k in each}, whole=True)


def expected(algorithm: headrace.Algorithm, env: str, policy: str, **costs: float) -> float:
    plan = headrace.plan(algorithm, env, policy)
    return auto.predict(plan, measured(plan.graph, **costs) if costs else Costs({}, {}), MACHINE)[0]


def test_nothing_beats_one_process_where_everything_is_cheap() -> None:
    costs = {"step": CHEAP, "act": CHEAP, "learn": CHEAP, "wide": CHEAP}
    speeds = {
        policy: expected(headrace.PPO(num_envs=8, horizon=16, minibatch_size=32), "CartPole-v1", policy, **costs)
        for policy in ("single", "single_learner_coarse", "single_learner_fine", "multiple_learners", "environments")
    }
    assert max(speeds, key=lambda policy: speeds[policy]) == "single"


def test_dear_environments_are_worth_processes_of_their_own() -> None:
    costs = {"step": DEAR, "act": CHEAP, "learn": CHEAP, "wide": CHEAP}
    plan = headrace.PPO()
    assert expected(plan, "CartPole-v1", "desktop", **costs) > 1.5 * expected(plan, "CartPole-v1", "single", **costs)


def test_dear_learning_is_worth_two_learners() -> None:
    costs = {"step": CHEAP, "act": CHEAP, "learn": DEAR, "wide": DEAR}
    speeds = {
        policy: expected(headrace.SAC(), "Pendulum-v1", policy, **costs)
        for policy in ("single", "desktop", "dual_device")
    }
    assert max(speeds, key=lambda policy: speeds[policy]) == "dual_device"


def test_a_jax_environment_is_one_program() -> None:
    algorithm = headrace.PPO()
    assert expected(algorithm, "gymnax:CartPole-v1", "single") > expected(algorithm, "gymnax:CartPole-v1", "desktop")


@pytest.mark.skipif(os.environ.get("HEADRACE_LONG") != "1", reason="half a minute: HEADRACE_LONG=1 has it")
def test_it_tries_the_best_few_and_keeps_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"step": CHEAP, "act": CHEAP, "learn": DEAR, "wide": DEAR}
    algorithm = headrace.SAC(num_envs=4, warmup=64, batch_size=32, hidden=(16,), replay_capacity=2000)
    found = measured(headrace.trace(algorithm, "Pendulum-v1"), **costs)
    monkeypatch.setattr(auto, "node_costs", lambda *_: found)
    said: list[str] = []
    chosen = auto.choose(algorithm, "Pendulum-v1", seconds=0.5, say=said.append)
    tried = [line.split()[2] for line in said if line.startswith("auto: trying")]
    assert auto.FEWEST <= len(tried) <= auto.MOST
    assert chosen in tried
    table = said[-2].splitlines()
    assert {row.split()[0] for row in table[1:]} == set(auto.POLICIES)
    assert "refused" in next(row for row in table if row.startswith("device_only"))


def test_what_no_policy_can_do_is_refused_before_anything_is_measured() -> None:
    with pytest.raises(PlanError, match="no policy fits; single was refused"):
        auto.choose(headrace.PPO(), "CartPole-v1", replicas=0, say=lambda text: pytest.fail(text))
    with pytest.raises(PlanError, match="staleness must be at least 0"):
        auto.choose(headrace.PPO(), "CartPole-v1", staleness=-1, say=lambda text: pytest.fail(text))
