"""plan: what is cut, what is fused, what is written down."""

from __future__ import annotations

import dataclasses
import json
from functools import cache

import jax.numpy as jnp
import optax
import pytest

from headrace.algorithms import PPO, SAC, DQNConfig
from headrace.core import Algorithm, Env, Learned, Reads, Replay, Rollout, Tracked, Writes, stage
from headrace.errors import PlanError
from headrace.graph import Fragment, cut, fuse, trace, verify, with_computed, with_staleness
from headrace.machine import Machine
from headrace.policies import (
    POLICIES,
    dual_device,
    multiple_learners,
    single,
    single_learner_coarse,
    single_learner_fine,
)
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
    assert plan.learners == (plan.collector,)
    assert (plan.shares, plan.beside, plan.turns, plan.alone, plan.one_program) == (1, False, True, True, False)


def test_coarse_sends_transitions_one_way_and_weights_the_other():
    plan = single_learner_coarse(sac(), MACHINE, 2)
    assert cuts(plan) == [
        ("learn_actor", "act", "actor", "latest", 1),
        ("replay.insert", "replay.sample", "transition", "table", 0),
    ]
    assert (plan.collector.id, plan.collector.replicas) == ("collect", 2)
    (learner,) = plan.learners
    assert (learner.id, learner.replicas) == ("learn", 1)
    assert (plan.shares, plan.beside, plan.turns, plan.alone) == (1, True, False, False)


