"""Hostile peers: each case misbehaves in one way, while a witness is served."""

import random
import select
import socket
import struct
import threading
import time

import broker as brokers
import openwire as o
from witness import Witness

# Over what the broker had before the case: bodies that it may keep, buffers of one hostile client, the allocator's slack.
GROWTH_BYTES_MAX = 256 << 20
SEED = 20261121


def ended(peer, seconds=5):
    """Reads to the end of a connection; False if it stays open for so long."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if not o.select_read(peer, left):
            return False
        try:
            if not peer.recv(1 << 16):
                return True
        except OSError:
            return True
    return False


def must_end(port, data, handshake=True):
    """A fresh connection that sends `data` is closed by the broker."""
    client = o.Client(port, connect=handshake)
    send_some(client.peer, data)
    assert ended(client.peer), "the broker keeps the connection"
    client.close()


def send_some(peer, data, seconds=2.0):
    """Sends what the broker takes within the time, reading nothing; how many bytes that were."""
    peer.setblocking(False)
    until, sent, view = time.monotonic() + seconds, 0, memoryview(data)
    while sent < len(data) and (left := until - time.monotonic()) > 0:
        if not select.select([], [peer], [], left)[1]:
            break
        try:
            sent += peer.send(view[sent : sent + (1 << 18)])
        except BlockingIOError:
            continue
        except OSError:
            break
    peer.settimeout(10)
    return sent


def refused(act, wanted=""):
    try:
        act()
    except o.Refused as refusal:
        assert wanted in str(refusal), f"refused with {refusal}"
        return refusal
    raise AssertionError("the broker did not refuse")


def sizes(port):
    """a length of 2 GiB, a negative one, one above the limit"""
    for size in (0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, (100 << 20) + 1):
        must_end(port, struct.pack(">I", size) + b"\x0a" * 64)
        must_end(port, struct.pack(">I", size) + b"\1ActiveMQ", handshake=False)


def announced(port):
    """200 connections announce 99 MiB each and send 1 KiB of it"""
    peers = [o.Client(port) for _ in range(200)]
    for client in peers:
        client.peer.sendall(struct.pack(">I", 99 << 20) + b"\x1c" * 1024)
    return peers


def deep_map(depth):
    """A primitive map in a map in a map."""
    return (struct.pack(">i", 1) + o.utf("m") + b"\x0b") * depth + struct.pack(">i", 0)


def deep_maps(port):
    """maps nested 100,000 deep in message properties and in WireFormatInfo; lists of 2^31 elements"""
    many = struct.pack(">i", 1) + o.utf("l") + b"\x0c" + struct.pack(">i", 0x7FFFFFFF)
    for properties in (deep_map(100_000), many, struct.pack(">i", 0x7FFFFFFF)):
        must_end(port, o.wire_format(properties=properties), handshake=False)
        client = o.Client(port)
        message = o.frame(
            o.TEXT_MESSAGE, command_id=7, response_required=True, destination=o.queue("hostile.maps"),
            message_id=(110, {"producer_id": (123, {"connection_id": "x"})}), properties=properties, persistent=True,
        )
        client.peer.sendall(message)
        try:
            client.answer(7)
        except (o.Gone, o.Refused):
            pass
        client.close()


def nested_objects(port):
    """a message inside a message, 5,000 deep"""
    inner = b"\0"
    for _ in range(5000):
        inner = b"\x15" + struct.pack(">ib", 1, 0) + b"\0\0\1" + inner
    must_end(port, struct.pack(">i", len(inner)) + inner)


def truncated(port):
    """texts that say they are longer than their frame; text that is no UTF-8"""
    good = o.encode((o.CONSUMER_INFO, {"consumer_id": (122, {"connection_id": "abc"})}))
    for bad in (good.replace(b"\0\3abc", b"\xff\xffabc"), good[:-3], good + b"\0", good.replace(b"abc", b"\xff\xfe\xfd")):
        must_end(port, struct.pack(">i", len(bad)) + bad)


def unknown_types(port):
    """every type id that is no command, and empty frames"""
    known = {*range(1, 13), *range(14, 35), 60, 61, 65, 90, 92}
    for kind in (kind for kind in range(256) if kind not in known):
        if kind % 5 == 0 or kind < 5:
            must_end(port, struct.pack(">i", 20) + bytes([kind]) + b"\0" * 19)
    must_end(port, struct.pack(">i", 0))


def early(port):
    """a command ahead of WireFormatInfo; other protocols"""
    for data in (o.frame(o.KEEP_ALIVE), o.frame(o.CONNECTION_INFO, client_id="x"), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"):
        must_end(port, data, handshake=False)


def garbage(port):
    """noise after the handshake"""
    noise = random.Random(SEED)
    for _ in range(20):
        must_end(port, b"\xff" + noise.randbytes(2000))


def samples():
    """One valid frame of each command that the broker acts on."""
    name = "ID:mutant"
    producer = 123, {"connection_id": name, "value": 1, "session_id": 1}
    message = 110, {"producer_id": producer, "producer_sequence": 1}
    consumer = 122, {"connection_id": name, "session_id": 1, "value": 1}
    transaction = 111, {"value": 1, "connection_id": (120, {"value": name})}
    to = o.queue("hostile.mutants")
    return [
        o.encode((kind, {"command_id": 5, "response_required": True, **fields}))
        for kind, fields in (
            (o.CONNECTION_INFO, {"connection_id": (120, {"value": name}), "client_id": name}),
            (o.SESSION_INFO, {"session_id": (121, {"connection_id": name, "value": 1})}),
            (o.PRODUCER_INFO, {"producer_id": producer, "destination": to, "window": 100}),
            (o.CONSUMER_INFO, {"consumer_id": consumer, "destination": to, "prefetch": 10}),
            (o.CONSUMER_INFO, {"consumer_id": consumer, "destination": o.topic("hostile.mutants"), "prefetch": 10}),
            (o.TRANSACTION_INFO, {"transaction_id": transaction, "step": o.BEGIN}),
            (o.TEXT_MESSAGE, {"producer_id": producer, "destination": to, "message_id": message, "persistent": True,
                              "content": b"\0\0\0\5hello", "properties": struct.pack(">i", 0), "priority": 4}),
            (o.MESSAGE_ACK, {"destination": to, "consumer_id": consumer, "ack_type": o.STANDARD, "last": message}),
            (o.MESSAGE_PULL, {"consumer_id": consumer, "destination": to, "timeout": 5}),
            (o.TRANSACTION_INFO, {"transaction_id": transaction, "step": o.COMMIT}),
            (o.DESTINATION_INFO, {"destination": to, "operation": 0}),
            (o.REMOVE_INFO, {"object_id": consumer}),
        )
    ]


def mutated(noise, data):
    data = bytearray(data)
    for _ in range(noise.randrange(1, 4)):
        at = noise.randrange(len(data))
        match noise.randrange(5):
            case 0:
                data[at] = noise.randrange(256)
            case 1:
                data[at] ^= 1 << noise.randrange(8)
            case 2:
                del data[at:]
            case 3:
                data[at:at] = noise.randbytes(noise.randrange(1, 9))
            case _:
                data[at : at + 4] = noise.choice([b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0" * 4, b"\x80\0\0\0"])
        if not data:
            return b"\0"
    return bytes(data)


def mutations(port):
    """4,000 mutated frames on 500 connections, and 300 mutated WireFormatInfos"""
    noise, valid = random.Random(SEED), samples()
    for round_ in range(500):
        peer = o.dial(port)
        stream = o.wire_format(version=noise.randrange(1, 13)) + struct.pack(">i", len(valid[0])) + valid[0]
        for at in range(8):
            data = mutated(noise, valid[(round_ + at * noise.randrange(1, 4)) % len(valid)])
            stream += struct.pack(">i", len(data)) + data
            data = noise.choice(valid)
            stream += struct.pack(">i", len(data)) + data if noise.randrange(3) == 0 else b""
        send_some(peer, stream)
        if round_ % 10 == 0:
            ended(peer, 0.02)
        peer.close()
    for _ in range(300):
        peer = o.dial(port)
        hello = bytearray(o.wire_format(extra=(o.utf("MaxFrameSize") + b"\6" + struct.pack(">q", 1 << 20),)))
        at = noise.randrange(13, len(hello))
        hello[at] = noise.randrange(256)
        send_some(peer, bytes(hello) + o.frame(o.CONNECTION_INFO, command_id=1, response_required=True))
        ended(peer, 0.002)
        peer.close()


def twice(port):
    """WireFormatInfo twice, ConnectionInfo twice: the connection ends, or works on"""
    client = o.Client(port)
    client.peer.sendall(o.wire_format(version=3))
    try:
        client.push(o.KEEP_ALIVE, True)
        client.read(5)
    except o.Gone:
        pass
    client.close()
    client = o.Client(port)
    try:
        for name in (client.name, "another", client.name):
            client.call(o.CONNECTION_INFO, connection_id=(120, {"value": client.name}), client_id=name)
        client.send(o.topic("hostile.nobody"), "still here")
    except (o.Gone, o.Refused):
        pass
    client.close()


def drip(port):
    """one byte at a time: a whole conversation, answered as any other"""
    client = o.Client(port, connect=False)
    name = (120, {"value": client.name})
    hello = o.wire_format() + o.frame(
        o.CONNECTION_INFO, command_id=1, response_required=True, connection_id=name, client_id=client.name
    )
    for byte in hello:
        client.peer.sendall(bytes([byte]))
        time.sleep(0.002)
    client.answer(1)
    client.close()


def deaf_consumer(port):
    """a consumer of 150 messages of 1 MiB that never reads; then everything reaches another one"""
    name, count = o.queue("hostile.deaf"), 150
    sender = o.Client(port)
    for number in range(count):
        sender.send(name, b"%d:" % number + b"x" * (1 << 20))
    deaf = o.Client(port)
    deaf.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.push(o.CONSUMER_INFO, consumer_id=deaf.consumer_id(1), destination=name, prefetch=30000)
    time.sleep(1)
    yield
    deaf.close()
    reader = o.Client(port)
    reader.consume(name, 10)
    for number in range(count):
        delivery = reader.take(10)
        got = o.body(delivery).split(b":")[0]
        assert got == b"%d" % number, f"message {number} came as {got!r}"
        reader.ack(delivery, wait=False)
    reader.close()


def deaf_subscriber(port):
    """a topic subscriber that never reads, while 100 messages of 1 MiB are published"""
    deaf = o.Client(port)
    deaf.consume(o.topic("hostile.deaf"), 30000)
    sender = o.Client(port)
    blob = b"x" * (1 << 20)
    stream = [sender.publish(o.topic("hostile.deaf"), blob[:1], persistent=False)]
    data = b"".join(
        o.frame(o.TEXT_MESSAGE, command_id=number, response_required=True, destination=o.topic("hostile.deaf"),
                message_id=(110, {"producer_id": (123, {"connection_id": sender.name})}),
                content=struct.pack(">i", len(blob)) + blob)
        for number in range(10, 110)
    )
    send_some(sender.peer, data, 2)
    assert stream
    return [deaf, sender]


def deaf_producer(port):
    """a producer that reads no response: 60,000 sends; then it reads, and every one was answered"""
    name, count = o.queue("hostile.unread"), 60_000
    client = o.Client(port)
    one = o.frame(
        o.TEXT_MESSAGE, command_id=0, response_required=True, destination=name, persistent=True,
        message_id=(110, {"producer_id": (123, {"connection_id": client.name})}), content=b"\0\0\0\1x",
    )
    stream = b"".join(one[:5] + struct.pack(">i", number) + one[9:] for number in range(10, 10 + count))
    sent = send_some(client.peer, stream, 2)
    yield
    whole = sent // len(one)
    for number in range(10, 10 + whole):
        client.answer(number, 10)
    client.close()


def ack_flood(port):
    """20,000 acknowledgements of messages and consumers that it does not have, unread"""
    client = o.Client(port)
    consumer = client.consume(o.queue("hostile.acks"))
    message = 110, {"producer_id": (123, {"connection_id": "x"}), "broker_sequence": 99}
    ack = o.frame(o.MESSAGE_ACK, consumer_id=consumer, ack_type=o.INDIVIDUAL, first=message, last=message, count=1)
    stranger = o.frame(o.MESSAGE_ACK, consumer_id=(122, {"connection_id": "witness-ack_flood-receiver", "value": 1, "session_id": 1}),
                       ack_type=o.STANDARD, last=(110, {"broker_sequence": 1}), count=1)
    send_some(client.peer, (ack + stranger) * 10_000, 2)
    return [client]


def many_consumers(port):
    """2,000 consumers on one connection and one queue: each is attached, each gets its share"""
    name, count = o.queue("hostile.crowd"), 2000
    client = o.Client(port)
    numbers = []
    for number in range(1, count + 1):
        numbers.append(client.push(
            o.CONSUMER_INFO, True, consumer_id=client.consumer_id(number), destination=name, prefetch=1, priority=0
        ))
    for number in numbers:
        client.answer(number, 20)
    sender = o.Client(port)
    numbers = [sender.publish(name, f"{number}") for number in range(count)]
    for number in numbers:
        sender.answer(number, 20)
    owners = {client.take(5)["consumer_id"][1]["value"] for _ in range(count)}
    assert len(owners) == count, f"{len(owners)} of {count} consumers got a message"
    sender.close()
    client.close()


def names(port):
    """names that are long or hold control characters: a round trip, or a clear refusal"""
    bad = ["n" * 65_000, "a\nb\rc\x1b[31m", "../../../etc/passwd", "a/b\\c:d", "%s%n", "\x7f", "name with blanks",
           b"\xc0\x80nul", "\ud7ff".encode(), "queue://prefixed", "x" * 32_767]
    for name in bad:
        client = o.Client(port)
        try:
            client.send(o.queue(name), "text")
            client.consume(o.queue(name))
            delivery = client.take(5)
            assert o.body(delivery) == b"text", f"{name[:20]!r}: got {o.body(delivery)!r}"
            client.answer(client.ack(delivery))
        except o.Refused:
            pass
        except (TimeoutError, o.Gone) as error:
            raise AssertionError(f"destination {name[:20]!r}: {error}") from error
        client.close()


def empty_lists(port):
    """a consumer of a list without members gets an answer, whatever it is"""
    for name in (",", " , ", ""):
        client = o.Client(port)
        try:
            client.consume(o.queue(name), seconds=3)
        except o.Refused:
            pass
        except TimeoutError:
            raise AssertionError(f"ConsumerInfo of {name!r} is never answered") from None
        client.close()


def other_ids(port):
    """ids and transactions that belong to another connection"""
    owner, thief = o.Client(port), o.Client(port)
    name = o.queue("hostile.thief")
    refused(lambda: o.Client(port, "ID:someone", client_id="witness-other_ids-sender"), "InvalidClientIDException")
    owner.step(o.BEGIN, 1)
    owner.send(name, "uncommitted", transaction=owner.transaction(1))
    for kind in (o.COMMIT, o.ROLLBACK):
        refused(lambda kind=kind: thief.step(kind, 1, owner), "transaction")
    refused(lambda: thief.send(name, "stowaway", transaction=owner.transaction(1)), "transaction")
    owner.send(name, "held")
    owner.consume(name, 10)
    delivery = owner.take()
    assert o.body(delivery) == b"held", o.body(delivery)
    refused(lambda: thief.answer(thief.ack(delivery)), "consumer")
    # The same consumer id on another connection is another consumer.
    thief.call(o.CONSUMER_INFO, consumer_id=owner.consumer_id(1), destination=name, prefetch=10)
    # Its acknowledgement of a message that it does not have is answered, as by ActiveMQ, and acknowledges nothing.
    thief.answer(thief.ack(delivery))
    thief.call(o.REMOVE_INFO, object_id=owner.consumer_id(1))
    owner.call(o.REMOVE_INFO, object_id=owner.consumer_id(1))
    owner.consume(name, 10)
    delivery = owner.take()
    assert o.body(delivery) == b"held", o.body(delivery)
    owner.answer(owner.ack(delivery))
    owner.step(o.COMMIT, 1)
    assert o.body(owner.take()) == b"uncommitted"
    for client in (owner, thief):
        client.close()


def pinned_by_begin(port):
    """180 transactions begun, each behind a 4 MiB message for nobody: small state must not keep large buffers"""
    client = o.Client(port)
    for number in range(1, 181):
        client.publish(o.topic("hostile.nobody"), b"x" * (4 << 20), persistent=False, wait=False)
        client.push(o.TRANSACTION_INFO, transaction_id=client.transaction(number), step=o.BEGIN)
    client.call(o.SESSION_INFO, 20)
    return [client]


def pinned_by_message(port):
    """180 small messages kept, each behind a 4 MiB message for nobody: the budget counts what memory is held"""
    client = o.Client(port)
    for _ in range(180):
        client.publish(o.topic("hostile.nobody"), b"x" * (4 << 20), persistent=False, wait=False)
        client.publish(o.queue("hostile.small"), "small", persistent=False, wait=False)
    client.call(o.SESSION_INFO, 20)
    return [client]


def floods(port):
    """unread floods of transactions, producers, claims and temporary queues on one connection"""
    client = o.Client(port)
    pad = "p" * 400
    for make in (
        lambda n: o.frame(o.TRANSACTION_INFO, step=o.BEGIN, transaction_id=(111, {"value": n, "connection_id": (120, {"value": pad})})),
        lambda n: o.frame(o.PRODUCER_INFO, window=9, producer_id=(123, {"connection_id": pad, "value": n})),
        lambda n: o.frame(o.CONNECTION_INFO, connection_id=(120, {"value": "flood"}), client_id=f"flood-{pad}-{n}"),
        lambda n: o.frame(o.DESTINATION_INFO, destination=(o.TEMP_QUEUE, {"name": f"{pad}-{n}"}), operation=0),
    ):
        send_some(client.peer, b"".join(make(number) for number in range(60_000)), 1.5)
    return [client]


def gone_consumers(port):
    """20 clients attach a consumer to a new queue and are gone before the answer: nothing is held for them"""
    for number in range(20):
        client = o.Client(port)
        client.push(o.CONSUMER_INFO, consumer_id=client.consumer_id(1), destination=o.queue(f"hostile.gone.{number}"), prefetch=10)
        client.close()
    time.sleep(0.2)
    held = 0
    for number in range(20):
        client = o.Client(port)
        client.send(o.queue(f"hostile.gone.{number}"), "text")
        client.consume(o.queue(f"hostile.gone.{number}"))
        try:
            client.take(0.2)
        except TimeoutError:
            held += 1
        client.close()
    assert held == 0, f"{held} of 20 messages are held for consumers that are gone"


def removed_consumers(port):
    """a consumer of a new queue is attached and removed in one breath: nothing is held for it"""
    held, stay = 0, o.Client(port)
    for number in range(1, 11):
        stay.peer.sendall(
            o.frame(o.CONSUMER_INFO, consumer_id=stay.consumer_id(number), destination=o.queue(f"hostile.removed.{number}"), prefetch=9)
            + o.frame(o.REMOVE_INFO, object_id=stay.consumer_id(number), last_delivered=-1)
        )
    stay.call(o.SESSION_INFO)
    time.sleep(0.2)
    for number in range(1, 11):
        client = o.Client(port)
        client.send(o.queue(f"hostile.removed.{number}"), "text")
        client.consume(o.queue(f"hostile.removed.{number}"))
        try:
            client.take(0.2)
        except TimeoutError:
            held += 1
        client.close()
    stay.close()
    assert held == 0, f"{held} of 10 messages are held for consumers that were removed"


def waiting_room(port):
    """producers of volatile messages wait for memory; when the first in line gives up, the others go on"""
    hoard, first, second = o.Client(port), o.Client(port), o.Client(port)
    mebi = b"x" * (1 << 20)
    for _ in range(3):
        hoard.send(o.queue("hostile.hoard"), mebi, persistent=False)
    first.publish(o.queue("hostile.hoard"), mebi * 8, persistent=False)
    time.sleep(0.3)
    number = second.publish(o.queue("hostile.hoard"), "small", persistent=False)
    time.sleep(0.2)
    first.close()
    try:
        second.answer(number, 3)
    except TimeoutError:
        raise AssertionError("they wait on, though there is room") from None
    reader = o.Client(port)
    reader.consume(o.queue("hostile.hoard"), 20)
    for _ in range(4):
        reader.answer(reader.ack(reader.take(5)))
    for client in (hoard, second, reader):
        client.close()


def closed_at_once(port):
    """a consumer is attached and removed in one breath: the next consumer of that connection is served"""
    sender = o.Client(port)
    for _ in range(30):
        sender.send(o.queue("hostile.close"), b"x" * 100_000)
    sender.send(o.queue("hostile.close.next"), "text")
    for _ in range(2):
        client = o.Client(port)
        first = client.consumer_id(1)
        client.peer.sendall(
            o.frame(o.CONSUMER_INFO, command_id=8, consumer_id=first, destination=o.queue("hostile.close"), prefetch=1000)
            + o.frame(o.REMOVE_INFO, command_id=9, response_required=True, object_id=first, last_delivered=-1)
        )
        client.answer(9)
        client.inbox.clear()
        client.consumers = 1
        client.consume(o.queue("hostile.close.next"))
        try:
            client.take(2)
        except TimeoutError:
            raise AssertionError("nothing is delivered on this connection any more") from None
        client.close()
    sender.close()


def client_ids(port):
    """a client id is free again once its connection is gone, however it went"""
    for number in range(3):
        client = o.Client(port, f"ID:life-{number}", client_id="hostile-fixed")
        client.close()
        time.sleep(0.2)


def wake_up(port):
    """3,000 small messages reach a consumer that acknowledges none of them, with nobody else there, on each thread"""
    name, count = o.queue("hostile.wake"), 3000
    sender = o.Client(port)
    for start in range(0, count, 500):
        numbers = [sender.publish(name, f"{number}") for number in range(start, start + 500)]
        for number in numbers:
            sender.answer(number)
    for _ in range(4):
        reader = o.Client(port)
        reader.push(o.CONSUMER_INFO, True, consumer_id=reader.consumer_id(1), destination=name, prefetch=30_000)
        for number in range(count):
            try:
                got = o.body(reader.take(2))
            except TimeoutError:
                raise AssertionError(f"only {number} of {count} messages came, then silence") from None
            assert got == b"%d" % number, f"message {number} came as {got!r}"
        reader.close()
        time.sleep(0.1)
    sender.close()


def wake_up_sends(port):
    """20,000 durable sends in one go, with nobody else there: each is answered"""
    client = o.Client(port)
    one = o.frame(
        o.TEXT_MESSAGE, command_id=0, response_required=True, destination=o.queue("hostile.burst"), persistent=True,
        message_id=(110, {"producer_id": (123, {"connection_id": client.name})}), content=b"\0\0\0\1x",
    )
    for first in range(10, 20_010, 5000):
        client.peer.sendall(b"".join(one[:5] + struct.pack(">i", number) + one[9:] for number in range(first, first + 5000)))
        for number in range(first, first + 5000):
            try:
                client.answer(number, 3)
            except TimeoutError:
                raise AssertionError(f"{number - 10} of 20000 sends were answered, then silence") from None
    client.close()


def slow_reader(port):
    """a client that says that it is alive, but reads nothing for 4 s (agreed silence 1.5 s), is not taken for dead"""
    name, count = o.queue("hostile.slow"), 40
    sender = o.Client(port)
    for _ in range(count):
        sender.send(name, b"x" * (1 << 20))
    delay = o.utf("MaxInactivityDurationInitalDelay") + b"\6" + struct.pack(">q", 0)
    client = o.Client(port, info=o.wire_format(inactivity_ms=1500, extra=(delay,)))
    client.push(o.CONSUMER_INFO, consumer_id=client.consumer_id(1), destination=name, prefetch=count)
    try:
        for _ in range(10):
            client.push(o.KEEP_ALIVE)
            time.sleep(0.4)
        for _ in range(count):
            client.push(o.KEEP_ALIVE)
            client.ack(client.take(5), wait=False)
    except o.Gone as error:
        raise AssertionError(f"the broker has ended the connection: {error}") from None
    client.close()
    sender.close()


def costly_acks(port):
    """10,000 held messages: 3,000 times told of their delivery, then acknowledged from the last to the first"""
    name, count = o.queue("hostile.costly"), 10_000
    client = o.Client(port)
    for _ in range(count):
        client.publish(name, "x", wait=False)
    client.consume(name, count, seconds=20)
    held = [client.take(10) for _ in range(count)]
    for _ in range(3000):
        client.ack(held[-1], wait=False, kind=o.DELIVERED)
    numbers = [client.ack(delivery) for delivery in reversed(held)]
    for number in numbers:
        client.answer(number, 20)
    client.close()


def unnamed(port):
    """a message without a message id is refused: no consumer could acknowledge it"""
    client = o.Client(port)
    try:
        refused(lambda: client.call(o.TEXT_MESSAGE, destination=o.queue("hostile.unnamed"), content=b"\0\0\0\1x"))
    except o.Gone:
        pass
    client.close()


def unconnected(port):
    """a send ahead of ConnectionInfo, and one after a refused ConnectionInfo, is refused or ends the connection"""
    holder = o.Client(port, "ID:holder", client_id="hostile-holder")
    for info in (None, {"connection_id": (120, {"value": "ID:other"}), "client_id": "hostile-holder"}):
        client = o.Client(port, connect=False)
        client.peer.sendall(o.wire_format())
        try:
            if info:
                refused(lambda client=client, info=info: client.call(o.CONNECTION_INFO, **info), "InvalidClientID")
            client.send(o.queue("hostile.unconnected"), "text")
            raise AssertionError("taken after a refused ConnectionInfo" if info else "taken ahead of ConnectionInfo")
        except (o.Refused, o.Gone):
            client.close()
    holder.close()


def stolen_temporary(port):
    """a connection that declares or deletes another one's temporary queue changes nothing for it"""
    owner, thief, other = o.Client(port), o.Client(port), o.Client(port)
    mine = o.TEMP_QUEUE, {"name": "ID:owner:1"}
    owner.call(o.DESTINATION_INFO, destination=mine, operation=0)
    for operation in (0, 1):
        try:
            thief.call(o.DESTINATION_INFO, destination=mine, operation=operation)
        except o.Refused:
            pass
    thief.close()
    time.sleep(0.2)
    other.consume(o.topic("ActiveMQ.Advisory.TempQueue"))
    try:
        told = other.take(2)["message"][1]["data_structure"][1]
    except TimeoutError:
        raise AssertionError("others are told that it is gone") from None
    assert (told["destination"][1]["name"], told["operation"]) == (b"ID:owner:1", 0), told
    owner.consume(mine)
    other.send(mine, "reply", persistent=False)
    owner.take(2)
    for client in (owner, other):
        client.close()


