"""The tuner on this machine: real probes, little time, nothing left behind."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import headrace
from headrace.errors import PlanError, UsageError
from headrace.graph import Plan, fuse, verify
from headrace.machine import Machine
from headrace.policies import POLICIES
from headrace.tune import Choice, cached, tune
from headrace.tune.measure import costs
from headrace.tune.model import Costs
from headrace.tune.probe import ProbeTask
from headrace.tune.timing import Moment

SMALL = {"hidden": (16,), "batch_size": 32, "warmup": 200, "replay_capacity": 2000}

SLOW = """
import time
import gymnasium as gym

class Slow(gym.Wrapper):
    def step(self, action):
        print("slow and talkative")
        time.sleep(600)
        return self.env.step(action)

def slow():
    return Slow(gym.make("CartPole-v1"))

class Broken(gym.Wrapper):
    def step(self, action):
        raise RuntimeError("the simulator is on strike")

def broken():
    return Broken(gym.make("CartPole-v1"))
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def placed(choice: Choice, algorithm: headrace.Algorithm, policy: str, machine: Machine) -> Plan:
    graph = headrace.trace(choice.settle(algorithm), "CartPole-v1")
    return verify(choice.place(fuse(POLICIES[policy](graph, machine, choice.replicas))), machine)


def probes() -> list[psutil.Process]:
    found = psutil.Process().children(recursive=True)
    return [one for one in found if one.status() != psutil.STATUS_ZOMBIE and "headrace.tune.probe" in one.cmdline()]


def test_a_real_probe_gives_a_plan_that_can_run() -> None:
    machine, algorithm, said = Machine.detect(), headrace.DQN(**SMALL), list[str]()
    choice = tune(algorithm, "CartPole-v1", "desktop", machine, seconds=600, say=said.append)
    assert probes() == []
    assert choice.expected is not None
    assert choice.expected > 100
    assert choice.unit == "frames/s"
    assert choice.batch_size == 32
    assert choice.repeat * 32 / 16 <= 512
    plan = placed(choice, algorithm, "desktop", machine)
    assert [fragment.repeat for fragment in plan.learners] == [choice.repeat]
    assert plan.graph.spec.num_envs == choice.num_envs
    assert all(core < machine.cores for fragment in plan.fragments for core in fragment.cores)
    assert cached(algorithm, "CartPole-v1", "desktop", machine) == choice
    assert said[0].startswith("dqn on CartPole-v1, desktop policy")
    assert "environments of a sampler" in said[1]
    assert said[-1].startswith("chosen: ")
    assert max(len(line) for text in said for line in text.splitlines()) <= 80


def test_an_on_policy_loop_keeps_its_environments() -> None:
    machine, algorithm = Machine.detect(), headrace.PPO(hidden=(16,), horizon=32, epochs=1)
    choice = tune(algorithm, "CartPole-v1", "desktop", machine, seconds=600, say=lambda text: None)
    assert (choice.num_envs, choice.repeat, choice.batch_size, choice.unit) == (8, 1, None, "steps/s")
    assert placed(choice, algorithm, "desktop", machine).collector.replicas == choice.replicas


def test_the_deadline_is_kept_with_a_slow_environment(home: Path) -> None:
    (home / "slow.py").write_text(SLOW)
    began = time.monotonic()
    choice = tune(
        headrace.DQN(**SMALL), f"{home}/slow.py:slow", "desktop", Machine.detect(), seconds=5, say=lambda text: None
    )
    assert time.monotonic() - began < 600  # or it would have waited for a step
    assert probes() == []
    assert choice.num_envs >= 1


def test_an_environment_that_fails_leaves_everything_as_usual(home: Path) -> None:
    (home / "slow.py").write_text(SLOW)
    said = list[str]()
    algorithm, env = headrace.DQN(**SMALL), f"{home}/slow.py:broken"
    choice = tune(algorithm, env, "desktop", Machine.detect(), seconds=600, say=said.append)
    assert (choice.num_envs, choice.expected) == (8, None)
    assert "the simulator is on strike" in " ".join(said[-1].split())
    assert cached(algorithm, env, "desktop", Machine.detect()) is None


def test_where_the_time_was_too_short_it_says_what_is_used() -> None:
    said, algorithm = list[str](), headrace.DQN(**SMALL)
    choice = tune(algorithm, "CartPole-v1", "desktop", Machine.detect(), seconds=0.75, say=said.append)
    assert choice.expected is None
    assert cached(algorithm, "CartPole-v1", "desktop", Machine.detect()) is None
    assert " ".join(said[-1].split()).startswith(
        "0.75 s were not enough to measure collecting and learning, so it runs as the policy has it: "
        "1 sampler, 8 environments, 8 updates fused, batch 32"
    )


