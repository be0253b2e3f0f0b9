"""The cost model, by hand-computed cases."""

from __future__ import annotations

import dataclasses

import pytest

import headrace
from headrace.graph import Plan, fuse
from headrace.machine import Machine
from headrace.policies import POLICIES
from headrace.tune.choice import Choice
from headrace.tune.measure import costs as summed
from headrace.tune.model import COPYING, CROSSING, GRADIENTS, REDUCING, SAMPLER, TURNS, Costs, Load, Part, Terms, load
from headrace.tune.search import Freedom, candidates, choose, layouts
from headrace.tune.tasks import fusable
from headrace.tune.tell import limit, sentence, tables
from headrace.types import tree_bytes

COLLECT, LEARN = Part("collect", steps=True, acts=1.0), Part("learn", learns=1.0)
CRITIC, ACTOR = Part("critic", learns=0.6), Part("actor", learns=0.4)
TERMS = Terms(cores=2, parts=(COLLECT, LEARN), per_insert=16.0, steps=1, size=256)
DUAL = dataclasses.replace(TERMS, parts=(COLLECT, CRITIC, ACTOR))
TURN = Terms(cores=2, parts=(COLLECT, LEARN), per_insert=1.0, steps=128, size=1024, turns=True)
FREE = Freedom(envs=True, replicas=True)


def choice(cores: dict[str, tuple[int, ...]], num_envs: int = 8, replicas: int = 1, repeat: int = 8) -> Choice:
    return Choice(num_envs, replicas, repeat, 256, cores)


def test_learner_and_sampler_on_cores_of_their_own() -> None:
    # 8 * 256 frames in 0.08 s are 25,600/s; 8 steps in 0.8 ms are 10,000/s, good for 160,000 frames/s.
    costs = Costs({8: 0.0008}, {("learn", 1, 8, 256): 0.08})
    found = load(choice({"collect": (1,), "learn": (0,)}), TERMS, costs)
    assert found is not None
    assert found.throughput == pytest.approx(25_600)
    assert found.busiest == "core 0"
    assert found.on["core 1"] == {SAMPLER: pytest.approx(1 / 160_000)}
    assert limit(TERMS, found) == "the learner is the bottleneck"


def test_what_shares_a_core_adds_up() -> None:
    costs = Costs({8: 0.0008}, {("critic", 1, 8, 256): 0.04, ("actor", 1, 8, 256): 0.03})
    critic, actor, sampler = 0.04 / 2048, 0.03 / 2048, 1 / 160_000
    beside_actor = load(choice({"collect": (1,), "critic": (0,), "actor": (1,)}), DUAL, costs)
    beside_critic = load(choice({"collect": (0,), "critic": (0,), "actor": (1,)}), DUAL, costs)
    one_each = load(choice({"collect": (0, 1), "critic": (0,), "actor": (1,)}, replicas=2), DUAL, costs)
    assert beside_actor is not None
    assert beside_critic is not None
    assert one_each is not None
    assert beside_actor.throughput == pytest.approx(1 / (actor + sampler))
    assert limit(DUAL, beside_actor) == "core 1, shared by actor and sampler, is the bottleneck"
    assert beside_critic.throughput == pytest.approx(1 / (critic + sampler))
    # Two samplers of four environments: 0.4 ms a pass by proportion, so each adds half.
    assert one_each.throughput == pytest.approx(1 / (critic + sampler / 2))


def test_a_sampler_beside_every_learner_takes_what_they_leave() -> None:
    learn = {("critic", 1, 8, 256): 0.04, ("actor", 1, 8, 256): 0.03}
    critic, actor = 0.04 / 2048, 0.03 / 2048
    roaming = choice({"collect": (0, 1), "critic": (0,), "actor": (1,)})
    found = load(roaming, DUAL, Costs({8: 0.0008}, learn))
    assert found is not None
    assert found.throughput == pytest.approx(2 / (critic + actor + 1 / 160_000))
    assert sum(found.on["core 0"].values()) == pytest.approx(sum(found.on["core 1"].values()))
    # Little to do: the actor's core is enough for it.
    found = load(roaming, DUAL, Costs({8: 0.0001}, learn))
    assert found is not None
    assert found.throughput == pytest.approx(1 / critic)
    assert found.on["core 0"] == {"critic": critic}
    # Much to do: it runs on one core at a time.
    found = load(roaming, DUAL, Costs({8: 0.016}, learn))
    assert found is not None
    assert found.throughput == pytest.approx(8 * 16 / 0.016)
    assert limit(DUAL, found) == "the sampler is the bottleneck"


