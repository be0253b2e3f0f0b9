"""verify: one sentence for each rule, and exactly the partitions that keep the environment whole pass."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from functools import cache

import jax.numpy as jnp
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.algorithms import PPO, SAC
from headrace.config import ReplayConfig
from headrace.core import Algorithm, Env, Learned, Reads, Replay, Writes, stage
from headrace.errors import PlanError
from headrace.graph import Cut, Fragment, cut, trace, verify
from headrace.machine import Machine
from headrace.policies import desktop, dual_device
from headrace.types import Box, Discrete, EnvSpec

MACHINE = Machine(cores=4, memory=1 << 34, devices=("cpu:0", "cpu:1"))


@cache
def graph():
    return trace(SAC(hidden=(8,), num_envs=6), EnvSpec("Pendulum-v1", Box((3,)), Box((1,), bounded=True), 6))


@cache
def on_policy():
    algorithm = PPO(hidden=(8,), num_envs=6, horizon=16, minibatch_size=32)
    return trace(algorithm, EnvSpec("CartPole-v1", Box((4,)), Discrete(2), 6))


COLLECT = ("env.observe", "act", "env.step", "replay.insert")
LEARN = ("replay.sample", "learn_critic", "learn_actor")


def plan(*fragments):
    return cut(graph(), "mine", fragments, staleness=1)


@pytest.mark.parametrize(
    ("fragments", "sentence"),
    [
        (
            (Fragment("a", COLLECT), Fragment("b", LEARN[:-1])),
            r"^policy 'mine' leaves out learn_actor; place every node in a fragment\.$",
        ),
        (
            (Fragment("a", COLLECT[1:]), Fragment("b", LEARN[1:])),
            r"leaves out env\.observe, replay\.sample; place every node",
        ),
        (
            (Fragment("a", COLLECT), Fragment("b", (*LEARN, "act"))),
            r"^policy 'mine' places 'act' 2 times; place each node once\.$",
        ),
        (
            (Fragment("a", COLLECT), Fragment("b", (*LEARN, "learn_both"))),
            r"^policy 'mine' places 'learn_both', which this graph does not have; place its nodes\.$",
        ),
        (
            (Fragment("a", ("env.observe", "act")), Fragment("b", ("env.step", "replay.insert", *LEARN))),
            r"^policy 'mine' cuts env\.step from env\.observe, but an environment's state cannot be sent; "
            r"keep them in one fragment\.$",
        ),
        (
            (Fragment("a", COLLECT), Fragment("b", LEARN, device="cuda:0")),
            r"^fragment 'b' is placed on device 'cuda:0', but this machine has cpu:0, cpu:1; choose one of these\.$",
        ),
        (
            (Fragment("a", COLLECT, replicas=7), Fragment("b", LEARN)),
            r"^policy 'mine' asks for 7 replicas of 6 environment\(s\); "
            r"use 1 to 6 replicas or set num_envs to at least 7\.$",
        ),
        ((Fragment("a", COLLECT, replicas=0), Fragment("b", LEARN)), r"asks for 0 replicas of 6 environment"),
        (
            (Fragment("a", COLLECT, replicas=4), Fragment("b", LEARN)),
            r"^num_envs=6 cannot be divided among 4 replicas; set num_envs to a multiple of 4, or replicas to "
            r"one of 1, 2, 3, 6\.$",
        ),
        (
            (Fragment("a", COLLECT), Fragment("b", LEARN, replicas=2)),
            r"^policy 'mine' gives fragment 'b' 2 replicas, each of which would write the cell 'critic'; "
            r"reduce its gradients or use one replica\.$",
        ),
        ((Fragment("a", COLLECT), Fragment("b", LEARN, replicas=0)), r"'b'|replicas"),
        ((Fragment("same", COLLECT), Fragment("same", LEARN)), r"'same'"),
    ],
)
def test_each_rule_refuses_with_a_sentence(fragments, sentence):
    with pytest.raises(PlanError, match=sentence):
        verify(plan(*fragments), MACHINE)


def test_an_edge_without_a_channel_is_refused():
    whole = plan(Fragment("a", COLLECT), Fragment("b", LEARN))
    verify(whole, MACHINE)
    for missing in whole.cuts:
        cuts = tuple(cut for cut in whole.cuts if cut is not missing)
        with pytest.raises(PlanError, match=f"has no channel for '{missing.what}' from {missing.source}"):
            verify(dataclasses.replace(whole, cuts=cuts), MACHINE)


class Featured(Algorithm[ReplayConfig]):
    """Two stages that learn from what a third computes."""

    def cells(self, spec, key):
        return {name: Learned(jnp.zeros(()), optax.sgd(0.1)) for name in ("actor", "critic")}

    @stage
    def act(self, obs, actor: Reads):
        return jnp.zeros(obs.shape[0], jnp.int32)

    play = act

    @stage
    def features(self, batch):
        return batch.reward * 2

    @stage
    def learn_critic(self, seen, critic: Writes):
        return critic, {}

    @stage
    def learn_actor(self, seen, actor: Writes):
        return actor, {}

    def loop(self, env: Env, replay: Replay):
        replay.insert(env.step(self.act(env.observe())))
        seen = self.features(replay.sample(8))
        self.learn_critic(seen)
        self.learn_actor(seen)


def test_learning_apart_from_what_another_stage_computes_is_refused():
    graph = trace(Featured(), EnvSpec("CartPole-v1", Box((4,)), Discrete(2), 6))
    verify(desktop(graph, MACHINE), MACHINE)
    with pytest.raises(
        PlanError, match=r"learns in features and learn_actor apart, but the second needs what the first"
    ):
        verify(dual_device(graph, MACHINE), MACHINE)


def test_on_policy_learning_behind_a_stale_channel_is_refused():
    fragments = (
        Fragment("collect", tuple(n.id for n in on_policy().where(domain="collect"))),
        Fragment("learn", tuple(n.id for n in on_policy().where(domain="learn"))),
    )
    verify(cut(on_policy(), "mine", fragments, staleness=0), MACHINE)
    with pytest.raises(PlanError, match="stale"):
        verify(cut(on_policy(), "mine", fragments, staleness=2), MACHINE)


def test_replicas_whose_gradients_are_reduced_may_write():
    everything = plan(Fragment("all", (*COLLECT, *LEARN), replicas=2))
    reduced = tuple(Cut(node, node, "gradients", "reduce", 0) for node in ("learn_critic", "learn_actor"))
    assert verify(dataclasses.replace(everything, cuts=reduced), MACHINE).cuts == reduced
    with pytest.raises(PlanError, match="would write the cell 'actor'"):
        verify(dataclasses.replace(everything, cuts=reduced[:1]), MACHINE)


def test_a_good_plan_comes_back_as_it_is():
    good = plan(Fragment("a", COLLECT, replicas=3, device="cpu:1"), Fragment("b", LEARN))
    assert verify(good, MACHINE) is good


ids = (*COLLECT, *LEARN)
homes = st.lists(st.integers(0, 2), max_size=2).map(tuple)


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            node: st.one_of(st.integers(0, 2).map(lambda i: (i,)), st.integers(0, 2).map(lambda i: (i,)), homes)
            for node in ids
        }
    )
)
def test_exactly_the_partitions_that_keep_the_environment_whole_pass(assignment):
    fragments = tuple(Fragment(f"f{i}", tuple(n for n in ids for home in assignment[n] if home == i)) for i in range(3))
    partition = all(len(homes) == 1 for homes in assignment.values())
    whole = assignment["env.observe"] == assignment["env.step"]
    refusal = nullcontext() if partition and whole else pytest.raises(PlanError)
    with refusal:
        verify(plan(*fragments), MACHINE)


@settings(max_examples=60, deadline=None)
@given(st.integers(-1, 12))
def test_replicas_pass_exactly_when_they_divide_the_environments(replicas):
    asked = plan(Fragment("a", COLLECT, replicas=replicas), Fragment("b", LEARN))
    if replicas >= 1 and 6 % replicas == 0:
        assert verify(asked, MACHINE).collector.replicas == replicas
    else:
        with pytest.raises(PlanError):
            verify(asked, MACHINE)
