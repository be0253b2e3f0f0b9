"""Environments that are stepped in processes of their own, and what makes several of them one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from headrace.channels.lockstep import Client, Lockstep, Server
from headrace.envs import Episode, HostEnv, Step, make
from headrace.envs.base import seeds
from headrace.graph import Plan
from headrace.runtimes.hosted import hosted
from headrace.runtimes.part import sets_of
from headrace.runtimes.worker import PATIENCE, Worker
from headrace.types import Array, EnvSpec, Tree

STEP = -1
"""In place of a seed: a request to step, not to reset."""


class Joined(HostEnv):
    """Environments of several workers as one."""

    def __init__(self, spec: EnvSpec, parts: Sequence[HostEnv]):
        self.spec = spec
        self.parts = parts

    def reset(self, seed: int) -> Tree:
        own = seeds(seed, len(self.parts))
        return _join([part.reset(seed) for part, seed in zip(self.parts, own, strict=True)])

    def step(self, action: Array) -> Step:
        self.send(action)
        return self.receive()

    def send(self, action: Array) -> None:
        for part, rows in zip(self.parts, np.split(action, len(self.parts)), strict=True):
            part.send(rows)

    def receive(self) -> Step:
        steps = [part.receive() for part in self.parts]
        obs, next_obs = [step.obs for step in steps], [step.next_obs for step in steps]
        whole = Step(*(_join(column) for column in zip(*steps, strict=True)))
        # So that whoever acts next need not look whether they differ.
        return whole if any(a is not b for a, b in zip(obs, next_obs, strict=True)) else whole._replace(obs=whole[4])

    def drain(self) -> list[Episode]:
        return [episode for part in self.parts for episode in part.drain()]

    def render(self) -> np.ndarray[Any, Any] | None:
        return self.parts[0].render()

    def close(self) -> None:
        for part in self.parts:
            part.close()


def _join(parts: Sequence[Tree]) -> Tree:
    return parts[0] if len(parts) == 1 else jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


class RemoteEnv(HostEnv):
    """One worker's environments, as the process that acts sees them; their episodes are reported by the worker."""

    def __init__(self, spec: EnvSpec, lockstep: Lockstep, place: int, alive: Callable[[], bool]):
        self.spec = spec
        self.client = Client(lockstep, place)
        self.alive = alive
        self.action = np.zeros_like(self.client.request["action"])

    def reset(self, seed: int) -> Tree:
        reply = self.client.call({"action": self.action, "seed": np.int64(seed)}, PATIENCE, self.alive)
        return jax.tree.map(np.copy, reply["step"].obs)

    def step(self, action: Array) -> Step:
        self.send(action)
        return self.receive()

    def send(self, action: Array) -> None:
        self.client.send({"action": action, "seed": np.int64(STEP)}, PATIENCE, self.alive)

    def receive(self) -> Step:
        reply = self.client.receive(PATIENCE, self.alive)
        step: Step = jax.tree.map(np.copy, reply["step"])  # the worker writes the next one into the same place
        return step if reply["ended"][0] else step._replace(obs=step.next_obs)

    def drain(self) -> list[Episode]:
        return []

    def render(self) -> np.ndarray[Any, Any] | None:
        return None

    def close(self) -> None:
        """The worker closes them."""


def local_envs(plan: Plan, env: Any) -> list[HostEnv]:
    """The environments of one part of a run, all stepped in this process."""
    if not plan.remote:
        return _own(plan, env, sets_of(plan))
    each = plan.graph.spec.num_envs // (plan.collector.replicas * plan.collector.groups)
    return _groups(plan, lambda place: hosted(make(env, each)))


def worker_envs(worker: Worker) -> list[HostEnv]:
    """The environments of a process that acts: its own, or those of other processes."""
    plan, channel = worker.plan, worker.shared.lockstep
    if channel is None:
        return _own(plan, worker.env, sets_of(plan) if plan.loops else 1)
    spec = plan.graph.spec.with_envs(plan.graph.spec.num_envs // channel.replicas)
    return _groups(plan, lambda place: RemoteEnv(spec, channel, place, worker.alive))


def _own(plan: Plan, env: Any, sets: int) -> list[HostEnv]:
    return [hosted(make(env, plan.graph.spec.num_envs // plan.collecting)) for _ in range(sets)]


def _groups(plan: Plan, part: Callable[[int], HostEnv]) -> list[HostEnv]:
    """Environments in groups, each spread over all workers; `part` makes those at one place."""
    collector, spec = plan.collector, plan.graph.spec
    each = spec.with_envs(spec.num_envs // collector.groups)
    places = np.arange(collector.groups * collector.replicas).reshape(collector.groups, -1)
    return [Joined(each, [part(int(place)) for place in group]) for group in places]


def step(worker: Worker) -> None:
    """Step environments for whoever acts, until told to stop."""
    shared, replica, plan = worker.shared, worker.task.replica, worker.plan
    channel = shared.lockstep
    assert channel is not None
    places = [group * plan.collector.replicas + replica for group in range(plan.collector.groups)]
    number = plan.graph.spec.num_envs // channel.replicas
    server = Server(channel, places)
    envs = {place: hosted(make(worker.env, number)) for place in places}
    fresh = set(places)
    worker.begin()
    try:
        while worker.wait(lambda: bool(server.poll())):
            for request in server.poll():
                env, place = envs[request.replica], request.replica
                seed = int(request.arrays["seed"][0])
                if place in fresh:
                    worker.begin()
                else:
                    shared.beat(worker.who)  # it may never have to wait, and so not say that it lives
                    shared.steps[worker.who] += 1
                if seed != STEP:
                    obs = env.reset(seed)
                    still = np.zeros(number, bool)
                    reply = Step(obs, np.zeros(number, np.float32), still, still, obs)
                elif place in fresh:
                    reply = _lost(channel, place, env.reset(int(shared.steps[worker.who]) + worker.task.seed), number)
                else:
                    reply = env.step(request.arrays["action"])
                fresh.discard(place)
                server.reply(place, {"step": reply, "ended": reply.obs is not reply.next_obs})
                shared.report(replica, env.drain())
    finally:
        for env in envs.values():
            env.close()


def _lost(channel: Lockstep, place: int, obs: Tree, number: int) -> Step:
    """What a worker answers whose predecessor died in an episode: it ended there, where it was last seen."""
    last = jax.tree.map(lambda leaf: leaf[place].copy(), channel.replies["step"])
    seen = last.obs if bool(channel.replies["ended"][place][0]) else last.next_obs
    cut = np.ones(number, bool)
    return Step(obs, np.zeros(number, np.float32), ~cut, cut, seen)