# Other clients would wake a broker that has fallen asleep, so nobody else is there.
ALONE = [wake_up, wake_up_sends, waiting_room]

# What an allocator has kept from the case before would hide growth.
FRESH = [pinned_by_begin, pinned_by_message, floods]

CASES = [
    pinned_by_begin, pinned_by_message, floods,
    sizes, announced, deep_maps, nested_objects, truncated, unknown_types, early, garbage, mutations, twice, drip,
    deaf_consumer, deaf_subscriber, deaf_producer, slow_reader, ack_flood, costly_acks, many_consumers,
    names, empty_lists, other_ids, gone_consumers, removed_consumers, closed_at_once, client_ids,
    unnamed, unconnected, stolen_temporary, *ALONE,
]


def run_case(broker, case, report):
    """One case beside a witness of its own."""
    started, witness, leftover = time.monotonic(), None, []
    title = case.__doc__
    try:
        before = broker.memory_bytes()
        if case in ALONE:
            case(broker.port)
            broker.check()
            return report(title, None, time.monotonic() - started)
        witness = Witness(broker.port, f"witness-{case.__name__}")
        witness.start()
        rounds = witness.rounds
        result = case(broker.port)
        if hasattr(result, "send"):
            next(result)
        witness.check(rounds)
        grown = broker.memory_bytes() - before
        if hasattr(result, "send"):
            next(result, None)
        else:
            leftover = result or []
        longest = witness.check(witness.rounds)
        broker.check()
        assert grown < GROWTH_BYTES_MAX, f"the broker grew by {grown >> 20} MiB; bound {GROWTH_BYTES_MAX >> 20} MiB"
        note = f"grew {grown >> 20} MiB, longest round trip {longest * 1000:.0f} ms"
        report(title, None, time.monotonic() - started, note)
    except Exception as error:
        report(title, error, time.monotonic() - started)
        # What one case has broken is not the next one's fault.
        broker.kill()
    for client in leftover:
        client.close()
    if witness:
        witness.stop()