def test_one_sampler_may_roam_only_where_all_cores_are_the_learners() -> None:
    learn = {("critic", 1, 8, 256): 0.04, ("actor", 1, 8, 256): 0.03, ("learn", 1, 8, 256): 0.07}
    usual = choice({"collect": (0, 1), "critic": (0,), "actor": (1,)})
    found = choose(usual, DUAL, Costs({8: 0.0008}, learn), FREE)
    assert found is not None
    assert (found.replicas, found.cores["collect"]) == (1, (0, 1))
    for one in candidates(usual, TERMS, Costs({8: 0.0008}, learn), FREE):
        assert len(one.cores["collect"]) == one.replicas


def test_on_an_accelerator_two_learners_add_up() -> None:
    costs = Costs({8: 0.0008}, {("critic", 1, 8, 256): 0.004, ("actor", 1, 8, 256): 0.003})
    learners = (dataclasses.replace(part, device="gpu:0") for part in (CRITIC, ACTOR))
    terms = dataclasses.replace(DUAL, cores=4, parts=(COLLECT, *learners))
    found = load(choice({"collect": (2, 3), "critic": (0,), "actor": (1,)}, replicas=2), terms, costs)
    assert found is not None
    assert found.busiest == "gpu:0"
    assert found.throughput == pytest.approx(2048 / 0.007)


def test_in_turns_collecting_and_learning_add_up() -> None:
    costs = Costs({4: 0.03, 8: 0.04}, {("learn", 1, 1, 1024): 0.02, ("learn", 2, 1, 1024): 0.015})
    one = Choice(8, 1, 1, None, {"collect": (1,), "learn": (0,)})
    two = Choice(8, 2, 1, None, {"collect": (0, 1), "learn": (0, 1)})
    found = load(one, TURN, costs)
    assert found is not None
    assert found.throughput == pytest.approx(1024 / (0.04 + 0.02))
    assert list(found.on) == [TURNS]
    assert limit(TURN, found) == "collecting takes 67% of the time, learning 33%"
    found = load(two, TURN, costs)
    assert found is not None
    assert found.throughput == pytest.approx(1024 / (0.03 + 0.015))
    # Two samplers that share one core take twice as long.
    found = load(Choice(8, 2, 1, None, {"collect": (1,), "learn": (0,)}), TURN, costs)
    assert found is not None
    assert found.throughput == pytest.approx(1024 / (0.06 + 0.02))


def test_what_was_not_measured_is_not_judged() -> None:
    costs = Costs({8: 0.0008}, {("learn", 1, 8, 256): 0.08})
    assert load(choice({"collect": (1,), "learn": (0,)}, repeat=16), TERMS, costs) is None
    assert load(choice({"collect": (1,), "learn": (0, 1)}), TERMS, costs) is None
    assert choose(choice({}), TERMS, Costs({}, costs.learn), FREE) is None
    assert choose(choice({}), TERMS, Costs({8: 0.1}, {}), FREE) is None


def test_a_pass_lies_on_the_line_through_its_neighbours() -> None:
    costs = Costs({2: 3.0, 4: 5.0, 8: 9.0}, {})
    assert [costs.collecting(envs) for envs in (1, 2, 6, 16)] == pytest.approx([2.0, 3.0, 7.0, 17.0])
    assert Costs({4: 2.0}, {}).collecting(8) == 4.0


def test_passes_fused_are_bounded_by_what_is_collected_meanwhile() -> None:
    assert fusable(8, size=256, per_insert=16, row=100) == [4, 8, 16, 32]  # 32 * 256 / 16 = 512
    assert fusable(8, size=512, per_insert=16, row=100) == [4, 8, 16]
    assert fusable(2, size=256, per_insert=1, row=100) == [1, 2]
    assert fusable(1, size=1024, per_insert=1, row=100) == [1]  # nothing else is possible
    assert fusable(8, size=256, per_insert=16, row=1 << 16) == [4, 8, 16]  # 16 * 256 * 64 KiB = 256 MiB


def test_layouts_of_two_cores() -> None:
    assert list(layouts(TERMS, [1])) == [
        {"collect": (1,), "learn": (0,)},
        {"collect": (0,), "learn": (0,)},
        {"collect": (0, 1), "learn": (0,)},
    ]
    dual = [layout["collect"] for layout in layouts(DUAL, [1])]
    assert dual == [(0,), (1,), (0, 1)]
    assert list(layouts(dataclasses.replace(DUAL, cores=1), [1])) == [{"collect": (0,), "critic": (0,), "actor": (0,)}]


def test_no_sampler_runs_beside_a_learner_of_several_threads() -> None:
    terms = dataclasses.replace(TERMS, cores=8)
    found = list(layouts(terms, [1, 2, 4, 6]))
    assert {"collect": (6, 7), "learn": (0, 1, 2, 3, 4, 5)} in found
    assert {"collect": (4, 5, 6, 7), "learn": (0, 1, 2, 3)} in found
    for layout in found:
        assert len(layout["learn"]) == 1 or not set(layout["learn"]) & set(layout["collect"])


