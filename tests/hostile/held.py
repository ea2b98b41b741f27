"""Producers that a full queue holds up, all at once; many whose transactions stay open; and all that takes memory, together."""

import struct
import subprocess
import time

import amqp
import amqp_wire as a
import backlog
import broker as brokers
import openwire as o
from peers import send_some
from witness import Witness

PRODUCERS = 64
BODY_BYTES = 8 << 10
# An eighth of the broker's memory for all of them, and what each was read beyond that; the rest is the allocator's.
TOGETHER_BYTES_MAX = brokers.MEMORY_BYTES // 8 + PRODUCERS * (64 << 10) + (12 << 20)
FULL = '[[policy]]\ndestination = "queue://held"\nmessages_max = 200\nat_limit = "block"\n'
# What each of many transactions is sent: together four times what they may hold.
TRANSACTIONS, OPEN_SENDS = 64, 64
OPEN_BYTES_MAX = brokers.MEMORY_BYTES // 32
# Durable messages behind, messages in memory alone, and readers with some in hand.
BEHIND, QUEUES, UNREAD, UNREAD_BYTES, IN_HAND = 300_000, 50, 60, 16 << 10, 100
VOLATILE_PRODUCERS, VOLATILE_SENDS = 16, 400
# What is freed and not yet given back is within the broker's memory as a rule; this machine may be slow. And the
# program's own file is larger than its share: 23.5 MiB of the tests' build, which is larger than a release, are
# mapped then; the system may take them back. 68.9 to 70.3 MiB were measured.
FREED_BYTES = 8 << 20
# What it has allocated, without the program's file.
ALLOCATED_BYTES = 50 << 20


def run(binary, report, only=None):
    for title, act in (
        (f"{PRODUCERS} producers of a full queue: at most {TOGETHER_BYTES_MAX >> 20} MiB, others go on, and so do they", held_up),
        (f"{TRANSACTIONS} transactions that nobody ends: at most {OPEN_BYTES_MAX >> 20} MiB, others go on", left_open),
        ("a backlog, a full memory, open transactions, held producers and readers at once", all_at_once),
    ):
        if only and only not in title:
            continue
        broker = brokers.new(binary, FULL).must_start()
        broker.case(report, title, lambda: act(broker))
        broker.kill()