# A peer that has not finished its handshake by then is closed; the margin is the machine's.
HANDSHAKE_S, MARGIN_S = 30, 4


class Unfinished(threading.Thread):
    """Handshakes that never end, on a broker of their own, judged when everything else is done."""

    def __init__(self, binary):
        super().__init__(daemon=True)
        self.broker = brokers.new(binary).must_start()
        self.begun = time.monotonic()
        self.silent, self.half, self.drip = (o.dial(self.broker.port) for _ in range(3))
        self.half.sendall(o.wire_format()[:20])

    def run(self):
        """One byte each second, of a frame that says it has 4 KiB."""
        hello = struct.pack(">i", 4096) + o.wire_format()[4:]
        try:
            for at in range(HANDSHAKE_S + MARGIN_S + 60):
                self.drip.sendall(hello[at : at + 1])
                time.sleep(1)
        except OSError:
            return

    def judge(self, report):
        for title, peer in (
            ("a client that says nothing is closed after 30 s", self.silent),
            ("a client that stops within its first frame is closed after 30 s", self.half),
            ("a client that sends its first frame a byte a second is closed after 30 s", self.drip),
        ):
            started = time.monotonic()
            left = max(0.1, HANDSHAKE_S + MARGIN_S - (started - self.begun))
            error = None if ended(peer, left) else AssertionError("it is still served")
            report(title, error, time.monotonic() - started)
        self.broker.kill()


def run(binary, report, only=None):
    unfinished = None if only else Unfinished(binary)
    if unfinished:
        unfinished.start()
    broker = brokers.new(binary).must_start()
    for case in CASES:
        if only and only not in case.__name__:
            continue
        if case in FRESH:
            broker.kill()
        if not broker.alive():
            broker = brokers.new(binary).must_start()
        run_case(broker, case, report)
    if broker.alive():
        restart(broker, report)
    if unfinished:
        unfinished.judge(report)


def restart(broker, report):
    def begin_again():
        code = broker.terminate(10)
        assert code == 0, f"exit code {code}"
        broker.must_start()
        sender = o.Client(broker.port)
        sender.send(o.queue("later"), "text")
        assert len(brokers.drain(sender, o.queue("later"), 0.5)) == 1

    broker.case(report, "after all of this: SIGTERM with exit code 0, and a new start over the same data", begin_again)
    broker.kill()
