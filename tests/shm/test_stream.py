"""stream: every step, in order and whole, whatever the numbers of replicas on both sides and whoever dies."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PeerGone
from headrace.shm.memory import Arena
from headrace.shm.stream import Receiver, Ring, Sender
from headrace.shm.wait import wait

from .peers import (
    LANES,
    LAYOUTS,
    SENDS,
    TIMEOUT,
    f32,
    is_sent,
    killed,
    lanes,
    make,
    receive,
    result,
    ring_of,
    rings,
    send,
    sent,
    spawn,
    until,
)

NUMBERS = [(1, 1), (1, 3), (3, 1), (2, 2), (2, 4), (4, 2), (2, 6), (6, 3), (1, 12), (12, 1)]


def room():
    return Arena(np.zeros(1 << 17, np.uint8))


def pair(layout="stacked", slots=2):
    ring = ring_of(room(), layout, 1, 1, slots)
    return ring, Sender(ring, 0), Receiver(ring, 0), lanes(0, 1)


def send_pass(sender, number, own, generation=0):
    for step in range(sender.ring.steps):
        sender.send(number, step, sent(sender.ring, own, number, step, generation))


@pytest.mark.parametrize(("senders", "receivers"), [(1, 2), (2, 1), (2, 2)])
def test_nothing_is_lost_torn_or_reordered_between_processes(senders, receivers):
    memory, (_, made) = make(partial(rings, senders=senders, receivers=receivers))
    numbers = {"senders": senders, "receivers": receivers}
    processes = [spawn(receive, memory, place=place, **numbers) for place in range(receivers)]
    processes += [spawn(send, memory, place=place, **numbers) for place in range(senders)]
    assert [result(process) for process in processes] == [SENDS] * (senders + receivers)
    for ring in made.values():
        assert ring.produced.tolist() == [SENDS * ring.steps] * senders
        assert ring.consumed.tolist() == [SENDS] * receivers
    memory.close()


def test_a_sender_killed_half_way_through_a_slot_is_replaced_and_what_it_announced_stays():
    memory, (flags, made) = make(partial(rings, senders=2, receivers=1))
    ends = {layout: Receiver(ring, 0) for layout, ring in made.items()}
    ring = made["stacked"]
    seen = [set(), set()]

    def take(number, alive):
        """Take one pass of each ring, and note which generation of each sender wrote each step."""
        for layout, receiver in ends.items():
            wait(partial(receiver.ready, number, made[layout].steps - 1), TIMEOUT, alive)
            arrays = receiver.take(number)
            for step in range(made[layout].steps):
                for place in range(2):
                    own = lanes(place, 2)
                    part = [np.take(array, own, axis=made[layout].axis) for array in arrays]
                    (generation,) = (
                        g for g in (1, 2, 3) if is_sent(made[layout], part, own, number, step, generation=g)
                    )
                    if layout == "stacked":
                        seen[place].add((generation, number, step))
            receiver.release(number)

    numbers = {"senders": 2, "receivers": 1}
    other = spawn(send, memory, place=0, generation=1, **numbers)
    first = spawn(send, memory, place=1, generation=1, half_at=[100, 1], **numbers)
    for number in range(100):
        take(number, lambda: first.poll() is None)
    until(lambda: flags[1] and ends["stacked"].produced[0] > 302)
    killed(first)
    assert ring.produced[1] == 301
    assert ends["stacked"].ready(100, 0)
    assert not ends["stacked"].ready(100, 1)
    before = [array[0].copy() for array in ends["stacked"].take(100)]
    with pytest.raises(PeerGone):
        wait(partial(ends["stacked"].ready, 100, 1), TIMEOUT, lambda: False)
    second = spawn(send, memory, place=1, generation=2, **numbers)
    until(lambda: ends["stacked"].ready(100, 2))
    after = [array[0] for array in ends["stacked"].take(100)]
    assert all(np.array_equal(had, has) for had, has in zip(before, after, strict=True))
    for number in range(100, 200):
        take(number, lambda: second.poll() is None)
    killed(second)  # wherever it is
    third = spawn(send, memory, place=1, generation=3, **numbers)
    for number in range(200, SENDS):
        take(number, lambda: third.poll() is None)
    assert [result(process) for process in (other, third)] == [SENDS] * 2
    every = {(number, step) for number in range(SENDS) for step in range(3)}
    assert seen[0] == {(1, number, step) for number, step in every}
    assert {(number, step) for _, number, step in seen[1]} == every
    assert len(seen[1]) == len(every)
    generations = [generation for generation, *_ in sorted(seen[1], key=lambda found: found[1:])]
    assert generations[:304] == [1] * 301 + [2] * 3  # its successor announced only what it had not
    assert generations == sorted(generations)
    assert generations[-1] == 3
    memory.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("senders", "receivers"), NUMBERS)
def test_what_is_sent_is_sliced_anew_for_those_who_receive(layout, senders, receivers):
    ring = ring_of(room(), layout, senders, receivers)
    for number in range(3):
        for place in range(senders):
            sender = Sender(ring, place)
            assert sender.free(number)
            send_pass(sender, number, lanes(place, senders))
        for place in range(receivers):
            receiver = Receiver(ring, place)
            for step in range(ring.steps):
                assert is_sent(ring, receiver.take(number), lanes(place, receivers), number, step)
            receiver.release(number)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_taken_are_views_of_what_was_sent(layout):
    ring = ring_of(room(), layout, 2, 4)
    owned = [array for slot in ring.views(1, 2) for array in slot]
    for place in (2, 3):
        for number in range(2):
            taken = Receiver(ring, place).take(number)
            assert all(np.shares_memory(*both) for both in zip(taken, owned[2 * number :][:2], strict=True))
            assert not any(np.shares_memory(*both) for both in zip(taken, owned[2 - 2 * number :][:2], strict=True))


def test_each_step_is_announced_as_it_is_written():
    ring, sender, receiver, own = pair()
    for number in range(5):
        for step in range(ring.steps):
            assert not receiver.ready(number, step)
            sender.send(number, step, sent(ring, own, number, step))
            assert receiver.ready(number, step)
            assert ring.produced[0] == number * ring.steps + step + 1
            held = receiver.take(number)
            assert all(is_sent(ring, held, own, number, earlier) for earlier in range(step + 1))
        receiver.release(number)


def test_a_step_that_was_announced_stays_as_it_was():
    ring, sender, receiver, own = pair()
    for step in range(2):
        sender.send(0, step, sent(ring, own, 0, step))
    send_pass(Sender(ring, 0), 0, own, generation=1)  # a successor, which begins with the first step
    assert [is_sent(ring, receiver.take(0), own, 0, step, generation=step // 2) for step in range(3)] == [True] * 3
    assert ring.produced[0] == 3
    stands = Sender(ring, 0).send(0, 1, sent(ring, own, 0, 1, generation=1))
    for held, first in zip(stands, sent(ring, own, 0, 1), strict=True):
        np.testing.assert_array_equal(held, first)


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_a_sender_is_ahead_by_no_more_than_the_slots(slots):
    _, sender, receiver, own = pair("plain", slots)
    for number in range(slots):
        assert sender.free(number)
        send_pass(sender, number, own)
    assert not sender.free(slots)
    for number in range(slots):
        assert is_sent(sender.ring, receiver.take(number), own, number, 0)
        receiver.release(number)
        assert sender.free(number + slots)
        assert not sender.free(number + slots + 1)


def test_a_slot_is_free_when_the_last_of_its_receivers_has_let_go_of_it():
    ring = ring_of(room(), "plain", 2, 4, slots=1)
    senders, receivers = [Sender(ring, i) for i in range(2)], [Receiver(ring, i) for i in range(4)]
    for place, sender in enumerate(senders):
        send_pass(sender, 0, lanes(place, 2))
    receivers[3].release(0)
    assert [sender.free(1) for sender in senders] == [False, False]
    receivers[2].release(0)
    assert [sender.free(1) for sender in senders] == [False, True]  # not held up by receivers of the other one


def test_a_step_is_there_when_the_last_of_its_senders_has_announced_it():
    ring = ring_of(room(), "plain", 4, 2)
    senders, receivers = [Sender(ring, i) for i in range(4)], [Receiver(ring, i) for i in range(2)]
    send_pass(senders[1], 0, lanes(1, 4))
    assert [receiver.ready(0, 0) for receiver in receivers] == [False, False]
    send_pass(senders[0], 0, lanes(0, 4))
    assert [receiver.ready(0, 0) for receiver in receivers] == [True, False]  # nor by senders of the other one


def test_a_pass_that_was_let_go_of_stays_so():
    ring, _, receiver, _ = pair()
    receiver.release(3)
    receiver.release(1)  # as a successor does that begins a pass earlier
    assert ring.consumed.tolist() == [4]


def test_a_replaced_receiver_sees_again_what_its_predecessor_had_not_let_go_of():
    ring, sender, receiver, own = pair()
    for number in range(2):
        send_pass(sender, number, own)
    receiver.release(0)
    receiver.take(1)
    successor = Receiver(ring, 0)
    number = int(successor.consumed[0])
    assert number == 1
    assert not sender.free(3)
    assert all(is_sent(ring, successor.take(number), own, number, step) for step in range(ring.steps))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("senders", "receivers"), [(1, 1), (2, 4), (4, 2)])
def test_bytes_that_crossed_are_those_sent_by_all(layout, senders, receivers):
    ring = ring_of(room(), layout, senders, receivers, slots=4)
    assert ring.carried == 0
    crossed = 0
    for number in range(3):
        for place in range(senders):
            for step in range(ring.steps):
                leaves = sent(ring, lanes(place, senders), number, step)
                Sender(ring, place).send(number, step, leaves)
                Sender(ring, place).send(number, step, leaves)  # nothing crosses twice
                crossed += sum(leaf.nbytes for leaf in leaves)
                assert ring.carried == crossed


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("passes", [0, 7])
def test_a_ring_that_is_restarted_is_empty_and_goes_on_from_there(layout, passes):
    ring = ring_of(room(), layout, 1, 2, slots=2)
    sender, receivers = Sender(ring, 0), [Receiver(ring, 0), Receiver(ring, 1)]
    for number in range(2):
        send_pass(sender, number, lanes(0, 1))
    receivers[1].release(0)
    ring.restart(passes)
    assert ring.produced.tolist() == [passes * ring.steps]
    assert ring.consumed.tolist() == [passes] * 2
    assert not any(receiver.ready(passes, 0) for receiver in receivers)
    assert [sender.free(number) for number in (passes, passes + 1, passes + 2)] == [True, True, False]
    send_pass(sender, passes, lanes(0, 1), generation=4)
    for place, receiver in enumerate(receivers):
        assert receiver.ready(passes, ring.steps - 1)
        assert not receiver.ready(passes + 1, 0)
        assert is_sent(ring, receiver.take(passes), lanes(place, 2), passes, 0, generation=4)


def test_values_without_steps_or_environments_pass_where_nothing_is_sliced():
    ring = Ring(room(), [f32(), f32(3)], 1, 1)
    sender, receiver = Sender(ring, 0), Receiver(ring, 0)
    sender.send(0, 0, [np.float32(2), np.arange(3)])
    scalar, vector = receiver.take(0)
    assert (float(scalar), vector.tolist(), ring.carried) == (2, [0, 1, 2], 16)


PASSES = 4


class Sending:
    """A sender, and its successors, in the model: what they announced, and by which of them."""

    def __init__(self, ring, place):
        self.ring, self.place, self.own = ring, place, lanes(place, ring.senders)
        self.log, self.at, self.generation = [], 0, 0
        self.sender = Sender(ring, place)

    def act(self, dies):
        number, step = divmod(self.at, self.ring.steps)
        if number == PASSES or not self.sender.free(number):
            return
        leaves = sent(self.ring, self.own, number, step, self.generation)
        if dies:
            if self.at == len(self.log):
                with pytest.raises(ValueError, match="zip"):
                    self.sender.send(number, step, leaves[:1])  # half of it is written now
            self.sender, self.generation = Sender(self.ring, self.place), self.generation + 1
            self.at = int(self.sender.produced[0]) // self.ring.steps * self.ring.steps  # its pass from the start
            return
        self.sender.send(number, step, leaves)
        if self.at == len(self.log):
            self.log.append(self.generation)
        self.at += 1


class Receiving:
    """A receiver, and its successors, in the model."""

    def __init__(self, ring, place):
        self.ring, self.place, self.own = ring, place, lanes(place, ring.receivers)
        self.number, self.step = 0, 0
        self.receiver = Receiver(ring, place)

    def act(self, dies, sending):
        if self.number == PASSES:
            return
        if dies:
            self.receiver = Receiver(self.ring, self.place)
            self.number, self.step = int(self.receiver.consumed[0]), 0
            return
        self.check(sending)
        if self.step == self.ring.steps:
            self.receiver.release(self.number)
            self.number, self.step = self.number + 1, 0
        elif self.receiver.ready(self.number, self.step):
            self.step += 1
            self.check(sending)

    def check(self, sending):
        """All steps seen of the pass are what was announced, also those seen long ago."""
        arrays = self.receiver.take(self.number)
        for step in range(self.step):
            at = self.number * self.ring.steps + step
            wrote = np.array([sending[lane * self.ring.senders // LANES].log[at] for lane in self.own])
            assert is_sent(self.ring, arrays, self.own, self.number, step, generation=wrote)


@given(
    st.sampled_from(sorted(LAYOUTS)),
    st.sampled_from(NUMBERS[:6]),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([False] * 5 + [True])), min_size=60, max_size=120),
)
def test_no_order_of_sends_receives_and_deaths_tears_loses_or_reorders(layout, numbers, slots, turns):
    ring = ring_of(room(), layout, *numbers, slots=slots)
    sending = [Sending(ring, place) for place in range(ring.senders)]
    receiving = [Receiving(ring, place) for place in range(ring.receivers)]
    acts = [sender.act for sender in sending] + [partial(receiver.act, sending=sending) for receiver in receiving]
    for actor, dies in turns:
        acts[actor % len(acts)](dies)
    for _ in range(2 * PASSES * (ring.steps + 1) * len(acts)):  # whatever came before, all of it can still be sent
        for act in acts:
            act(False)
    assert {receiver.number for receiver in receiving} == {PASSES}
    assert {len(sender.log) for sender in sending} == {PASSES * ring.steps}
    assert ring.consumed.tolist() == [PASSES] * ring.receivers
