"""A fabric of two processes that share no memory, over TCP on the loopback.

Each side has the ends of all cuts in memory of its own. What is written on one side is sent, in order, and written
again on the other: rows that are inserted, weights that are published, and at every look the counters of the ledger.
"""

from __future__ import annotations

import json
import struct
import threading

import numpy as np

from headrace.fabric.base import Fabric

HEAD = struct.Struct("!I")
COUNTERS = ("begun", "passes", "learned")


class Line:
    """Messages in both directions: a kind, plain values, arrays."""

    def __init__(self, connection):
        self.socket, self.gone = connection, False

    def send(self, kind, values, arrays=()):
        arrays = [np.ascontiguousarray(array) for array in arrays]
        kinds = [(array.dtype.str, array.shape) for array in arrays]
        head = json.dumps([kind, values, kinds]).encode()
        try:
            self.socket.sendall(HEAD.pack(len(head)) + head + b"".join(array.tobytes() for array in arrays))
        except OSError:  # the other side has ended
            self.gone = True

    def receive(self):
        kind, values, kinds = json.loads(self._read(HEAD.unpack(self._read(HEAD.size))[0]))
        sizes = [(np.dtype(dtype), shape) for dtype, shape in kinds]
        read = [np.frombuffer(self._read(int(np.prod(s)) * d.itemsize), d).reshape(s) for d, s in sizes]
        return kind, values, read

    def _read(self, number):
        data = b""
        while len(data) < number:
            if not (more := self.socket.recv(number - len(data))):
                raise EOFError
            data += more
        return data


class Far:
    """A store or the newest weights on the other side: what is written here is written there."""

    def __init__(self, near, tell):
        self.near, self.tell = near, tell

    def __getattr__(self, name):
        return getattr(self.near, name)

    def room(self, writer, number):
        return None

    def insert(self, rows, writer, number):
        self.tell((writer, number), rows)

    def publish(self, arrays):
        self.near.publish(arrays)
        self.tell((), arrays)


class TcpFabric(Fabric):
    """The ends of all cuts, on the side of one fragment."""

    def __init__(self, near, line, fragment):
        self.near, self.line, self.fragment = near, line, fragment
        self.sections, self.ledger, self.published, self.owned = near.sections, near.ledger, near.published, near.owned
        self.layout, self.begin, self.load = near.layout, near.begin, near.load
        collecting, learning = self.sections.of(fragment)
        self.own = dict.fromkeys(COUNTERS, ())
        if collecting is not None:
            self.own |= {"begun": collecting.places, "passes": collecting.places}
        self.own |= {"learned": [place for section in learning for place in section.places]}
        self.said = {}
        threading.Thread(target=self.listen, daemon=True).start()

    def sender(self, *which):
        return self.near.sender(*which)

    def receiver(self, *which):
        return self.near.receiver(*which)

    def scratch(self, *which):
        return self.near.scratch(*which)

    def state(self, section):
        return self.near.state(section)

    def gradients(self, replica):
        return self.near.gradients(replica)

    def carried(self):
        return self.near.carried()

    def store(self, name, replica):
        near = self.near.store(name, replica)
        draws = any(node.id in self.fragment.nodes for node in self.sections.graph.stores[name].draws)
        return near if draws else Far(near, lambda values, rows: self.line.send("insert", (name, *values), rows))

    def weights(self, section):
        number = self.sections.learning.index(section)
        near = self.near.weights(section)
        own = section.fragment.id == self.fragment.id
        return Far(near, lambda _, arrays: self.line.send("weights", number, arrays)) if own else near

    def look(self):
        """Say how far this side has come, after what it has sent."""
        now = {name: [int(getattr(self.ledger, name)[i]) for i in places] for name, places in self.own.items()}
        if now != self.said:
            self.line.send("counters", {name: [list(self.own[name]), now[name]] for name in COUNTERS})
            self.said = now

    def listen(self):
        while True:
            try:
                kind, values, arrays = self.line.receive()
            except (EOFError, OSError):
                self.line.gone = True
                return
            if kind == "insert":
                self.near.store(values[0], 0).insert(arrays, *values[1:])
            elif kind == "weights":
                self.near.weights(self.sections.learning[values]).publish(arrays)
            else:
                for name, (places, numbers) in values.items():
                    getattr(self.ledger, name)[places] = numbers