def sends(client, queue="held", count=1000, persistent=True):
    """Of as much as a connection may have outstanding, and more; and the size of each."""
    sizes, stream = set(), bytearray()
    for number in range(count):
        producer = 123, {"connection_id": client.name, "value": 1, "session_id": 1}
        one = o.frame(
            o.TEXT_MESSAGE, command_id=10 + number, response_required=False, destination=o.queue(queue),
            producer_id=producer, message_id=(110, {"producer_id": producer, "producer_sequence": 1 + number}),
            persistent=persistent, priority=4, content=struct.pack(">i", BODY_BYTES) + b"x" * BODY_BYTES,
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


def open_some(clients, queue, body):
    """A transaction of each, sent as much as it takes; how much of each was accepted, and who was refused, with what."""
    accepted, refused = {}, []
    for client in clients:
        client.step(o.BEGIN, 1)
        try:
            for sent in range(OPEN_SENDS):
                client.send(queue, body, transaction=client.transaction(1))
                accepted[client] = sent + 1
        except o.Refused as refusal:
            refused.append((client, refusal))
    return accepted, refused


def left_open(broker):
    queue, body = o.queue("open"), b"x" * BODY_BYTES
    clients = [o.Client(broker.port) for _ in range(TRANSACTIONS)]
    accepted, refused = open_some(clients, queue, body)
    # What a transaction had sent goes as soon as it can only be rolled back.
    whole = [client for client in clients if client not in dict(refused)]
    taken = sum(accepted[client] for client in whole) * BODY_BYTES
    assert OPEN_BYTES_MAX * 3 // 4 <= taken <= OPEN_BYTES_MAX, f"{taken >> 10} KiB were taken"
    most = broker.memory_bytes("VmHWM")
    assert most <= brokers.MEMORY_BYTES, f"{most / (1 << 20):.1f} MiB of memory"
    for client, refusal in refused:
        assert refusal.java_class.endswith("TransactionRolledBackException") and str(OPEN_BYTES_MAX) in refusal.text, refusal
        try:
            client.step(o.COMMIT, 1)
        except o.Refused as refusal:
            assert refusal.java_class.endswith("TransactionRolledBackException"), refusal
        else:
            raise AssertionError("what was refused in part is committed")
    o.Client(broker.port).send(queue, b"without a transaction")
    whole[0].step(o.COMMIT, 1)
    for client in whole[1:]:
        client.close()
    # Those that are gone take nothing any more.
    last = o.Client(broker.port)
    last.step(o.BEGIN, 1)
    for _ in range(OPEN_SENDS):
        last.send(queue, body, transaction=last.transaction(1))
    last.step(o.COMMIT, 1)
    got = brokers.drain(o.Client(broker.port), queue)
    assert len(got) == 1 + 2 * OPEN_SENDS, f"{len(got)} messages are there"
    return f"{len(whole)} of {TRANSACTIONS} took {taken >> 10} KiB, {most / (1 << 20):.1f} MiB of memory"


def within(broker):
    """The most memory that it took."""
    most, bound = broker.memory_bytes("VmHWM"), brokers.MEMORY_BYTES + FREED_BYTES
    assert most <= bound, f"{most / (1 << 20):.1f} MiB of memory, of {bound / (1 << 20):.1f}"
    program, rest = broker.memory_bytes("RssFile"), broker.memory_bytes("RssAnon")
    assert rest <= ALLOCATED_BYTES, f"{rest / (1 << 20):.1f} MiB allocated, of {ALLOCATED_BYTES >> 20}"
    return f"{most / (1 << 20):.1f} MiB; now {program / (1 << 20):.1f} of the program's file and {rest / (1 << 20):.1f} of its own"


def all_at_once(broker):
    backlog.bench(broker, "depth", "--messages", str(BEHIND), "--queues", str(QUEUES), "--rounds", "1", "--probe", "1000")
    deep = [name for name, depth in backlog.depths(broker).items() if BEHIND // QUEUES // 2 < depth]
    assert len(deep) == QUEUES, deep
    for number in range(QUEUES):
        amqp.filled(broker.port, f"unread.{number}", UNREAD, b"x" * UNREAD_BYTES, a.DURABLE)
    said, clients = [within(broker)], []
    for number in range(VOLATILE_PRODUCERS):
        clients.append(o.Client(broker.port))
        stream, _ = sends(clients[-1], f"volatile.{number % 4}", VOLATILE_SENDS, persistent=False)
        send_some(clients[-1].peer, stream, 0.3)
    transactions = [o.Client(broker.port) for _ in range(TRANSACTIONS)]
    _, refused = open_some(transactions, o.queue("open"), b"x" * BODY_BYTES)
    assert 0 < len(refused) < TRANSACTIONS
    clients += transactions
    for _ in range(PRODUCERS):
        clients.append(o.Client(broker.port))
        send_some(clients[-1].peer, sends(clients[-1])[0], 0.1)
    said.append(within(broker))
    for number in range(QUEUES):
        reader = o.Client(broker.port)
        clients.append(reader)
        reader.consume(o.queue(f"unread.{number}"), 1)
        reader.take(60)
    for name in deep:
        reader = o.Client(broker.port)
        clients.append(reader)
        reader.consume(o.queue(name), IN_HAND)
        for _ in range(IN_HAND):
            reader.take(60)
    said.append(within(broker))
    for client in clients:
        client.close()
    return f"{said[0]} with the backlog, {said[1]} with all else, {said[2]} with readers; {len(clients)} connections"
