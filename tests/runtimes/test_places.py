"""What each process of a plan would be started with, on machines that are not there; and devices that are simulated."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import headrace
from headrace.graph import Fragment, cut, fuse, trace, verify
from headrace.graph.plan import with_services
from headrace.machine import Machine
from headrace.policies import POLICIES
from headrace.runtimes import Options
from headrace.runtimes.places import (
    asked_services,
    cores_of,
    device_variables,
    jax_device,
    process_kind,
    service_members,
    training_members,
    visible_devices,
)
from headrace.types import Box, Discrete, EnvSpec

GPUS = Machine(cores=8, memory=1 << 36, devices=("cuda:0", "cuda:1", "cpu:0"))
CPUS = Machine(cores=8, memory=1 << 36, devices=("cpu:0",))
CONTINUOUS = EnvSpec("toy", Box((3,)), Box((1,), bounded=True), 8)
DISCRETE = EnvSpec("toy", Box((3,)), Discrete(2), 8)

CPU = {"JAX_PLATFORMS": "cpu"}


def gpu(number: int, alone: bool) -> dict[str, str]:
    own = {"JAX_PLATFORMS": "cuda,cpu", "CUDA_VISIBLE_DEVICES": str(number)}
    return own | {"XLA_PYTHON_CLIENT_PREALLOCATE": "true" if alone else "false"}


def seen(algorithm, spec, policy: str, replicas: int | None = None) -> dict[str, dict[str, str]]:
    """The variables of each process, by its name."""
    plan = verify(fuse(POLICIES[policy](trace(algorithm, spec), GPUS, replicas), GPUS.cores), GPUS)
    plan = with_services(plan, asked_services(Options(record_every=1.0)))
    everybody = [*training_members(plan), *service_members(plan)]
    return {member.name: device_variables(member, everybody) for member in everybody}


def test_only_a_learner_sees_its_gpu_and_has_all_of_its_memory():
    found = seen(headrace.SAC(hidden=(8,)), CONTINUOUS, "desktop", 2)
    assert found == {
        "sampler 0": CPU, "sampler 1": CPU, "learner 0": gpu(0, alone=True), "evaluator 0": CPU, "viewer 0": CPU
    }  # fmt: skip


def test_two_learners_see_one_gpu_each():
    found = seen(headrace.SAC(hidden=(8,)), CONTINUOUS, "dual_device", 1)
    assert (found["learner 0"], found["learner 1"]) == (gpu(0, alone=True), gpu(1, alone=True))
    assert found["sampler 0"] == CPU


def test_those_who_share_a_gpu_take_its_memory_as_they_need_it():
    found = seen(headrace.PPO(hidden=(8,)), DISCRETE, "single_learner_coarse", 2)
    assert [found[name] for name in ("sampler 0", "sampler 1", "learner 0")] == [gpu(0, alone=False)] * 3


def test_who_acts_sees_the_gpu_and_who_steps_does_not():
    found = seen(headrace.PPO(hidden=(8,)), DISCRETE, "single_learner_fine", 4)
    assert found.pop("loop 0") == gpu(0, alone=True)
    assert list(found.values()) == [CPU] * 6


SAC = {"hidden": (8,), "num_envs": 8}
ENVS, REST = ("env.observe", "env.step"), ("replay.insert", "replay.sample", "learn_critic", "learn_actor")


def test_a_process_is_called_by_what_its_fragment_does_and_counted_by_that_name():
    graph = trace(headrace.SAC(**SAC), CONTINUOUS)
    fragments = (
        Fragment("a", ENVS, replicas=2),
        Fragment("b", ("act",)),
        Fragment("c", REST[:1]),
        Fragment("d", REST[1:2]),
        Fragment("e", REST[2:3]),
        Fragment("f", REST[3:]),
    )
    plan = verify(cut(graph, "mine", fragments, staleness=1), GPUS)
    kinds = {fragment.id: process_kind(plan, fragment) for fragment in plan.fragments}
    assert len({kinds[name] for name in "abcd"}) == 4  # what acts alone has a name of its own
    assert {name: kinds[name] for name in "acdef"} == {
        "a": "environment", "c": "store", "d": "drawer", "e": "learner", "f": "learner"
    }  # fmt: skip
    names = [member.name for member in training_members(plan)]
    assert names == [
        "environment 0",
        "environment 1",
        f"{kinds['b']} 0",
        "store 0",
        "drawer 0",
        "learner 0",
        "learner 1",
    ]
    members = [(member.fragment, member.replica, member.service) for member in training_members(plan)]
    assert members[:2] == [("a", 0, False), ("a", 1, False)]
    whole = POLICIES["central"](trace(headrace.A3C(num_envs=8, hidden=(8,)), DISCRETE), GPUS, 2)
    assert [member.name for member in training_members(whole)] == ["loop 0", "loop 1", "applier 0"]
    watching = service_members(with_services(whole, asked_services(Options(record_every=1.0))))
    assert [(member.name, member.device, member.service) for member in watching] == [
        ("evaluator 0", "cpu:0", True),
        ("viewer 0", "cpu:0", True),
    ]


def test_cores_are_dealt_out_among_those_who_share_a_fragment():
    plan = POLICIES["desktop"](trace(headrace.SAC(**SAC), CONTINUOUS), CPUS, 2)
    plan = with_services(plan, asked_services(Options()))
    present = [10, 11, 12, 13, 14, 15, 16, 17]
    found = {
        member.name: cores_of(plan, member, present) for member in (*training_members(plan), *service_members(plan))
    }
    assert found == {
        "sampler 0": ([16], 1),
        "sampler 1": ([17], 1),
        "learner 0": (present[:6], 6),
        "evaluator 0": ([16, 17], 1),
    }


def test_numbers_count_those_that_this_process_is_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 6")
    assert visible_devices(["cuda:1"], alone=True)["CUDA_VISIBLE_DEVICES"] == "6"
    assert visible_devices(["cuda:1", "cpu:0", "cuda:0"], alone=False)["CUDA_VISIBLE_DEVICES"] == "4,6"


def test_simulated_devices_are_those_of_the_plan():
    text = (
        "from headrace.runtimes.places import jax_device as at; print(at('cpu:0', ['cpu:0']), at('cpu:1', ['cpu:1']))"
    )
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["cpu:0", "cpu:1"]
    assert jax_device("cpu:0", ["cpu:0"]).id == 0