def test_coarse_on_policy_is_lockstep():
    plan = single_learner_coarse(ppo(), MACHINE, 2)
    assert (plan.beside, plan.turns) == (True, True)
    assert cuts(plan) == [
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
            channels = {"cell": ("latest", 3), "data": ("stream", 0)}
            assert (found.channel, found.staleness) == channels[edge.kind]
    assert len(plan.cuts) == sum(plan.cut_of(edge) is not None for edge in sac().edges) == 9
    streams = [cut[:3] for cut in cuts(plan) if cut[3] == "stream"]
    assert streams == [
        ("env.observe", "act", "obs"),
        ("act", "env.step", "action"),
        ("env.observe", "replay.insert", "transition"),
        ("env.step", "replay.insert", "transition"),
        ("replay.sample", "learn_actor", "batch"),
    ]


def test_what_draws_from_a_store_stands_with_each_who_learns_from_it():
    graph = sac()
    critic, actor = (with_computed(graph, [graph.by_id[name]]) for name in ("learn_critic", "learn_actor"))
    assert (critic, actor) == (("replay.sample", "learn_critic"), ("replay.sample", "learn_actor"))
    plan = dual_device(graph, MACHINE, 2)
    assert [fragment.nodes for fragment in plan.learners] == [critic, actor]
    assert plan.fragment_of["replay.sample"] is plan.learners[0]
    assert cuts(plan) == [
        ("learn_actor", "act", "actor", "latest", 2),
        ("learn_actor", "learn_critic", "actor", "latest", 2),
        ("learn_actor", "learn_critic", "log_alpha", "latest", 2),
        ("learn_critic", "learn_actor", "critic", "latest", 2),
        ("replay.insert", "replay.sample", "transition", "table", 0),
    ]
    assert (plan.beside, plan.turns) == (True, False)


def test_replicas_of_the_whole_loop_are_its_shares():
    plan = multiple_learners(sac(), MACHINE, 3)
    assert (plan.shares, plan.gradients, plan.beside, plan.alone) == (3, "reduce", False, False)
    assert plan.learners == (plan.collector,)


def test_environments_apart_from_what_acts_cross_at_every_step():
    plan = single_learner_fine(sac(), MACHINE, 3)
    assert (plan.collector.id, plan.collector.replicas, plan.shares) == ("environments", 3, 1)
    assert (plan.beside, plan.turns) == (False, True)
    assert [cut[:4] for cut in cuts(plan)] == [
        ("env.observe", "act", "obs", "stream"),
        ("act", "env.step", "action", "stream"),
        ("env.observe", "replay.insert", "transition", "stream"),
        ("env.step", "replay.insert", "transition", "stream"),
    ]


def test_another_staleness_holds_wherever_a_cell_may_be_read_stale():
    plan = single_learner_coarse(sac(), MACHINE, 2)
    assert [cut[3:] for cut in cuts(with_staleness(plan, 5))] == [("latest", 5), ("table", 0)]
    assert with_staleness(plan, 0).turns
    with pytest.raises(PlanError, match=r"^policy 'single' has every cell read as it was last written, so staleness 2"):
        with_staleness(single(sac(), MACHINE), 2)
    assert with_staleness(single(sac(), MACHINE), 0).cuts == ()


@pytest.mark.parametrize(
    ("per_insert", "batch_size", "repeat"),
    [(16.0, 256, 8), (1.0, 256, 2), (1.0, 128, 4), (0.5, 256, 1), (0.25, 256, 1), (3.0, 256, 6), (1000.0, 256, 8)],
)
def test_fuse_repeats_as_often_as_512_inserts_earn_but_at_most_8_times(per_insert, batch_size, repeat):
    plan = single_learner_coarse(sac(samples_per_insert=per_insert, batch_size=batch_size), MACHINE, 1)
    fused = fuse(plan)
    assert [fragment.repeat for fragment in fused.learners] == [repeat]
    assert fused.collector.repeat == 1
    assert [fragment.repeat for fragment in plan.learners] == [1]
    assert fused.cuts == plan.cuts


def test_fuse_leaves_on_policy_learning_alone():
    assert [fragment.repeat for fragment in fuse(single(ppo(), MACHINE)).learners] == [1]


class Rates(Algorithm[DQNConfig]):
    """Three stages that learn at rates of their own: two replay, one takes each trajectory once."""

    def cells(self, spec, key):
        return {name: Learned(jnp.zeros((4, 2)), optax.sgd(0.1)) for name in "abc"} | {"unused": Tracked(jnp.zeros(()))}

    @stage
    def act(self, obs, a: Reads):
        return jnp.argmax(obs @ a, axis=-1).astype(jnp.int32)

    play = act

    @stage
    def learn_a(self, batch, a: Writes):
        return a, {}

    @stage
    def learn_b(self, batch, b: Writes):
        return b, {}

    @stage
    def learn_c(self, trajectory, c: Writes):
        return c, {}

    def loop(self, env: Env, replay: Replay, other: Replay, rollout: Rollout):
        steps = env.unroll(self.act, steps=4)
        replay.insert(steps)
        other.insert(steps)
        rollout.put(steps)
        self.learn_a(replay.sample(256, per_insert=16))
        self.learn_b(other.sample(256, per_insert=3))
        self.learn_c(rollout.take())


def test_fuse_repeats_as_the_slowest_domain_earns_and_leaves_the_others_alone():
    graph = trace(Rates(num_envs=6), CARTPOLE)
    collect = tuple(node.id for node in graph.where(domain="collect"))
    apart = [Fragment(f"learn_{i}", tuple(n.id for n in domain.nodes)) for i, domain in enumerate(graph.domains)]
    plan = verify(fuse(cut(graph, "mine", (Fragment("collect", collect), *apart), staleness=0)), MACHINE)
    assert [fragment.repeat for fragment in plan.fragments] == [1, 6, 6, 1]
    assert plan.learners == plan.fragments[1:]
    together = fuse(single_learner_coarse(graph, MACHINE, 2))
    assert [fragment.repeat for fragment in together.fragments] == [1, 6]
    assert {cut.channel: cut.staleness for cut in together.cuts} == {"latest": 0, "table": 0, "queue": 0}


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
    first = {node: fragment["id"] for fragment in reversed(back["fragments"]) for node in fragment["nodes"]}
    assert {node["id"]: node["fragment"] for node in back["nodes"]} == first
    gradients = sum(cut.channel in ("reduce", "apply") for cut in plan.cuts)  # of a loop to itself, not an edge of it
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