def test_a_probe_dies_with_its_parent() -> None:
    script = (
        "import headrace; from headrace.machine import Machine; from headrace.tune import tune\n"
        "tune(headrace.DQN(hidden=(16,)), 'CartPole-v1', 'desktop', Machine.detect(), seconds=600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL)
    watched = psutil.Process(parent.pid)
    end = time.monotonic() + 600
    while not (children := watched.children()) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)
    assert children
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=600)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]


class Fake:
    """In place of the probes: costs in proportion to the work, less with every thread and every pass fused."""

    def __init__(self) -> None:
        self.groups: list[list[ProbeTask]] = []

    def __call__(self, groups: list[list[ProbeTask]], until: float) -> tuple[Costs, list[str]]:
        self.groups = groups
        lines: list[dict[str, object]] = []
        for task in (task for group in groups for task in group):
            lines += [{"envs": envs, "seconds": 1e-4 + envs * 5e-5, "memory": 1e6} for envs in task.sizes]
            for (repeat, size), fragment in itertools.product(task.programs, task.fragments):
                seconds = repeat * (5e-3 + size * 1e-6) / task.threads**0.5
                found = {"fragment": fragment["id"], "threads": task.threads, "repeat": repeat, "size": size}
                lines.append(found | {"seconds": seconds})
        return costs(lines), []

    @property
    def tasks(self) -> list[list[tuple[str, int, tuple[int, ...]]]]:
        return [[(task.role, task.threads, task.cores) for task in group] for group in self.groups]

    @property
    def sampler(self) -> ProbeTask:
        return self.groups[0][0]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr("headrace.tune.measured", made)
    return made


TWO = Machine(2, 1 << 34, ("cpu:0",))
EIGHT = Machine(8, 1 << 34, ("cpu:0",))


def quietly(algorithm: headrace.Algorithm, env: str, policy: str, machine: Machine, **options: int) -> Choice:
    return tune(algorithm, env, policy, machine, say=lambda text: None, **options)


def test_environments_that_the_user_set_stay(fake: Fake) -> None:
    choice = quietly(headrace.DQN(num_envs=6, **SMALL), "CartPole-v1", "desktop", TWO)
    assert choice.num_envs == 6
    assert (fake.sampler.sizes, fake.sampler.usual) == ((3, 6), 6)
    quietly(headrace.DQN(**SMALL), "CartPole-v1", "desktop", TWO)
    assert (fake.sampler.sizes, fake.sampler.usual) == ((1, 2, 4, 8, 16, 32), 8)


def test_replicas_that_the_user_set_stay(fake: Fake) -> None:
    choice = quietly(headrace.DQN(**SMALL), "CartPole-v1", "desktop", TWO, replicas=4)
    assert choice.replicas == 4
    assert cached(headrace.DQN(**SMALL), "CartPole-v1", "desktop", TWO) is None
    assert cached(headrace.DQN(**SMALL), "CartPole-v1", "desktop", TWO, 4) == choice


def test_the_batch_size_is_chosen_only_where_that_is_allowed(fake: Fake) -> None:
    assert quietly(headrace.DQN(**SMALL), "CartPole-v1", "desktop", TWO).batch_size == 32
    tuned = headrace.DQN(**SMALL, tune_batch_size=True)
    choice = quietly(tuned, "CartPole-v1", "desktop", TWO)
    assert choice.batch_size == 128
    assert fake.groups[0][1].programs[:3] == ((8, 32), (8, 64), (8, 128))
    assert choice.settle(tuned).config.batch_size == 128
    large = headrace.DQN(hidden=(16,), batch_size=64, warmup=200, tune_batch_size=True)
    assert quietly(large, "CartPole-v1", "desktop", TWO).batch_size == 128  # 256 would be more than the warm-up


def test_probes_of_a_group_share_no_core(fake: Fake) -> None:
    quietly(headrace.DQN(**SMALL), "CartPole-v1", "desktop", EIGHT)
    assert fake.tasks == [
        [("collect", 1, (7,)), ("learn", 1, (0,)), ("learn", 2, (1, 2)), ("learn", 4, (3, 4, 5, 6))],
        [("learn", 6, (0, 1, 2, 3, 4, 5))],
    ]


