"""trace: exact graphs of the loops that come with headrace, and a sentence for each loop that does not fit."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import optax
import pytest

from headrace.algorithms import DQN, PPO, SAC, TD3, DQNConfig
from headrace.compile.cells import CellLayout, make_cells
from headrace.compile.programs import Programs
from headrace.compile.reports import RAN
from headrace.compile.rng import PassRng, bases
from headrace.core import Algorithm, Env, Learned, Reads, Replay, Rollout, Tracked, Writes, stage
from headrace.errors import LoopError, UsageError
from headrace.graph import trace
from headrace.stores.replay import Insert, Sample
from headrace.stores.rollout import Put, Take
from headrace.types import Batch, Box, Discrete, EnvSpec, tree_bytes

PENDULUM = EnvSpec("Pendulum-v1", Box((3,)), Box((1,), bounded=True), 4)
CARTPOLE = EnvSpec("CartPole-v1", Box((4,)), Discrete(2), 4)


def nodes(graph):
    return [
        (n.id, n.kind, n.role, n.domain, [b.cell for b in n.reads], [b.cell for b in n.writes], n.times, n.every)
        for n in graph.nodes
    ]


def edges(graph):
    return [(e.source, e.target, e.what, e.kind, e.bytes) for e in graph.edges]


def test_sac_on_pendulum():
    graph = trace(SAC(hidden=(8,), batch_size=32, num_envs=4, policy_delay=2), PENDULUM)
    assert nodes(graph) == [
        ("env.observe", "env", "environment", "collect", [], [], 1, 1),
        ("act", "stage", "acting", "collect", ["actor"], [], 1, 1),
        ("env.step", "env", "environment", "collect", [], [], 1, 1),
        ("replay.insert", "store", "storing", "collect", [], [], 1, 1),
        ("replay.sample", "store", "storing", "learn", [], [], 1, 1),
        ("learn_critic", "stage", "learning", "learn", ["actor", "log_alpha"], ["critic", "target"], 1, 1),
        ("learn_actor", "stage", "learning", "learn", ["critic"], ["actor", "log_alpha"], 1, 2),
    ]
    step = 4 * (3 * 4 + 4 + 4 + 1 + 1 + 3 * 4)
    batch = 32 * (3 * 4 + 4 + 4 + 4 + 3 * 4)
    actor = 4 * (3 * 8 + 8 + 8 * 2 + 2)
    critic = 2 * 4 * (4 * 8 + 8 + 8 + 1)
    assert edges(graph) == [
        ("env.observe", "act", "obs", "data", 48),
        ("act", "env.step", "action", "data", 16),
        ("env.observe", "replay.insert", "transition", "data", 48),
        ("act", "replay.insert", "transition", "data", 16),
        ("env.step", "replay.insert", "transition", "data", step - 48 - 16),
        ("replay.sample", "learn_critic", "batch", "data", batch),
        ("replay.sample", "learn_actor", "batch", "data", batch),
        ("learn_actor", "act", "actor", "cell", actor),
        ("learn_actor", "learn_critic", "actor", "cell", actor),
        ("learn_actor", "learn_critic", "log_alpha", "cell", 4),
        ("learn_critic", "learn_actor", "critic", "cell", critic),
        ("replay.insert", "replay.sample", "transition", "replay", step),
        ("env.step", "env.observe", "state", "state", 0),
    ]
    assert {name: tree_bytes(cell) for name, cell in graph.cells.items()} == {
        "actor": actor,
        "critic": critic,
        "target": critic,
        "log_alpha": 4,
    }
    assert graph.staleness is None
    (domain,) = graph.domains
    (store,) = graph.stores.values()
    assert [node.id for node in domain.nodes] == ["replay.sample", "learn_critic", "learn_actor"]
    assert [node.id for node in domain.sources] == ["replay.sample"]
    assert (domain.draws[0].per_insert, domain.draws[0].after) == (16.0, 1000)
    assert (domain.fused, domain.frames, domain.rate, domain.begins) == (True, 32, Fraction(1, 2), 250)
    assert (store.name, store.fill.id, [node.id for node in store.draws]) == (
        "replay",
        "replay.insert",
        ["replay.sample"],
    )
    assert (store.lead, store.env_axis, tree_bytes(store.row)) == (1, 0, step // 4)
    assert store.operation == Insert(1_000_000)
    assert [node.id for node in graph.play.nodes] == ["play"]
    assert [b.cell for b in graph.play.reads] == ["actor"]


def test_ppo_on_cartpole():
    graph = trace(PPO(hidden=(8,), horizon=16, num_envs=4, minibatch_size=16), CARTPOLE)
    assert nodes(graph) == [
        ("env.observe", "env", "environment", "collect", [], [], 16, 1),
        ("act", "stage", "acting", "collect", ["actor", "normaliser"], [], 16, 1),
        ("env.step", "env", "environment", "collect", [], [], 16, 1),
        ("rollout.put", "store", "storing", "collect", [], [], 1, 1),
        ("rollout.take", "store", "storing", "learn", [], [], 1, 1),
        ("learn", "stage", "learning", "learn", [], ["actor", "critic", "normaliser", "returns"], 1, 1),
    ]
    trajectory = 16 * 4 * (4 * 4 + 4 + 4 + 1 + 1 + 4 * 4 + 4)
    assert edges(graph) == [
        ("env.observe", "act", "obs", "data", 64),
        ("act", "env.step", "action", "data", 16),
        ("env.observe", "rollout.put", "trajectory", "data", 16 * 64),
        ("act", "rollout.put", "trajectory", "data", 16 * (16 + 16)),
        ("env.step", "rollout.put", "trajectory", "data", trajectory - 16 * (64 + 16 + 16)),
        ("rollout.take", "learn", "trajectory", "data", trajectory),
        ("learn", "act", "actor", "cell", 4 * (4 * 8 + 8 + 8 * 2 + 2 + 2)),
        ("learn", "act", "normaliser", "cell", 4 * (4 + 4 + 1)),
        ("rollout.put", "rollout.take", "trajectory", "rollout", trajectory),
        ("env.step", "env.observe", "state", "state", 0),
    ]
    assert graph.staleness == 0
    (domain,) = graph.domains
    assert (domain.fused, domain.frames, domain.rate, domain.begins) == (False, 4 * 64, Fraction(1, 64), 0)
    assert domain.draws == (Take("rollout.put", epochs=4, staleness=0),)
    (store,) = graph.stores.values()
    assert (store.lead, store.env_axis, store.operation) == (2, 1, Put())
    assert graph.only("learn").output.keys() == {
        "policy_gradient_loss", "entropy_loss", "approx_kl", "clip_fraction", "value_loss", "explained_variance"
    }  # fmt: skip


def test_shapes_on_the_edges_follow_from_the_environment():
    graph = trace(PPO(hidden=(8,), horizon=16, num_envs=4, minibatch_size=16), CARTPOLE)
    taken = next(e.struct for e in graph.edges if (e.source, e.target) == ("rollout.take", "learn"))
    assert taken.obs == jax.ShapeDtypeStruct((16, 4, 4), jnp.float32)
    assert taken.action == jax.ShapeDtypeStruct((16, 4), jnp.int32)
    assert taken.extra == {"log_prob": jax.ShapeDtypeStruct((16, 4), jnp.float32)}


def test_a_trace_depends_on_nothing_but_algorithm_and_spec():
    first, again = (trace(TD3(hidden=(8,), num_envs=4), PENDULUM) for _ in range(2))
    assert nodes(first) == nodes(again)
    assert edges(first) == edges(again)
    assert len({n.id for n in first.nodes}) == len(first.nodes)


def test_where_and_only_find_nodes():
    graph = trace(DQN(hidden=(8,), num_envs=4), CARTPOLE)
    assert [n.id for n in graph.where(role="learning")] == ["learn"]
    assert [n.id for n in graph.where(domain="collect", kind="env")] == ["env.observe", "env.step"]
    assert graph.only("env.step") is graph.by_id["env.step"]


class Toy(Algorithm[DQNConfig]):
    """A linear critic, and stages to build loops from."""

    def cells(self, spec, key):
        weights = jnp.zeros((4, 2))
        return {"critic": Learned(weights, optax.sgd(0.1)), "target": Tracked(weights), "bonus": Tracked(jnp.zeros(()))}

    @stage
    def act(self, obs, critic: Reads):
        return jnp.argmax(obs @ critic, axis=-1).astype(jnp.int32)

    @stage
    def play(self, obs, critic: Reads):
        return jnp.argmax(obs @ critic, axis=-1).astype(jnp.int32)

    @stage
    def act_float(self, obs, critic: Reads):
        return obs @ critic

    @stage
    def double(self, obs):
        return 2 * obs

    @stage
    def total(self, trajectory):
        return trajectory.reward.sum(axis=0)

    @stage
    def learn(self, batch, critic: Writes):
        critic, loss = critic.minimise(lambda w: jnp.sum((batch.obs @ w) ** 2))
        return critic, {"loss": loss}

    @stage
    def learn_again(self, batch, critic: Writes):
        return critic, {}

    @stage
    def goal(self, batch, target: Reads):
        return batch.reward + jnp.max(batch.next_obs @ target, axis=-1)

    @stage
    def learn_goal(self, batch, goal, critic: Writes):
        return critic, {"goal": goal.mean()}

    @stage
    def learn_target(self, batch, target: Writes):
        return target, {"reward": batch.reward.mean()}

    @stage
    def learn_both(self, batch, trajectory, critic: Writes, target: Writes):
        return (critic, target), {"reward": batch.reward.mean() + trajectory.reward.mean()}

    @stage
    def spread(self, batch):
        return jnp.full((3, 4), batch.reward.mean())

    @stage
    def misspelt(self, batch, critik: Writes):
        return critik, {}

    @stage
    def forgets_metrics(self, batch, critic: Writes):
        return critic

    @stage
    def metrics_not_a_dict(self, batch, critic: Writes):
        return critic, jnp.zeros(())

    @stage
    def returns_one_of_two(self, batch, critic: Writes, target: Writes):
        return critic, {"loss": jnp.zeros(())}

    @stage
    def returns_three_of_two(self, batch, critic: Writes, target: Writes):
        return (critic, target, target), {"loss": jnp.zeros(())}

    @stage
    def returns_the_module(self, batch, critic: Writes):
        return critic.module, {}

    @stage
    def returns_a_tuple_of_one(self, batch, critic: Writes):
        return (critic,), {}

    @stage
    def returns_a_tracked_module(self, batch, target: Writes):
        return target.module, {}

    @stage
    def grows(self, batch, target: Writes):
        return target.set(jnp.zeros((5, 2))), {}

    @stage
    def changes_dtype(self, batch, target: Writes):
        return target.set(target.module.astype(jnp.int32)), {}

    @stage
    def plain_number(self, batch, critic: Writes):
        return critic, {"learning_rate": 0.1}

    @stage
    def branches(self, batch, critic: Writes):
        if batch.reward[0] > 0:
            return critic, {}
        return critic, {"loss": jnp.zeros(())}

    @stage
    def multiplies_wrongly(self, batch, critic: Writes):
        return critic, {"loss": (batch.obs @ jnp.zeros((9, 9))).mean()}


def collected(toy, env):
    return env.step(toy.act(env.observe()))


def loop_with(learn):
    """A loop that only differs in how it learns."""

    def loop(self, env: Env, replay: Replay) -> None:
        replay.insert(collected(self, env))
        getattr(self, learn)(replay.sample(8))

    return loop


def never_learns(self, env: Env, replay: Replay) -> None:
    replay.insert(collected(self, env))
    replay.sample(8)


def never_steps(self, env: Env, replay: Replay) -> None:
    self.act(env.observe())


def steps_twice(self, env: Env, replay: Replay) -> None:
    collected(self, env)
    replay.insert(collected(self, env))
    self.learn(replay.sample(8))


def never_takes(self, env: Env, replay: Replay) -> None:
    replay.insert(collected(self, env))


def samples_first(self, env: Env, replay: Replay) -> None:
    self.learn(replay.sample(8))
    replay.insert(collected(self, env))


def takes_first(self, env: Env, rollout: Rollout) -> None:
    self.learn(rollout.take())


def two_writers(self, env: Env, replay: Replay) -> None:
    replay.insert(collected(self, env))
    batch = replay.sample(8)
    self.learn(batch)
    self.learn_again(batch)


def learns_while_collecting(self, env: Env, replay: Replay) -> None:
    step = collected(self, env)
    replay.insert(step)
    self.learn_again(step)
    self.goal(replay.sample(8))


def branches_on_a_symbol(self, env: Env, replay: Replay) -> None:
    step = collected(self, env)
    if step.reward:
        replay.insert(step)


def unannotated(self, env: Env, replay) -> None:
    pass


def wrong_action(self, env: Env, replay: Replay) -> None:
    replay.insert(env.step(self.act_float(env.observe())))


def too_much_data(self, env: Env, replay: Replay) -> None:
    replay.insert(collected(self, env))
    batch = replay.sample(8)
    self.learn(batch, batch)


def no_steps(self, env: Env, rollout: Rollout) -> None:
    rollout.put(env.unroll(self.act, steps=0))


def inserts_twice(self, env: Env, replay: Replay) -> None:
    step = collected(self, env)
    replay.insert(step)
    replay.insert(step)
    self.learn(replay.sample(8))


def puts_twice(self, env: Env, rollout: Rollout) -> None:
    step = collected(self, env)
    rollout.put(step)
    rollout.put(step)
    self.learn(rollout.take())


def samples_twice(self, env: Env, replay: Replay) -> None:
    replay.insert(collected(self, env))
    self.learn(replay.sample(8))
    self.learn_target(replay.sample(4))


def takes_twice(self, env: Env, rollout: Rollout) -> None:
    rollout.put(collected(self, env))
    self.learn(rollout.take())
    self.learn_target(rollout.take())


def learns_from_one_of_two(self, env: Env, replay: Replay, other: Replay) -> None:
    step = collected(self, env)
    replay.insert(step)
    other.insert(step)
    self.learn(replay.sample(8))
    self.goal(other.sample(8))


def samples_the_other_first(self, env: Env, replay: Replay, other: Replay) -> None:
    step = collected(self, env)
    replay.insert(step)
    self.learn(replay.sample(8))
    self.learn_target(other.sample(8))
    other.insert(step)


def stores_what_a_store_gave(self, env: Env, replay: Replay, rollout: Rollout) -> None:
    step = env.unroll(self.act, steps=3)
    replay.insert(step)
    batch = replay.sample(4)
    self.learn(batch)
    rollout.put(step._replace(reward=self.spread(batch)))
    self.learn_target(rollout.take())


def fills_a_store_nobody_reads(self, env: Env, replay: Replay, other: Replay) -> None:
    step = collected(self, env)
    replay.insert(step)
    other.insert(step)
    self.learn(replay.sample(8))


def calculates(self, env: Env, replay: Replay) -> None:
    replay.insert(env.step(self.act(env.observe() * 2)))
    self.learn(replay.sample(8))


def never(self, env: Env, replay: Replay) -> None:
    replay.insert(collected(self, env))
    self.learn(replay.sample(8), every=0)


def calls(handle, method, *given, **named):
    """A loop that makes one call more than it should."""

    def loop(self, env: Env, replay: Replay, rollout: Rollout) -> None:
        getattr({"env": env, "replay": replay, "rollout": rollout}[handle], method)(*given, **named)

    return loop


def misnames_data(self, env: Env, replay: Replay) -> None:
    replay.insert(collected(self, env))
    self.learn(bach=replay.sample(8))


def gives_data_twice(self, env: Env, replay: Replay) -> None:
    replay.insert(collected(self, env))
    batch = replay.sample(8)
    self.learn(batch, batch=batch)


def unrolls_an_action(self, env: Env, rollout: Rollout) -> None:
    rollout.put(env.unroll(self.act(env.observe()), steps=4))


def inserts_no_transition(self, env: Env, replay: Replay) -> None:
    replay.insert(self.double(env.observe()))


def inserts_sums(self, env: Env, replay: Replay) -> None:
    step = env.unroll(self.act, steps=3)
    replay.insert(step._replace(reward=self.total(step)))


def learns_past_the_store(self, env: Env, replay: Replay) -> None:
    step = collected(self, env)
    replay.insert(step)
    self.learn_goal(replay.sample(8), step.reward)


def acts_on_a_batch(self, env: Env, replay: Replay) -> None:
    replay.insert(collected(self, env))
    env.step(self.act(replay.sample(4).obs))


def toy(loop):
    return type("Toy", (Toy,), {"loop": loop})(num_envs=4)


@pytest.mark.parametrize(
    ("loop", "sentence"),
    [
        (
            loop_with("misspelt"),
            r"stage 'misspelt' asks for the cell 'critik', which cells\(\) does not make; did "
            r"you mean 'critic'\? \(cells: bonus, critic, target\)",
        ),
        (
            loop_with("forgets_metrics"),
            r"stage 'forgets_metrics' writes cells, so it must return \(cells, metrics\), got "
            r"float32\[4,2\]",
        ),
        (
            loop_with("metrics_not_a_dict"),
            r"stage 'metrics_not_a_dict' writes cells, so it must return \(cells, "
            r"metrics\)",
        ),
        (
            loop_with("returns_one_of_two"),
            r"stage 'returns_one_of_two' must return the cells critic, target, in this "
            r"order, got a Learned\.",
        ),
        (
            loop_with("returns_three_of_two"),
            r"stage 'returns_three_of_two' must return the cells critic, target, in this "
            r"order, got a tuple of 3\.",
        ),
        (
            loop_with("returns_the_module"),
            r"stage 'returns_the_module' returned float32\[4,2\] where the cell 'critic' itself was "
            r"expected, a Learned; return it as it was given",
        ),
        (
            loop_with("returns_a_tuple_of_one"),
            r"stage 'returns_a_tuple_of_one' returned a tuple of 1 where the cell 'critic' itself was "
            r"expected, a Learned; return it as it was given",
        ),
        (
            loop_with("returns_a_tracked_module"),
            r"'returns_a_tracked_module' returned float32\[4,2\] where the cell 'target' itself was "
            r"expected, a Tracked",
        ),
        (
            loop_with("grows"),
            r"returns the cell 'target' as float32\[5,2\], but it was float32\[4,2\]; a cell "
            r"keeps its structure, shapes and dtypes",
        ),
        (loop_with("changes_dtype"), r"returns the cell 'target' as int32\[4,2\], but it was float32\[4,2\]"),
        (
            loop_with("branches"),
            r"stage 'branches' cannot run on batch float32\[8,4\].*: Attempted boolean "
            r"conversion",
        ),
        (loop_with("multiplies_wrongly"), r"stage 'multiplies_wrongly' cannot run on batch"),
        (never_learns, r"the loop of Toy never learns: no stage it calls writes a cell"),
        (never_steps, r"the loop of Toy must step its environment once \(env\.step or env\.unroll\), got 0"),
        (steps_twice, r"must step its environment once .* got 2"),
        (
            never_takes,
            r"^the loop of Toy must take from a store \(sample or take\); what it collects is not learned from\.$",
        ),
        (samples_first, r"the loop samples from 'replay' before it inserts; call replay\.insert first"),
        (takes_first, r"the loop takes from 'rollout' before it puts; call rollout\.put first"),
        (
            two_writers,
            r"stages 'learn' and 'learn_again' both write the cell 'critic'; let one of them "
            r"write it, or make it two cells",
        ),
        (
            learns_while_collecting,
            r"stage 'learn_again' writes 'critic' while collecting; call it on what the store "
            r"gives",
        ),
        (
            branches_on_a_symbol,
            r"the loop branches on float32\[4\] from env\.step.*decide inside a stage with "
            r"jnp\.where or lax\.cond",
        ),
        (unannotated, r"the loop of Toy does not say what 'replay' is; annotate it as Env, Replay or Rollout"),
        (wrong_action, r"the actions are float32\[4,2\], but CartPole-v1 takes int32\[4\]"),
        (
            too_much_data,
            r"the loop calls stage 'learn' with 2 value\(s\), but it takes batch; cells and "
            r"the key are passed by headrace",
        ),
        (no_steps, r"env\.unroll needs at least one step, got steps=0"),
        (inserts_twice, r"^the loop fills 'replay' twice; fill it once, or use two stores\.$"),
        (puts_twice, r"^the loop fills 'rollout' twice; fill it once, or use two stores\.$"),
        (
            fills_a_store_nobody_reads,
            r"^the loop of Toy fills the store 'other', but nothing takes from it; remove it\.$",
        ),
        (
            samples_twice,
            r"^the loop of Toy takes from 'replay' twice; take once and give that to several stages\.$",
        ),
        (
            takes_twice,
            r"^the loop of Toy takes from 'rollout' twice; take once and give that to several stages\.$",
        ),
        (
            learns_from_one_of_two,
            r"^the loop of Toy takes from 'other', but no stage that learns is called on it; remove it\.$",
        ),
        (samples_the_other_first, r"the loop samples from 'other' before it inserts; call other\.insert first"),
        (
            stores_what_a_store_gave,
            r"^the loop of Toy uses what the store gives in rollout\.put; a store is for stages that learn\.$",
        ),
        (calculates, r"env\.observe"),
        (never, r"every"),
        (
            calls("replay", "sample", 8, future=0.9),
            r"^replay\.sample takes no 'future'.* \(it takes size, after, per_insert, gamma, steps\)\.$",
        ),
        (calls("replay", "sample", siz=8), r"^replay\.sample takes no 'siz'; did you mean 'size'\? \(it takes"),
        (
            calls("replay", "sample"),
            r"^replay\.sample takes size, .*; this call has missing a required argument",
        ),
        (
            calls("replay", "sample", 8, 100),
            r"^replay\.sample takes .*; this call has too many positional arg",
        ),
        (calls("replay", "insert", None, size=3), r"^replay\.insert takes no 'size' \(it takes transition, capacity\)"),
        (calls("rollout", "take", epoch=2), r"^rollout\.take takes no 'epoch'; did you mean 'epochs'\?"),
        (calls("rollout", "put"), r"^rollout\.put takes trajectory; this call has missing a required argument"),
        (calls("env", "unroll", None, length=2), r"^env\.unroll takes no 'length' \(it takes act, steps\)\.$"),
        (calls("env", "reset"), r"^'env' has no 'reset' \(it has agents, observe, step, unroll\)\.$"),
        (calls("replay", "put", None), r"^'replay' has no 'put' \(it has insert, sample\)\.$"),
        (
            misnames_data,
            r"^stage 'learn' takes no 'bach' from the loop; did you mean 'batch'\? \(it takes batch;",
        ),
        (gives_data_twice, r"the loop calls stage 'learn' with 2 value\(s\), but it takes batch"),
        (
            unrolls_an_action,
            r"^env\.unroll acts at every step, .*\(self\.act, steps=8\); got int32\[4\]\.$",
        ),
        (inserts_no_transition, r"^replay\.insert takes a Transition, .* got float32\[4,4\]\.$"),
        (
            inserts_sums,
            r"^replay\.insert takes arrays \[steps, num_envs, .* with \[3, 4\], .*got float32\[4\]\.$",
        ),
        (learns_past_the_store, r"^stage 'learn_goal' is called on what the store gives and on what env\.step gives"),
        (acts_on_a_batch, r"must step its environment once|uses what the store gives in env\.step"),
    ],
)
def test_a_loop_that_does_not_fit_is_refused_with_a_sentence(loop, sentence):
    with pytest.raises(LoopError, match=sentence) as refused:
        trace(toy(loop), CARTPOLE)
    assert isinstance(refused.value, UsageError)
    assert str(refused.value).endswith(".")


def test_a_metric_may_be_a_plain_number():
    graph = trace(toy(loop_with("plain_number")), CARTPOLE)
    assert set(graph.only("plain_number").output) == {"learning_rate"}


def test_a_stage_between_sampling_and_learning_is_computing_in_the_learning_domain():
    def loop(self, env: Env, replay: Replay) -> None:
        obs = self.double(env.observe())
        replay.insert(env.step(self.act(obs)))
        batch = replay.sample(8)
        self.learn_goal(batch, self.goal(batch))

    graph = trace(toy(loop), CARTPOLE)
    roles = {n.id: (n.role, n.domain) for n in graph.where(kind="stage")}
    assert roles == {
        "double": ("acting", "collect"),
        "act": ("acting", "collect"),
        "goal": ("computing", "learn"),
        "learn_goal": ("learning", "learn"),
    }
    assert ("goal", "learn_goal", "goal", "data", 32) in edges(graph)
    assert not any(e.what == "target" for e in graph.edges)  # read, never written: it flows from nowhere


def domains(graph):
    return [[node.id for node in domain.nodes] for domain in graph.domains]


def test_a_replay_and_a_rollout_on_one_environment_are_two_domains_at_their_own_rates():
    def loop(self, env: Env, replay: Replay, rollout: Rollout) -> None:
        steps = env.unroll(self.act, steps=8)
        replay.insert(steps, capacity=1000)
        rollout.put(steps)
        self.learn(rollout.take(epochs=3, staleness=2))
        self.learn_target(replay.sample(16, after=100, per_insert=4))

    graph = trace(toy(loop), CARTPOLE)
    assert domains(graph) == [["rollout.take", "learn"], ["replay.sample", "learn_target"]]
    assert graph.domain_of == {"rollout.take": 0, "learn": 0, "replay.sample": 1, "learn_target": 1}
    taking, sampling = graph.domains
    assert (taking.index, taking.fused, taking.frames, taking.rate, taking.begins, taking.staleness) == (
        0, False, 3 * 32, Fraction(1, 32), 0, 2
    )  # fmt: skip
    assert (sampling.index, sampling.fused, sampling.frames, sampling.rate, sampling.begins, sampling.staleness) == (
        1, True, 16, Fraction(4, 16), 4, None
    )  # fmt: skip
    assert graph.staleness == 2
    # 4 * 32 transitions, of which the first 100 are waited for: (128 - 100) * 4 / 16 passes.
    assert [(taking.due(n), sampling.due(n)) for n in range(6)] == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 7), (5, 15)]
    assert [(taking.needed(n), sampling.needed(n)) for n in (0, 1, 7, 8)] == [(0, 0), (1, 4), (7, 4), (8, 5)]
    assert list(graph.stores) == ["replay", "rollout"]
    assert [(store.operation, store.lead, store.env_axis) for store in graph.stores.values()] == [
        (Insert(1000), 2, 1),
        (Put(), 2, 1),
    ]
    assert [node.id for store in graph.stores.values() for node in store.draws] == ["replay.sample", "rollout.take"]
    row = 16 + 4 + 4 + 1 + 1 + 16
    assert [edge for edge in edges(graph) if edge[3] in ("replay", "rollout")] == [
        ("rollout.put", "rollout.take", "trajectory", "rollout", 32 * row),
        ("replay.insert", "replay.sample", "transition", "replay", 32 * row),
    ]
    assert {tree_bytes(store.row) for store in graph.stores.values()} == {row}


def test_what_is_put_step_by_step_is_stored_as_trajectories_of_one():
    def loop(self, env: Env, replay: Replay, rollout: Rollout) -> None:
        step = collected(self, env)
        rollout.put(step)
        replay.insert(step)
        self.learn(rollout.take())
        self.learn_target(replay.sample(16))

    graph = trace(toy(loop), CARTPOLE)
    assert domains(graph) == [["rollout.take", "learn"], ["replay.sample", "learn_target"]]
    assert [(name, store.lead) for name, store in graph.stores.items()] == [("rollout", 2), ("replay", 1)]
    assert graph.only("rollout.take").output.reward.shape == (1, 4)


def test_two_replays_at_two_rates_are_two_domains():
    def loop(self, env: Env, replay: Replay, other: Replay) -> None:
        step = collected(self, env)
        replay.insert(step)
        other.insert(step, capacity=50)
        self.learn(replay.sample(8, per_insert=2))
        self.learn_target(other.sample(4, after=10, per_insert=0.5, gamma=0.9, steps=3))

    graph = trace(toy(loop), CARTPOLE)
    assert domains(graph) == [["replay.sample", "learn"], ["other.sample", "learn_target"]]
    assert [domain.rate for domain in graph.domains] == [Fraction(1, 4), Fraction(1, 8)]
    assert [domain.frames for domain in graph.domains] == [8, 4]
    assert [domain.begins for domain in graph.domains] == [0, 3]
    assert graph.domains[1].draws == (Sample("other.insert", 4, 10, 0.5, 0.9, 3),)
    assert {name: store.operation.capacity for name, store in graph.stores.items()} == {
        "replay": 1_000_000,
        "other": 50,
    }
    assert graph.staleness is None


def test_a_stage_that_takes_from_two_stores_makes_one_domain_of_them():
    def loop(self, env: Env, replay: Replay, rollout: Rollout) -> None:
        steps = env.unroll(self.act, steps=8)
        replay.insert(steps)
        rollout.put(steps)
        self.learn_both(replay.sample(16, per_insert=4), rollout.take(epochs=2, staleness=1))

    graph = trace(toy(loop), CARTPOLE)
    (domain,) = graph.domains
    assert [node.id for node in domain.nodes] == ["replay.sample", "rollout.take", "learn_both"]
    assert [node.id for node in domain.sources] == ["replay.sample", "rollout.take"]
    # It learns as often as the slower of the two allows, from both.
    assert (domain.fused, domain.rate, domain.begins, domain.staleness) == (False, Fraction(1, 32), 0, 1)
    assert domain.frames == 16 + 2 * 32
    assert [domain.due(n) for n in range(7)] == [domain.needed(n) for n in range(7)] == list(range(7))


@pytest.mark.parametrize("how", [{"after": 100, "per_insert": 4}, {"per_insert": 0.25}])
def test_trajectories_that_would_pile_up_are_refused(how):
    def loop(self, env: Env, replay: Replay, rollout: Rollout) -> None:
        steps = env.unroll(self.act, steps=8)
        replay.insert(steps)
        rollout.put(steps)
        self.learn_both(replay.sample(16, **how), rollout.take())

    with pytest.raises(LoopError, match=r"a batch must be due with every pass of 32 transitions; sample with after=0"):
        trace(toy(loop), CARTPOLE)


def test_domains_that_a_later_stage_joins_are_one_in_the_order_of_the_loop():
    def loop(self, env: Env, replay: Replay, other: Replay) -> None:
        step = collected(self, env)
        replay.insert(step)
        other.insert(step)
        first, second = replay.sample(8), other.sample(8)
        goal = self.goal(second)
        self.learn_target(second)
        self.learn_goal(first, goal)

    assert domains(trace(toy(loop), CARTPOLE)) == [
        ["replay.sample", "other.sample", "goal", "learn_target", "learn_goal"]
    ]


def test_a_stage_called_twice_has_two_nodes():
    def loop(self, env: Env, replay: Replay) -> None:
        replay.insert(env.step(self.act(self.double(self.double(env.observe())))))
        self.learn(replay.sample(8))

    graph = trace(toy(loop), CARTPOLE)
    assert [n.id for n in graph.where(name="double")] == ["double", "double#2"]


def test_a_transition_put_together_from_two_nodes_reaches_the_store_whole():
    def loop(self, env: Env, replay: Replay) -> None:
        step = collected(self, env)
        replay.insert(step._replace(reward=self.double(step.reward)))
        self.learn(replay.sample(8))

    graph = trace(toy(loop), CARTPOLE)
    into = [e for e in graph.edges if e.target == "replay.insert"]
    assert {e.source for e in into} == {"env.observe", "act", "env.step", "double"}
    assert {e.source: e.bytes for e in into} == {
        "env.observe": 4 * 16,
        "act": 4 * 4,
        "env.step": 4 * (1 + 1 + 16),
        "double": 4 * 4,
    }
    across = next(e for e in graph.edges if e.kind == "replay")
    assert across.bytes == sum(e.bytes for e in into) == 4 * (16 + 4 + 4 + 1 + 1 + 16)


class Pair(Toy):
    """Two critics, each learned by the same stage; playing asks both."""

    def cells(self, spec, key):
        one = super().cells(spec, key)["critic"]
        return {"critic_0": one, "critic_1": one, "bonus": Tracked(jnp.zeros(()))}

    @stage
    def value(self, obs, weight, critic: Reads):
        return weight * (obs @ critic)

    @stage
    def best(self, values):
        return jnp.argmax(sum(values), axis=-1).astype(jnp.int32)

    @stage
    def learn(self, batch, agent, options, critic: Writes):
        assert (agent, options["name"]) in ((0, "first"), (1, None))
        critic, loss = critic.minimise(lambda w: (1 + agent) * jnp.sum((batch.obs @ w) ** 2))
        return critic, {f"loss_{agent}": loss}

    def play(self, obs):
        return self.best([self.value.on(critic=f"critic_{i}")(obs, 0.5) for i in range(2)])

    def loop(self, env: Env, replay: Replay) -> None:
        replay.insert(env.step(self.play(env.observe())))
        batch = replay.sample(8)
        for agent, name in enumerate(("first", None)):
            self.learn.on(critic=f"critic_{agent}")(batch, agent, {"name": name})


def test_a_stage_on_other_cells_is_a_node_bound_to_them():
    graph = trace(Pair(num_envs=4), CARTPOLE)
    assert [(n.id, [(b.argument, b.cell) for b in n.reads + n.writes]) for n in graph.where(kind="stage")] == [
        ("value", [("critic", "critic_0")]),
        ("value#2", [("critic", "critic_1")]),
        ("best", []),
        ("learn", [("critic", "critic_0")]),
        ("learn#2", [("critic", "critic_1")]),
    ]
    assert ("learn#2", "value#2", "critic_1", "cell", 32) in edges(graph)
    assert graph.by_id["learn#2"].inputs[1:] == (1, {"name": None})
    assert [ref.node for ref in graph.by_id["value"].sources] == ["env.observe"]


def test_play_may_be_composed_of_stages_with_ids_of_their_own():
    graph = trace(Pair(num_envs=4), CARTPOLE)
    assert [n.id for n in graph.play.nodes] == ["value#3", "value#4", "best#2"]
    assert [n.index for n in graph.play.nodes] == [len(graph.nodes) + i for i in range(3)]
    assert [b.cell for b in graph.play.reads] == ["critic_0", "critic_1"]
    assert graph.play.action.node == "best#2"
    assert len(bases(graph, 0, 0)) == len(graph.nodes) + 3


def test_plain_values_among_the_data_are_constants_when_compiled():
    algorithm = Pair(num_envs=4)
    graph = trace(algorithm, CARTPOLE)
    cells = make_cells(algorithm, graph, 0)
    cells |= {f"critic_{i}": Learned(jnp.full((4, 2), 1.0 + i), optax.sgd(0.0)) for i in range(2)}
    programs = Programs(graph, CellLayout(cells))
    batch = Batch(jnp.ones((8, 4)), jnp.zeros(8, jnp.int32), jnp.zeros(8), jnp.ones(8), jnp.ones((8, 4)), {})
    learn = jax.jit(programs.one_pass(graph.where(role="learning")))
    rng = PassRng(bases(graph, 0, 0), jnp.uint32(0))
    _, ((metrics, state), wanted) = learn(
        programs.cell_layout.flat(cells), {"replay.sample": jax.tree.leaves(batch)}, rng
    )
    assert {id: {name: float(value) for name, value in each.items()} for id, each in metrics.items()} == {
        "learn": {"loss_0": 8 * 2 * 16.0},
        "learn#2": {"loss_1": 2 * 8 * 2 * 64.0},
    }
    assert state.tolist() == [RAN, RAN]
    assert wanted == []


def test_cells_that_on_asks_for_must_be_there_and_written_once():
    def missing(self, env: Env, replay: Replay) -> None:
        replay.insert(collected(self, env))
        self.learn.on(critic="critic_9")(replay.sample(8))

    with pytest.raises(LoopError, match=r"stage 'learn' asks for the cell 'critic_9', which cells\(\) does not make"):
        trace(toy(missing), CARTPOLE)

    def twice(self, env: Env, replay: Replay) -> None:
        replay.insert(collected(self, env))
        batch = replay.sample(8)
        self.learn(batch)
        self.learn.on(critic="critic")(batch)

    with pytest.raises(LoopError, match=r"stages 'learn' and 'learn#2' both write the cell 'critic'"):
        trace(toy(twice), CARTPOLE)


def test_play_must_not_write():
    class Writer(Toy):
        def play(self, obs):
            self.touch(obs)
            return self.act(obs)

        @stage
        def touch(self, obs, bonus: Writes):
            return bonus, {}

        loop = loop_with("learn")

    with pytest.raises(LoopError, match=r"play of Writer calls stage 'touch', which writes 'bonus'; what plays only"):
        trace(Writer(num_envs=4), CARTPOLE)


def test_play_is_for_any_number_of_environments():
    @stage
    def play(self, obs, shift: Reads):
        return (obs[:, 0] > shift).astype(jnp.int32)

    def cells(self, spec, key):
        return Toy.cells(self, spec, key) | {"shift": Tracked(jnp.zeros(spec.num_envs))}

    shifted = type("Shifted", (Toy,), {"loop": loop_with("learn"), "cells": cells, "play": play})
    play.name = "play"
    with pytest.raises(LoopError, match=r"^play of Shifted acts for 4 environments only, but other numbers are eval"):
        trace(shifted(num_envs=4), CARTPOLE)


def test_a_loop_knows_how_many_agents_there_are():
    counted = []

    def loop(self, env: Env, replay: Replay) -> None:
        counted.append(env.agents)
        loop_with("learn")(self, env, replay)

    trace(toy(loop), CARTPOLE)
    trace(toy(loop), EnvSpec("team", Box((4,)), Discrete(2), 4, agents=3))
    assert counted == [1, 3]
