"""plan: what is cut, what is fused, what is written down."""

from __future__ import annotations

import dataclasses
import json
from functools import cache

import pytest

from headrace.algorithms import PPO, SAC
from headrace.graph import Fragment, cut, fuse, trace, verify
from headrace.machine import Machine
from headrace.policies import POLICIES, single, single_learner_coarse
from headrace.types import Box, Discrete, EnvSpec

MACHINE = Machine(cores=4, memory=1 << 34, devices=("cpu:0",))
PENDULUM = EnvSpec("Pendulum-v1", Box((3,)), Box((1,), bounded=True), 6)
CARTPOLE = EnvSpec("CartPole-v1", Box((4,)), Discrete(2), 6)


@cache
def sac(**settings):
    return trace(SAC(**({"hidden": (8,), "num_envs": 6} | settings)), PENDULUM)


@cache
def ppo():
    return trace(PPO(hidden=(8,), num_envs=6, horizon=16, minibatch_size=32), CARTPOLE)


def cuts(plan):
    return [(c.source, c.target, c.what, c.channel, c.staleness) for c in plan.cuts]


def test_single_cuts_nothing():
    plan = single(sac(), MACHINE)
    assert plan.cuts == ()
    assert plan.fragments == (Fragment("all", tuple(n.id for n in sac().nodes)),)
    assert plan.learner is plan.collector


def test_coarse_sends_transitions_one_way_and_weights_the_other():
    plan = single_learner_coarse(sac(), MACHINE, 2)
    assert cuts(plan) == [
        ("learn_actor", "act", "actor", "latest", 1),
        ("replay.insert", "replay.sample", "transition", "table", 0),
    ]
    assert (plan.collector.id, plan.collector.replicas) == ("collect", 2)
    assert (plan.learner.id, plan.learner.replicas) == ("learn", 1)


def test_coarse_on_policy_is_lockstep():
    assert cuts(single_learner_coarse(ppo(), MACHINE, 2)) == [
        ("learn", "act", "actor", "latest", 0),
        ("learn", "act", "normaliser", "latest", 0),
        ("rollout.put", "rollout.take", "trajectory", "queue", 0),
    ]


def test_every_edge_between_two_fragments_is_cut_and_none_inside():
    fragments = (
        Fragment("env", ("env.observe", "env.step")),
        Fragment("rest", ("act", "replay.insert", "replay.sample", "learn_critic")),
        Fragment("actor", ("learn_actor",)),
    )
    plan = cut(sac(), "mine", fragments, staleness=3)
    for edge in sac().edges:
        crosses = plan.fragment_of[edge.source] is not plan.fragment_of[edge.target]
        found = plan.cut_of(edge)
        assert (found is not None) == crosses
        if found:
            channels = {"cell": ("latest", 3), "data": ("lockstep", 0)}
            drawn = edge.source == "replay.sample"  # whoever learns from the table draws from it
            assert (found.channel, found.staleness) == (("table", 0) if drawn else channels[edge.kind])
    assert len(plan.cuts) == sum(plan.cut_of(edge) is not None for edge in sac().edges) == 8


@pytest.mark.parametrize(
    ("per_insert", "batch_size", "repeat"),
    [(16.0, 256, 8), (1.0, 256, 2), (1.0, 128, 4), (0.5, 256, 1), (0.25, 256, 1), (3.0, 256, 6), (1000.0, 256, 8)],
)
def test_fuse_repeats_as_often_as_512_inserts_earn_but_at_most_8_times(per_insert, batch_size, repeat):
    plan = single_learner_coarse(sac(samples_per_insert=per_insert, batch_size=batch_size), MACHINE, 1)
    fused = fuse(plan)
    assert (fused.learner.repeat, fused.collector.repeat) == (repeat, 1)
    assert plan.learner.repeat == 1
    assert fused.cuts == plan.cuts


def test_fuse_leaves_on_policy_learning_alone():
    assert fuse(single(ppo(), MACHINE)).learner.repeat == 1


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("cores", [1, 2, 3, 5, 8, 64])
def test_without_being_asked_a_policy_makes_a_plan_that_verifies(policy, cores):
    machine = Machine(cores, 1 << 34, ("cpu:0",))
    for num_envs in (1, 6, 8):
        spec = dataclasses.replace(PENDULUM, num_envs=num_envs, pure=policy == "device_only")
        graph = trace(SAC(hidden=(4,), num_envs=num_envs), spec)
        plan = verify(fuse(POLICIES[policy](graph, machine, None)), machine)
        assert num_envs % plan.collector.replicas == 0


NODE = {"id", "kind", "name", "role", "reads", "writes", "fragment"}
EDGE = {"source", "target", "what", "shape", "dtype", "bytes", "channel", "staleness"}
FRAGMENT = {"id", "nodes", "replicas", "place", "device"}


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("graph", [sac, ppo])
def test_json_has_everything_and_survives_the_round_trip(policy, graph):
    if policy == "device_only" or (policy in ("dual_device", "central") and graph is ppo):
        pytest.skip("it refuses this loop")
    graph = graph()
    plan = fuse(POLICIES[policy](graph, MACHINE, None if policy == "single" else 2))
    plain = plan.to_json()
    text = json.dumps(plain, allow_nan=False)
    back = json.loads(text)
    assert json.dumps(back) == text
    assert all(set(node) >= NODE for node in back["nodes"])
    assert all(set(edge) >= EDGE for edge in back["edges"])
    assert all(set(fragment) >= FRAGMENT for fragment in back["fragments"])
    assert [node["id"] for node in back["nodes"]] == [n.id for n in graph.nodes]
    assert len(back["edges"]) == len(graph.edges)
    assert {node["id"]: node["fragment"] for node in back["nodes"]} == {
        node: fragment["id"] for fragment in back["fragments"] for node in fragment["nodes"]
    }
    gradients = sum(cut.channel in ("reduce", "central") for cut in plan.cuts)  # of a loop to itself, not an edge of it
    assert sum(edge["channel"] is not None for edge in back["edges"]) == len(plan.cuts) - gradients
    assert bool(gradients) == (back["gradients"] is not None)
    assert (back["policy"], back["num_envs"], back["algorithm"]) == (policy, 6, graph.algorithm)


def test_json_of_one_edge_to_the_letter():
    plain = single_learner_coarse(sac(), MACHINE, 2).to_json()
    edge = next(e for e in plain["edges"] if (e["source"], e["target"]) == ("env.observe", "act"))
    assert edge == {
        "source": "env.observe",
        "target": "act",
        "what": "obs",
        "kind": "data",
        "shape": [6, 3],
        "dtype": "float32",
        "bytes": 72,
        "channel": None,
        "staleness": 0,
    }
    stored = next(e for e in plain["edges"] if e["kind"] == "replay")
    assert stored["shape"] == {
        "obs": [6, 3],
        "action": [6, 1],
        "reward": [6],
        "terminated": [6],
        "truncated": [6],
        "next_obs": [6, 3],
    }
    assert (stored["channel"], stored["bytes"]) == ("table", 6 * 34)