LEARNER_BOUND = Costs(
    {1: 0.0003, 2: 0.0004, 4: 0.0006, 8: 0.0008, 16: 0.0015},
    {("learn", 1, 8, 256): 0.08, ("learn", 1, 16, 256): 0.158},
)


def test_what_is_as_good_as_the_usual_stays_as_usual() -> None:
    usual = choice({"collect": (1,), "learn": (0,)})
    found = choose(usual, TERMS, LEARNER_BOUND, FREE)  # 16 passes in a program gain 1.3 %: not enough
    assert found == dataclasses.replace(usual, expected=pytest.approx(25_600))


def test_a_collector_that_is_the_bottleneck_gets_more_environments_and_cores() -> None:
    usual = choice({"collect": (1,), "learn": (0,)})
    slow = Costs({8: 0.016, 16: 0.024}, {("learn", 1, 8, 256): 0.02})
    found = choose(usual, TERMS, slow, FREE)
    # One sampler of 16: 10,667 frames/s. Two of 16, one beside the learner: 0.024 / (32 * 16) + 0.02 / 2048 a frame.
    assert found is not None
    assert (found.num_envs, found.replicas, found.cores["collect"]) == (32, 2, (0, 1))
    assert found.expected == pytest.approx(1 / (0.024 / 512 + 0.02 / 2048))


def test_what_the_user_set_stays() -> None:
    usual = choice({"collect": (1,), "learn": (0,)})
    slow = Costs({8: 0.016, 16: 0.024}, {("learn", 1, 8, 256): 0.02})
    fixed = list(candidates(usual, TERMS, slow, Freedom(envs=False, replicas=True)))
    assert {found.num_envs for found in fixed} == {8}
    assert {found.replicas for found in fixed} == {1, 2}
    alone = list(candidates(usual, TERMS, slow, Freedom(envs=True, replicas=False)))
    assert {found.replicas for found in alone} == {1}
    assert {found.num_envs for found in alone} == {8, 16}


def test_one_pass_collects_no_more_than_one_program_learns_from() -> None:
    usual = choice({"collect": (1,), "learn": (0,)}, repeat=1)
    costs = Costs({8: 0.01, 16: 0.011, 32: 0.012}, {("learn", 1, 1, 256): 0.01})  # 16 inserts earn one pass
    assert max(found.num_envs for found in candidates(usual, TERMS, costs, FREE)) == 16


def test_environments_fit_into_memory() -> None:
    usual = choice({"collect": (1,), "learn": (0,)})
    costs = Costs({8: 0.01, 16: 0.011, 32: 0.012}, {("learn", 1, 8, 256): 0.01}, memory=1e9)
    found = list(candidates(usual, TERMS, costs, Freedom(envs=True, replicas=True, memory=16e9)))
    assert {one.num_envs for one in found} == {8, 16}


def test_it_says_what_was_measured_and_chosen_in_80_columns() -> None:
    usual = choice({"collect": (1,), "learn": (0,)})
    found = load(usual, TERMS, LEARNER_BOUND)
    assert found is not None
    said = tables(TERMS, LEARNER_BOUND).splitlines()
    assert [line.split() for line in said] == [
        ["environments", "of", "a", "sampler", "1", "2", "4", "8", "16"],
        ["steps/s", "on", "one", "core", "3.3k", "5.0k", "6.7k", "10.0k", "10.7k"],
        ["updates", "fused", "8", "16"],
        ["frames/s", "learner,", "1", "thread", "25.6k", "25.9k"],
    ]
    words = sentence(dataclasses.replace(usual, expected=found.throughput), TERMS, found)
    assert max(len(line) for line in (*said, *words.splitlines())) <= 80
    assert " ".join(words.split()) == (
        "chosen: 1 sampler with 8 environments on core 1, learner on core 0, 8 updates fused, batch 256: "
        "25.6k frames/s expected; the learner is the bottleneck."
    )