def test_where_they_take_turns_learning_may_have_every_core(fake: Fake) -> None:
    choice = quietly(headrace.PPO(hidden=(16,)), "CartPole-v1", "desktop", TWO)
    assert fake.tasks == [[("collect", 1, (1,)), ("learn", 1, (0,))], [("learn", 2, (0, 1))]]
    assert fake.sampler.sizes == (4, 8)
    assert choice.cores == {"collect": (0, 1), "learn": (0, 1)}


def test_an_accelerator_is_fed_by_one_thread(fake: Fake) -> None:
    machine = Machine(4, 1 << 34, ("gpu:0", "cpu:0"))
    choice = quietly(headrace.DQN(**SMALL), "CartPole-v1", "desktop", machine)
    assert fake.tasks == [[("collect", 1, (3,)), ("learn", 1, (0,))]]
    (learner,) = placed(choice, headrace.DQN(**SMALL), "desktop", machine).learners
    assert learner.device == "gpu:0"


def test_one_process_has_every_core_for_everything(fake: Fake) -> None:
    choice = quietly(headrace.DQN(**SMALL), "CartPole-v1", "single", TWO)
    assert fake.tasks == [[("collect", 2, (0, 1))], [("learn", 2, (0, 1))]]
    assert (choice.replicas, choice.cores) == (1, {})
    (learner,) = placed(choice, headrace.DQN(**SMALL), "single", TWO).learners
    assert learner.repeat == choice.repeat


@pytest.mark.parametrize("policy", ["desktop", "dual_device", "single_learner_coarse"])
@pytest.mark.parametrize("machine", [Machine(1, 1 << 34, ("cpu:0",)), TWO, EIGHT, Machine(128, 1 << 40, ("cpu:0",))])
def test_every_choice_is_a_plan_that_can_run(fake: Fake, policy: str, machine: Machine) -> None:
    algorithm = headrace.SAC(hidden=(16,))
    began = time.monotonic()
    choice = quietly(algorithm, "Pendulum-v1", policy, machine)
    assert time.monotonic() - began < 120  # not every way to deal out 128 cores is tried
    graph = headrace.trace(choice.settle(algorithm), "Pendulum-v1")
    plan = verify(choice.place(fuse(POLICIES[policy](graph, machine, choice.replicas))), machine)
    assert all(core < machine.cores for fragment in plan.fragments for core in fragment.cores)
    assert all(fragment.cores for fragment in plan.fragments)


def test_one_xla_program_is_left_alone(fake: Fake) -> None:
    said = list[str]()
    choice = tune(headrace.DQN(**SMALL), "gymnax:CartPole-v1", "single", TWO, say=said.append)
    assert choice == Choice(8, 1, 8, 32, {"all": ()}, "frames/s")
    assert said == ["dqn on gymnax:CartPole-v1, single policy, 2 cores: nothing to choose; it runs as it is."]
    assert fake.groups == []


def test_nonsense_is_refused_before_anything_starts(fake: Fake) -> None:
    with pytest.raises(UsageError, match="did you mean 'desktop'"):
        quietly(headrace.DQN(), "CartPole-v1", "desktp", TWO)
    with pytest.raises(UsageError, match="needs some seconds"):
        tune(headrace.DQN(), "CartPole-v1", "desktop", TWO, seconds=0)
    with pytest.raises(PlanError, match="use desktop"):
        quietly(headrace.DQN(), "CartPole-v1", "dual_device", TWO)
    with pytest.raises(PlanError, match="3 replicas"):
        quietly(headrace.DQN(), "CartPole-v1", "desktop", TWO, replicas=3)
    assert fake.groups == []


def test_what_disturbs_a_measurement_does_not_count() -> None:
    lines = [{"envs": 8, "seconds": s, "memory": 1.0} for s in (1.0, 9.0, 1.1, 1.2, 9.0, 9.0, 1.3, 9.0)]
    assert costs([*lines, {"done": True}]).collect == {8: 1.2}


def test_time_in_which_others_had_the_core_does_not_count() -> None:
    start = Moment(0.0, 0.0, 0.0)
    assert Moment(10.0, 4.0, 6.0).since(start, threads=1) == 4.0
    assert Moment(10.0, 0.1, 0.0).since(start, threads=1) == 10.0  # asleep
    assert Moment(10.0, 16.0, 4.0).since(start, threads=2) == 8.0
    assert Moment(10.0, 4.0, 9.0).since(start, threads=1) == 4.0  # one thread waited while another worked
