"""verify: one sentence for each rule, and exactly the partitions that are run as drawn pass."""

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
from headrace.core import Algorithm, Env, Learned, Reads, Replay, Tracked, Writes, stage
from headrace.errors import PlanError
from headrace.exec.pace import Pace
from headrace.graph import Cut, Fragment, cut, trace, verify
from headrace.graph.sections import Sections
from headrace.machine import Machine
from headrace.policies import central, desktop, device_only, dual_device, multiple_learners, single
from headrace.settings.config import ReplayConfig
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


class Told(Featured):
    """The second learns from what the first one measures."""

    @stage
    def learn_critic(self, seen, critic: Writes):
        return critic, {"error": seen.mean()}

    def loop(self, env: Env, replay: Replay):
        replay.insert(env.step(self.act(env.observe())))
        seen = self.features(replay.sample(8))
        self.learn_actor(self.learn_critic(seen)["error"])


def featured(kind=Featured):
    return trace(kind(num_envs=6), EnvSpec("CartPole-v1", Box((4,)), Discrete(2), 6))


def test_what_two_learners_need_is_computed_by_both():
    made = verify(dual_device(featured(), MACHINE), MACHINE)
    _, rest, acting = made.fragments
    assert rest.nodes == ("replay.sample", "features", "learn_critic")
    assert acting.nodes == ("replay.sample", "features", "learn_actor")  # each draws by itself
    crossing = {(cut.source, cut.target, cut.channel) for cut in made.cuts}
    assert crossing == {
        ("replay.insert", "replay.sample", "table"),
        ("learn_actor", "act", "latest"),
    }
    assert made.fragment_of["features"] is rest


def test_what_a_stage_computes_for_one_that_learns_apart_is_carried():
    collect, *learn = COLLECT, ("replay.sample", "features", "learn_critic"), ("learn_actor",)
    fragments = [Fragment(str(i), nodes) for i, nodes in enumerate((collect, *learn))]
    made = verify(cut(featured(), "mine", tuple(fragments), staleness=1), MACHINE)
    assert {(cut.source, cut.target, cut.what, cut.channel) for cut in made.cuts} == {
        ("replay.insert", "replay.sample", "transition", "table"),
        ("features", "learn_actor", "seen", "stream"),
        ("learn_actor", "act", "actor", "latest"),
    }
    measured = verify(cut(featured(Told), "mine", tuple(fragments), staleness=1), MACHINE)
    assert ("learn_critic", "learn_actor", "stream") in {(cut.source, cut.target, cut.channel) for cut in measured.cuts}
    with pytest.raises(
        PlanError, match=r"stage 'learn_actor' of told takes what stage 'learn_critic' measures; use desk"
    ):
        dual_device(featured(Told), MACHINE)


def test_a_pure_stage_stands_once_in_a_fragment_and_others_once_at_all():
    learn = ("replay.sample", "features", "features", "learn_critic", "learn_actor")
    with pytest.raises(PlanError, match=r"places 'features' 2 times"):
        verify(cut(featured(), "mine", (Fragment("a", COLLECT), Fragment("b", learn)), staleness=1), MACHINE)


class PerEnvironment(Featured):
    """A cell with a number for each environment."""

    def cells(self, spec, key):
        return super().cells(spec, key) | {"sums": Tracked(jnp.zeros(spec.num_envs))}


class ActsPerEnvironment(PerEnvironment):
    @stage
    def act(self, obs, actor: Reads, sums: Reads):
        return jnp.where(obs[:, 0] > sums, 1, 0).astype(jnp.int32)


ALL = r"gives each of 2 replicas 3 of the 6 environments, but all of them share the cell 'sums' of \w+, which is "
ALL += r"float32\[6\] for all environments and float32\[3\] for those of one; keep num_envs out of it, or use single\.$"


