"""Producers that a full queue holds up, all at once."""

import struct
import time

import broker as brokers
import openwire as o
from peers import send_some
from witness import Witness

PRODUCERS = 64
BODY_BYTES = 8 << 10
# An eighth of the broker's memory for all of them, and what each was read beyond that; the rest is the allocator's.
TOGETHER_BYTES_MAX = brokers.MEMORY_BYTES // 8 + PRODUCERS * (64 << 10) + (12 << 20)
FULL = '[[policy]]\ndestination = "queue://held"\nmessages_max = 200\nat_limit = "block"\n'


def run(binary, report, only=None):
    title = f"{PRODUCERS} producers of a full queue: at most {TOGETHER_BYTES_MAX >> 20} MiB, others go on, and so do they"
    if only and only not in title:
        return
    broker = brokers.new(binary, FULL).must_start()
    broker.case(report, title, lambda: held_up(broker))
    broker.kill()


def sends(client):
    """Of as much as a connection may have outstanding, and more; and the size of each."""
    sizes, stream = set(), bytearray()
    for number in range(1000):
        producer = 123, {"connection_id": client.name, "value": 1, "session_id": 1}
        one = o.frame(
            o.TEXT_MESSAGE, command_id=10 + number, response_required=False, destination=o.queue("held"),
            producer_id=producer, message_id=(110, {"producer_id": producer, "producer_sequence": 1 + number}),
            persistent=True, priority=4, content=struct.pack(">i", BODY_BYTES) + b"x" * BODY_BYTES,
        )
        sizes.add(len(one))
        stream += one
    assert len(sizes) == 1
    return bytes(stream), sizes.pop()


def held_up(broker):
    witness = Witness(broker.port)
    witness.start()
    reader = o.Client(broker.port)
    producers = [o.Client(broker.port) for _ in range(PRODUCERS)]
    before, sent = broker.memory_bytes(), 0
    for client in producers:
        stream, each = sends(client)
        sent += send_some(client.peer, stream, 0.3) // each
    time.sleep(1)
    took = broker.memory_bytes() - before
    longest = witness.check(witness.rounds)
    assert took <= TOGETHER_BYTES_MAX, f"{took >> 20} MiB for {sent} messages"
    reader.consume(o.queue("held"))
    for got in range(sent):
        reader.ack(reader.take(20), wait=False)
    witness.check(witness.rounds)
    witness.stop()
    for client in [reader, *producers]:
        client.close()
    return f"{took >> 20} MiB, {sent} messages, longest round trip {longest * 1000:.0f} ms"
