"""A backlog that crosses one link between two brokers of a kind: rate, and the processor time of both ends."""

import collections
import os
import random
import socket
import threading
import time

from . import brokers, depth
from .load import IDLE_SECONDS

# What the report knows it by.
NAME = "links"
TICKS = os.sysconf("SC_CLK_TCK")
PIECE_BYTES = 65_536
# Bytes on their way in one direction; more than a second of what a link carries.
UNDERWAY_BYTES_MAX = 64 << 20


class Wire:
    """The network between the brokers: each byte takes half of the round trip one way."""

    def __init__(self, port, round_trip_seconds):
        self.to, self.delay = port, round_trip_seconds / 2
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                return
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Direction(near, far, self.delay)
            Direction(far, near, self.delay)

    def close(self):
        self.listener.close()


class Direction:
    """Reads from one socket and writes to another one, later."""

    def __init__(self, source, target, delay):
        self.source, self.target, self.delay = source, target, delay
        self.pieces, self.bytes, self.changed = collections.deque(), 0, threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()
        threading.Thread(target=self.write, daemon=True).start()

    def read(self):
        piece = b" "
        while piece:
            try:
                piece = self.source.recv(PIECE_BYTES)
            except OSError:
                piece = b""
            with self.changed:
                self.changed.wait_for(lambda: self.bytes < UNDERWAY_BYTES_MAX)
                self.pieces.append((time.monotonic() + self.delay, piece))
                self.bytes += len(piece)
                self.changed.notify_all()

    def write(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.pieces)
                due, piece = self.pieces.popleft()
                self.bytes -= len(piece)
                self.changed.notify_all()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if not piece:
                    self.target.shutdown(socket.SHUT_WR)
                    return
                self.target.sendall(piece)
            except OSError:
                return


class PostroadEnd(brokers.Postroad):
    """One end of a link; with a peer's port it opens the link."""

    def __init__(self, cache, scratch, number, peer=None):
        super().__init__(cache, scratch)
        self.data = os.path.join(scratch, f"postroad-{number}")
        self.port_offset = brokers.Postroad.port_offset + 100 * number
        self.port = 61616 + self.port_offset
        self.peer = peer

    def prepare(self):
        with open(self.configuration, "w", encoding="utf-8") as file:
            if self.peer is not None:
                file.write(f'[[bridge]]\nname = "bench"\nto = ["tcp://127.0.0.1:{self.peer}"]\n')

    def command(self):
        return [*super().command(), "--config", self.configuration]


class ActiveMQEnd(brokers.ActiveMQ):
    """As the other one, of ActiveMQ Classic."""

    def __init__(self, cache, scratch, number, peer=None):
        super().__init__(cache, scratch)
        self.data = os.path.join(scratch, f"activemq-{number}")
        self.port = brokers.ActiveMQ.port + number
        self.number, self.peer = number, peer

    def prepare(self):
        super().prepare()
        path = os.path.join(self.data, "activemq.xml")
        with open(path, encoding="utf-8") as file:
            text = file.read().replace('brokerName="localhost"', f'brokerName="end-{self.number}"')
        if self.peer is not None:
            connector = f'<networkConnector name="bench" uri="static:(tcp://127.0.0.1:{self.peer})"/>'
            text = text.replace("<transportConnectors>", f"<networkConnectors>{connector}</networkConnectors><transportConnectors>")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


KINDS = {"postroad": PostroadEnd, "activemq": ActiveMQEnd}


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cross(source, target, messages, body_bytes):
    """Fills the queue at one end, then reads it at the other one: what crossed, and what it took."""
    run_id = random.randrange(1, 2**31)
    filling = depth.Client(source, messages, body_bytes, run_id)
    draining = depth.Client(target, messages, body_bytes, run_id)
    try:
        filling.step("fill")
        ends = [source.process.server_pid(), target.process.server_pid()]
        before = [processor_seconds(pid) for pid in ends]
        result = draining.step("drain")
        used = [(processor_seconds(pid) - of) * 1e6 / messages for pid, of in zip(ends, before)]
    finally:
        filling.end()
        draining.end()
    return {**result, "source_cpu_us": used[0], "target_cpu_us": used[1]}


def measure(kind, settings, scratch, round_trip_ms):
    """One pair of brokers: a run to warm up, and the one that counts."""
    wire = None
    target = KINDS[kind](settings.cache, scratch, 1)
    target.install()
    target.start()
    source = None
    try:
        if 0 < round_trip_ms:
            wire = Wire(target.port, round_trip_ms / 1e3)
        source = KINDS[kind](settings.cache, scratch, 2, wire.port if wire else target.port)
        source.install()
        source.start()
        time.sleep(IDLE_SECONDS)
        cross(source, target, settings.warmup, settings.body_bytes)
        result = cross(source, target, settings.messages, settings.body_bytes)
    finally:
        for end in (source, target):
            if end is not None:
                end.stop()
        if wire is not None:
            wire.close()
    return {"brokers": kind, "version": target.version, "round_trip_ms": round_trip_ms, **result}


def table(results):
    """A row for each pair and round trip."""
    rows = [
        "| brokers | round trip ms | messages/s | of the shortest | source CPU µs/message | target CPU µs/message | both | faults |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for of in results:
        faults = [f"{of[fault]} {fault}" for fault in FAULTS if of[fault]]
        source, target = of["source_cpu_us"], of["target_cpu_us"]
        rows.append(
            f"| {of['brokers']} {of['version']} | {of['round_trip_ms']:g} | {of['drained_per_s']:,.0f} "
            f"| {share_of_shortest(of, results):.2f} "
            f"| {source:.0f} | {target:.0f} | {source + target:.0f} | {', '.join(faults) or 'none'} |"
        )
    return "\n".join(rows)


def share_of_shortest(of, results):
    """The rate as a part of that of the same brokers with the shortest round trip."""
    same = [other for other in results if other["brokers"] == of["brokers"]]
    shortest = min(same, key=lambda other: other["round_trip_ms"])
    return of["drained_per_s"] / shortest["drained_per_s"] if shortest["drained_per_s"] else 0.0


FAULTS = ["lost", "doubled", "reordered", "wrong_body"]