def test_a_cell_with_an_axis_of_environments_is_refused_where_replicas_have_a_part_of_them():
    machine = dataclasses.replace(MACHINE, devices=("cpu:0", "cpu:1"))
    whole = featured(PerEnvironment)
    verify(single(whole, machine), machine)
    verify(desktop(whole, machine, 2), machine)  # whoever acts does not read it
    pure = trace(PerEnvironment(num_envs=6), dataclasses.replace(whole.spec, pure=True))
    for policy, graph in ((multiple_learners, whole), (central, whole), (device_only, pure)):
        with pytest.raises(PlanError, match=ALL):
            verify(policy(graph, machine, 2), machine)
    with pytest.raises(PlanError, match=ALL):
        verify(desktop(featured(ActsPerEnvironment), machine, 2), machine)


EVERYTHING = (*COLLECT, *LEARN)
REDUCED = tuple(Cut(node, node, "gradients", "reduce", 0) for node in ("learn_critic", "learn_actor"))
ENVS = ("env.observe", "env.step")


@pytest.mark.parametrize(
    ("fragments", "crossing"),
    [
        (
            (Fragment("a", (*ENVS, "replay.insert")), Fragment("act", ("act",)), Fragment("b", LEARN)),
            {
                ("env.observe", "act", "stream"),
                ("act", "env.step", "stream"),
                ("act", "replay.insert", "stream"),
                ("learn_actor", "act", "latest"),
                ("replay.insert", "replay.sample", "table"),
            },
        ),
        (
            (Fragment("envs", ENVS), Fragment("act", COLLECT[1::2], replicas=2), Fragment("b", LEARN)),
            {
                ("env.observe", "act", "stream"),
                ("act", "env.step", "stream"),
                ("env.observe", "replay.insert", "stream"),
                ("env.step", "replay.insert", "stream"),
                ("learn_actor", "act", "latest"),
                ("replay.insert", "replay.sample", "table"),
            },
        ),
        (
            (Fragment("a", COLLECT), Fragment("draw", LEARN[:1]), Fragment("b", LEARN[1:])),
            {
                ("replay.sample", "learn_critic", "stream"),
                ("replay.sample", "learn_actor", "stream"),
                ("learn_actor", "act", "latest"),
                ("replay.insert", "replay.sample", "table"),
            },
        ),
        (
            (Fragment("a", (*COLLECT, "learn_actor")), Fragment("b", LEARN[:2])),
            {
                ("replay.sample", "learn_actor", "stream"),
                ("learn_actor", "learn_critic", "latest"),
                ("learn_critic", "learn_actor", "latest"),
                ("replay.insert", "replay.sample", "table"),
            },
        ),
        (
            (Fragment("envs", (*ENVS, *LEARN)), Fragment("act", COLLECT[1::2])),
            {
                ("env.observe", "act", "stream"),
                ("act", "env.step", "stream"),
                ("env.observe", "replay.insert", "stream"),
                ("env.step", "replay.insert", "stream"),
                ("learn_actor", "act", "latest"),
                ("replay.insert", "replay.sample", "table"),
            },
        ),
    ],
)
def test_any_partition_runs_as_drawn_with_a_channel_for_what_crosses(fragments, crossing):
    made = verify(plan(*fragments), MACHINE)
    assert {(cut.source, cut.target, cut.channel) for cut in made.cuts} == crossing


class Scaled(Featured):
    """Acts by one number of all environments together."""

    @stage
    def scale(self, obs):
        return obs.mean()

    @stage
    def act_scaled(self, obs, scale, actor: Reads):
        return (obs[:, 0] > scale).astype(jnp.int32)

    def loop(self, env: Env, replay: Replay):
        obs = env.observe()
        replay.insert(env.step(self.act_scaled(obs, self.scale(obs))))
        seen = self.features(replay.sample(8))
        self.learn_critic(seen)
        self.learn_actor(seen)


