"""lockstep: every request gets its own answer."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.channels.lockstep import Client, Lockstep, Server
from headrace.channels.memory import Layout
from headrace.errors import OverdueError, PeerGone

from .peers import TIMEOUT, ask, asking, f32, killed, make, result, spawn, until


def answer(server, requests):
    for replica, arrays in requests:
        assert (arrays["obs"] == arrays["obs"][0, 0]).all()
        server.reply(replica, {"action": np.full((4, 6), 2 * arrays["obs"][0, 0] + replica)})


def test_clients_of_other_processes_each_get_their_answers_also_after_one_was_killed():
    memory, (flags, lockstep) = make(asking)
    server = Server(lockstep)
    clients = [spawn(ask, memory, replica=0, calls=3_000), spawn(ask, memory, replica=1, calls=300, hang_at=200)]
    until(lambda: answer(server, server.poll()) or flags[1])
    killed(clients[1])
    assert (lockstep.asked[1], lockstep.answered[1]) == (200, 200)
    clients[1] = spawn(ask, memory, replica=1, calls=300)
    while lockstep.answered.tolist() != [3_000, 500]:
        answer(server, server.gather(1, TIMEOUT, lambda: any(client.poll() is None for client in clients)))
    assert [result(client) for client in clients] == [3_000, 300]
    memory.close()


def pair(replicas=3):
    lockstep = Lockstep(Layout(np.zeros(1 << 14, np.uint8)), f32(2), f32(1), replicas)
    return lockstep, Server(lockstep), [Client(lockstep, replica) for replica in range(replicas)]


def test_requests_are_polled_in_the_order_of_replicas_and_lie_side_by_side():
    lockstep, server, clients = pair()
    assert server.poll() == []
    for replica in (2, 0):
        with pytest.raises(OverdueError, match="the server's reply"):
            clients[replica].call(np.full(2, replica + 5), 0.001, lambda: True)
    assert [request.replica for request in server.poll()] == [0, 2]
    assert lockstep.requests.tolist() == [[5, 5], [0, 0], [7, 7]]
    with pytest.raises(OverdueError, match="3 requests"):
        server.gather(3, 0.001, lambda: True)
    assert len(server.gather(2, 0.001, lambda: True)) == 2
    server.reply(2, np.ones(1))
    assert [request.replica for request in server.poll()] == [0]


def test_a_replaced_client_waits_for_its_predecessors_answer_and_a_replaced_server_finds_the_request():
    lockstep, _, clients = pair()
    with pytest.raises(PeerGone):
        clients[1].call(np.full(2, 1.0), TIMEOUT, lambda: False)
    server, successor = Server(lockstep), Client(lockstep, 1)
    with pytest.raises(OverdueError):
        successor.call(np.full(2, 2.0), 0.001, lambda: True)
    ((replica, arrays),) = server.poll()
    assert (replica, arrays.tolist()) == (1, [1, 1])
    server.reply(1, np.zeros(1))

    def served():
        for request in server.poll():
            server.reply(request.replica, request.arrays[:1] * 10)
        return True

    assert successor.call(np.full(2, 2.0), TIMEOUT, served).tolist() == [20]