def test_other_programs_are_counted_into_what_is_expected() -> None:
    """Beside another that takes as much of each core, half is expected, and the choice is the same."""
    lines = [{"envs": 8, "seconds": 0.001, "wall": 0.002, "memory": 1.0}] * 4
    lines += [{"fragment": "learn", "threads": 1, "repeat": 8, "size": 256, "seconds": 0.08, "wall": 0.16}] * 4
    crowded, alone = summed(lines), summed([{**line, "wall": line["seconds"]} for line in lines])
    assert (crowded.given, alone.given) == (0.5, 1.0)
    usual, freedom = choice({"collect": (1,), "learn": (0,)}), Freedom(envs=False, replicas=False)
    busy, quiet = (choose(usual, TERMS, found, freedom) for found in (crowded, alone))
    assert dataclasses.replace(busy, expected=None) == dataclasses.replace(quiet, expected=None)
    assert busy.expected == pytest.approx(quiet.expected / 2) == pytest.approx(12_800)
    found = load(busy, TERMS, crowded)
    words = " ".join(sentence(busy, TERMS, found, given=crowded.given).split())
    assert "12.8k frames/s expected beside other programs, which leave 50% of the cores; the learner is" in words


def test_the_widest_table_fits() -> None:
    learn = {("learn_acting", 2, k, size): 0.01 for k in (4, 8, 16, 32) for size in (256, 1024)}
    said = tables(DUAL, Costs({2**i: 0.00001 for i in range(6)}, learn))
    assert max(len(line) for line in said.splitlines()) <= 80
    assert "…" not in said


STEP, LEARN_ONE, LEARN_TWO = 1e-4, 4e-4, 3e-4


def judged(algorithm: headrace.Algorithm, policy: str) -> tuple[Plan, Terms, Load]:
    """A plan for two cores, by costs for each item: collecting grows with the environments, so acting is free."""
    machine = Machine(2, 1 << 34, ("cpu:0",))
    plan = fuse(POLICIES[policy](headrace.trace(algorithm, "Pendulum-v1"), machine, None))
    terms, envs = Terms.of(plan, machine), plan.graph.spec.num_envs
    collect = {n: n * terms.steps * terms.per_insert * STEP for n in (envs // 2, envs)}
    learn = {("all", 1, 1, terms.size): terms.size * LEARN_ONE, ("all", 2, 1, terms.size): terms.size * LEARN_TWO}
    found = load(Choice.of(plan), terms, Costs(collect, learn, whole=True))
    assert found is not None
    return plan, terms, found


def test_a_plan_in_one_process_takes_turns_with_every_core() -> None:
    _, terms, found = judged(headrace.PPO(), "single")
    assert terms.alone
    assert found.on == {TURNS: {SAMPLER: pytest.approx(STEP), "all": pytest.approx(LEARN_TWO)}}


def test_replicas_of_the_loop_share_the_work_and_exchange_gradients() -> None:
    algorithm = headrace.PPO(num_envs=8, horizon=32, epochs=2, minibatch_size=64)
    plan, _, found = judged(algorithm, "multiple_learners")
    message = REDUCING + tree_bytes(plan.graph.cells) / COPYING
    assert found.on[TURNS] == {
        SAMPLER: pytest.approx(STEP / 2),
        "loop": pytest.approx(LEARN_ONE / 2),
        GRADIENTS: pytest.approx(message * 2 * 4 / 256),
    }
    assert "exchanging gradients" in limit(TERMS, found)


def test_environments_apart_wait_for_their_actions_at_every_step() -> None:
    _, terms, found = judged(headrace.PPO(num_envs=8), "environments")
    assert [(part.id, part.steps, part.acts, part.learns) for part in terms.parts] == [
        ("environments", True, 0.0, 0.0),
        ("learn", False, 1.0, 1.0),
    ]
    assert found.on[TURNS] == {SAMPLER: pytest.approx(STEP + CROSSING / 8), "learn": pytest.approx(LEARN_TWO)}


def test_two_learners_do_what_their_networks_take() -> None:
    plan, terms, found = judged(headrace.SAC(policy_delay=2), "dual_device")
    cells = {name: tree_bytes(cell) for name, cell in plan.graph.cells.items()}
    critic = cells["actor"] + cells["log_alpha"] + cells["critic"] + cells["target"]
    actor = (cells["critic"] + cells["actor"] + cells["log_alpha"]) / 2  # in every other pass
    judging, acting = terms.learners
    assert judging.learns == pytest.approx(critic / (critic + actor))
    assert judging.learns + acting.learns == pytest.approx(1)
    published = CROSSING + cells["critic"] / COPYING
    items = plan.learners[0].repeat * terms.size
    assert found.on["core 0"]["learn_rest"] == pytest.approx(judging.learns * LEARN_ONE + published / items)


def test_a_number_of_threads_between_two_measured_lies_between_them() -> None:
    costs = Costs({}, {("all", 1, 8, 256): 0.4, ("all", 4, 8, 256): 0.1}, whole=True)
    seconds = [costs.learning(LEARN, threads, 8, 256) for threads in (1, 2, 4, 8)]
    assert seconds == pytest.approx([0.4, 0.2, 0.1, 0.1])
    assert costs.learning(ACTOR, 1, 16, 256) == pytest.approx(0.4 * 0.8)