def scaled(scale=1, act=1):
    """A plan with so many replicas of what computes a number, and of what acts by it."""
    graph = featured(Scaled)
    learn = tuple(node.id for node in graph.where(domain="learn"))
    fragments = (
        Fragment("envs", ENVS, replicas=2),
        Fragment("scale", ("scale",), replicas=scale),
        Fragment("act", ("act_scaled", "replay.insert"), replicas=act),
        Fragment("learn", learn),
    )
    return cut(graph, "mine", fragments, staleness=1)


def test_what_has_no_row_for_each_environment_is_not_sliced():
    verify(scaled(), MACHINE)
    verify(scaled(scale=2, act=2), MACHINE)
    for scale, act in ((1, 2), (2, 1)):
        with pytest.raises(
            PlanError,
            match=rf"fragment 'act' takes 'scale' from {scale} replicas, which yields no row for each environment; "
            r"use as many replicas of both",
        ):
            verify(scaled(scale, act), MACHINE)


@pytest.mark.parametrize(
    ("fragments", "sentence"),
    [
        ((Fragment("a", COLLECT), Fragment("b", LEARN), Fragment("c", ())), r"fragment 'c' has no nodes"),
        (
            (Fragment("a", (*COLLECT, LEARN[0])), Fragment("b", LEARN)),
            r"fragment 'a' runs 'replay\.sample', which nothing there takes; leave it away there",
        ),
        (
            (Fragment("a", COLLECT), Fragment("draw", LEARN[:1], replicas=2), Fragment("b", LEARN[1:])),
            r"^policy 'mine' draws what is not run: fragment 'draw' has 2 replicas of 'replay\.sample', each of which "
            r"would learn from everything; use one replica, or let the gradients of the whole loop cross "
            r"\(docs/policies\.md\)\.$",
        ),
        (
            (Fragment("envs", ENVS), Fragment("act", COLLECT[1::2], replicas=4), Fragment("b", LEARN)),
            r"fragment 'act' has 4 replicas of 1 group\(s\), which 6 environments cannot be divided among; choose",
        ),
        (
            (Fragment("envs", ENVS, groups=2), Fragment("act", COLLECT[1::2], replicas=2), Fragment("b", LEARN)),
            r"fragment 'act' has 2 replicas of 2 group\(s\), which 6 environments cannot be divided among",
        ),
        (
            (Fragment("envs", ENVS, replicas=3), Fragment("act", COLLECT[1::2], replicas=2), Fragment("b", LEARN)),
            r"fragment 'act' has 2 replicas that take 'env\.observe' from 3; let one of the two numbers divide",
        ),
        ((Fragment("a", COLLECT, groups=2), Fragment("b", LEARN)), r"fragment 'a' has 2 groups of environments, which"),
        (
            (Fragment("envs", ENVS), Fragment("act", COLLECT[1::2], groups=2), Fragment("b", LEARN)),
            r"fragment 'act' has 2 groups of environments, which nothing lets take turns here; use one group",
        ),
        (
            (Fragment("a", COLLECT), Fragment("b", LEARN, place="node7")),
            r"fragment 'b' is placed on 'node7'; all places",
        ),
        (
            (Fragment("a", COLLECT, repeat=2), Fragment("b", LEARN)),
            r"fragment 'a' fuses 2 passes, which run one by one",
        ),
        (
            (Fragment("a", COLLECT), Fragment("b", LEARN[:2], repeat=8), Fragment("c", LEARN[2:], repeat=4)),
            r"fragment 'b' fuses 8 passes and 'c' 4, but they keep the same pace; give both the same repeat",
        ),
        (
            (Fragment("a", COLLECT), Fragment("draw", LEARN[:1]), Fragment("b", LEARN[1:], repeat=8)),
            r"fragment 'draw' fuses 1 passes and 'b' 8, but they keep the same pace; give both the same repeat",
        ),
        ((Fragment("a", COLLECT, cores=(3, 4)), Fragment("b", LEARN)), r"'a' is placed on core 4, but .* cores 0 to 3"),
    ],
)
def test_what_no_runtime_executes_as_drawn_is_refused_by_name(fragments, sentence):
    with pytest.raises(PlanError, match=sentence):
        verify(plan(*fragments), MACHINE)


def test_one_program_is_on_the_first_device():
    pure = trace(PerEnvironment(num_envs=6), dataclasses.replace(featured().spec, pure=True))
    everything = tuple(node.id for node in pure.nodes)
    verify(cut(pure, "mine", (Fragment("all", everything),), staleness=0), MACHINE)
    with pytest.raises(PlanError, match=r"'all' is one program on device 'cpu:1', but it runs on the first, 'cpu:0'"):
        verify(cut(pure, "mine", (Fragment("all", everything, device="cpu:1"),), staleness=0), MACHINE)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"replay.insert": {"channel": "queue"}},
            r"^policy 'mine' draws what is not run: 'transition' from replay\.insert to replay\.sample by 'queue', "
            r"which is carried by a 'table' channel; leave it to headrace\.graph\.cut\(\.\.\.\)\.$",
        ),
        ({"replay.insert": {"staleness": 1}}, r"'transition' .* by 'table', which is never stale; use staleness 0"),
        (
            {"learn_actor": {"target": "learn_critic"}},
            r"'actor' from learn_actor to learn_critic by 'latest', which does not",
        ),
    ],
)
def test_a_channel_that_carries_something_else_is_refused(change, sentence):
    whole = plan(Fragment("a", COLLECT), Fragment("b", LEARN))
    cuts = tuple(dataclasses.replace(cut, **change.get(cut.source, {})) for cut in whole.cuts)
    extra = tuple(cut for cut in whole.cuts if "target" in change.get(cut.source, {}))
    with pytest.raises(PlanError, match=sentence):
        verify(dataclasses.replace(whole, cuts=(*cuts, *extra)), MACHINE)


def test_gradients_cross_in_one_way_or_not_at_all():
    loop = plan(Fragment("all", EVERYTHING))
    with pytest.raises(PlanError, match=r"sends gradients, but not those of 'learn_actor'"):
        verify(dataclasses.replace(loop, cuts=REDUCED[:1]), MACHINE)
    mixed = (REDUCED[0], dataclasses.replace(REDUCED[1], channel="apply"))
    with pytest.raises(
        PlanError, match=r"'gradients' .* by 'apply', and 'learn_critic' by 'reduce'; send all gradients"
    ):
        verify(dataclasses.replace(loop, cuts=mixed), MACHINE)
    late = (REDUCED[0], dataclasses.replace(REDUCED[1], staleness=1))
    with pytest.raises(PlanError, match=r"'gradients' .* by 'reduce', which waits for all replicas; use staleness 0"):
        verify(dataclasses.replace(loop, cuts=late), MACHINE)
    odd = (*REDUCED, dataclasses.replace(REDUCED[0], what="weights"))
    with pytest.raises(PlanError, match=r"'weights' from learn_critic .* which is no gradient; leave it to headrace"):
        verify(dataclasses.replace(loop, cuts=odd), MACHINE)
    apart = plan(Fragment("envs", ENVS), Fragment("all", (*COLLECT[1::2], *LEARN)))
    with pytest.raises(
        PlanError, match=r"gradients cross between learners that do not collect for themselves; keep the whole loop"
    ):
        verify(dataclasses.replace(apart, cuts=(*apart.cuts, *REDUCED)), MACHINE)
    sent = tuple(dataclasses.replace(cut, channel="apply") for cut in REDUCED)
    with pytest.raises(PlanError, match=r"has no fragment for it; add one without nodes"):
        verify(dataclasses.replace(loop, cuts=sent), MACHINE)
    applies = Fragment("apply", (), device="cpu:1", cores=(3,))  # apart from those who compute them
    placed = dataclasses.replace(loop, fragments=(*loop.fragments, applies), cuts=sent)
    assert verify(placed, MACHINE) is placed
    two = dataclasses.replace(placed, fragments=(*placed.fragments, Fragment("again", ())))
    with pytest.raises(PlanError, match=r"fragment 'again' applies gradients, and so does 'apply'; use one of them"):
        verify(two, MACHINE)
    bounds = (sent[0], dataclasses.replace(sent[1], staleness=3))
    with pytest.raises(
        PlanError, match=r"with staleness 3, and 'learn_critic' with 0; use one staleness: one bound holds for both"
    ):
        verify(dataclasses.replace(placed, cuts=bounds), MACHINE)
    fused = tuple(dataclasses.replace(fragment, repeat=2) for fragment in placed.fragments)
    with pytest.raises(PlanError, match=r"fragment 'all' fuses 2 passes, which run one by one here"):
        verify(dataclasses.replace(placed, fragments=fused), MACHINE)


def test_gradients_applied_in_one_place_come_at_one_rate():
    class Two(Featured):
        def loop(self, env: Env, replay: Replay, other: Replay):
            step = env.step(self.act(env.observe()))
            replay.insert(step)
            other.insert(step)
            self.learn_critic(self.features(replay.sample(8)))
            self.learn_actor(self.features(other.sample(8, per_insert=2)))

    two = featured(Two)
    fragments = (Fragment("work", tuple(node.id for node in two.nodes)), Fragment("apply", ()))
    verify(cut(two, "mine", fragments[:1], staleness=0, gradients="reduce"), MACHINE)
    with pytest.raises(
        PlanError,
        match=r"^policy 'mine' applies gradients in the order of one rate, but two learns at 2; use multiple_lea",
    ):
        verify(cut(two, "mine", fragments, staleness=0, gradients="apply"), MACHINE)


def test_every_cell_has_a_bound_of_its_own():
    whole = plan(Fragment("a", COLLECT), Fragment("b", LEARN[:2]), Fragment("c", LEARN[2:]))
    verify(whole, MACHINE)
    reads = [cut for cut in whole.cuts if cut.target == "learn_critic" and cut.channel == "latest"]
    assert len(reads) == 2
    cuts = tuple(dataclasses.replace(cut, staleness=3) if cut is reads[1] else cut for cut in whole.cuts)
    loose = verify(dataclasses.replace(whole, cuts=cuts), MACHINE)
    assert {cut.what: cut.staleness for cut in loose.cuts if cut.channel == "latest"} == {
        "actor": 1,
        "log_alpha": 3,
        "critic": 1,
    }
    # Whoever reads both waits for the stricter.
    (bond,) = Pace.of(Sections(loose), "b", 0).bonds[0]
    assert (bond.staleness, bond.other.written) == (1, ("actor", "log_alpha"))


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


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            node: st.one_of(st.integers(0, 2).map(lambda i: (i,)), st.integers(0, 2).map(lambda i: (i,)), homes)
            for node in ids
        }
    )
)
def test_exactly_the_partitions_that_are_run_as_drawn_pass(assignment):
    drawn = (Fragment(f"f{i}", tuple(n for n in ids for home in assignment[n] if home == i)) for i in range(3))
    fragments = tuple(fragment for fragment in drawn if fragment.nodes)
    refusal = nullcontext() if runs(assignment) else pytest.raises(PlanError)
    with refusal:
        verify(plan(*fragments), MACHINE)


def runs(homes) -> bool:
    """Each node in one place, environments whole; what draws from the store may be in several, once in each."""
    once = all(len(own) == 1 for node, own in homes.items() if node != "replay.sample")
    drawn = homes["replay.sample"]
    return once and homes["env.observe"] == homes["env.step"] and len(drawn) == len({*drawn}) > 0


@settings(max_examples=60, deadline=None)
@given(st.integers(-1, 12))
def test_replicas_pass_exactly_when_they_divide_the_environments(replicas):
    asked = plan(Fragment("a", COLLECT, replicas=replicas), Fragment("b", LEARN))
    if replicas >= 1 and 6 % replicas == 0:
        assert verify(asked, MACHINE).collector.replicas == replicas
    else:
        with pytest.raises(PlanError):
            verify(asked, MACHINE)
