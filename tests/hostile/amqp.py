"""Hostile AMQP peers: each case misbehaves in one way, while an honest client is served by OpenWire."""

import itertools
import random
import socket
import struct
import time

import amqp_wire as a
import broker as brokers
import peers

SEED = 20261121
CHANNEL_MAX, LINKS_MAX, UNSETTLED_MAX, OPEN_MAX = 4095, 16_384, 1 << 16, 16_384


def amqp(port):
    """The port of the same broker that speaks AMQP."""
    return port - brokers.PORT + 5672


def must_end(port, data, hello=None):
    """A connection that sends `data` is closed by the broker; the last that it says."""
    client = a.Client(amqp(port), hello)
    peers.send_some(client.peer, data)
    last = b""
    while (got := client.take()) is not None:
        last = got[1]
    client.close()
    return last


def sizes(port):
    """frames of a size below a header's, of 2 GiB, of 4 GiB, above the agreed one; a data offset beyond the frame"""
    for head in (struct.pack(">I", size) + b"\2\0\0\0" for size in (0, 7, (1 << 31) - 1, (1 << 32) - 1, (1 << 20) + 9)):
        must_end(port, head + b"\0" * 64)
        must_end(port, head + b"\0" * 64, hello=b"")
    for offset in (0, 1, 255):
        last = must_end(port, struct.pack(">IBBH", 16, offset, 0, 0) + b"\0" * 8)
        assert b"framing-error" in last, last


def bombs(port):
    """arrays of four thousand million elements without width, lists nested 100,000 deep, counts that do not fit"""
    nested = b"\xd0" + struct.pack(">II", 5, 1)
    for bomb in (
        a.array((1 << 32) - 1, b"\x40"), a.array((1 << 32) - 1, b"\x45"), a.array((1 << 32) - 1, b"\x43"),
        a.compound(0xD1, (1 << 32) - 1, b"\x40" * 64), a.compound(0xD0, (1 << 32) - 1, b""),
        nested * 100_000, b"\0" * 100_000, b"\0\x40" * 50_000, b"\xf0" + struct.pack(">II", 1 << 30, 1 << 30),
    ):
        must_end(port, a.opened(properties=bomb), hello=b"")
        client = a.Client(amqp(port), a.opened() + a.begun() + a.sender("bombs", 0, "hostile.amqp.bombs"))
        client.until(a.FLOW)
        peers.send_some(client.peer, a.transfer(0, 0, b"\0\x53\x74" + bomb, settled=a.FALSE))
        got = client.take()
        assert got is None or b"error" in got[1] or got[0] == a.DISPOSITION and b"\x24" in got[1], got
        client.close()


def channels(port):
    """a session on each of 65,536 channels"""
    # Who goes on sending may lose what it is told: the connection is reset then.
    must_end(port, b"".join(a.begun(channel) for channel in range(1 << 16)), a.opened())
    last = must_end(port, b"".join(a.begun(channel) for channel in range(CHANNEL_MAX + 2)), a.opened())
    assert b"framing-error" in last and str(CHANNEL_MAX).encode() in last, last


def names(port):
    """20,000 links with names of 1 KiB on five sessions: those beyond 16,384 are refused"""
    client = a.Client(amqp(port), a.opened())
    refused = 0
    for channel in range(5):
        links = (a.sender(f"{channel}-{handle}-" + "n" * 1024, handle, "hostile.amqp.names", channel) for handle in range(4000))
        client.peer.sendall(a.begun(channel) + b"".join(itertools.islice(links, 500)))
        while part := b"".join(itertools.islice(links, 500)):
            client.peer.sendall(part)
            refused += answered(client, 500)
        refused += answered(client, 500)
    assert refused == 20_000 - LINKS_MAX, f"{refused} were refused"
    return [client]


def answered(client, attaches):
    """Reads the answers to so many attaches; how many of them were refused."""
    refused = 0
    while attaches:
        code, body = client.take()
        attaches -= code in (a.FLOW, a.DETACH)
        refused += code == a.DETACH and b"resource-limit-exceeded" in body
    return refused


def without_credit(port):
    """5,000 transfers on a link that has credit for 1,000"""
    client = a.Client(amqp(port), a.opened() + a.begun() + a.sender("greedy", 0, "hostile.amqp.greedy"))
    peers.send_some(client.peer, b"".join(a.transfer(0, number, a.message(b"x")) for number in range(5000)))
    # Credit that comes meanwhile is good; what is sent beyond it ends the link.
    client.peer.sendall(b"".join(a.transfer(0, number, a.message(b"x")) for number in range(5000, 20_000)))
    for code, body in iter(client.take, None):
        if code in (a.DETACH, a.END, a.CLOSE):
            assert b"transfer-limit-exceeded" in body or b"window-violation" in body, body
            break
    else:
        raise AssertionError("it ended without a word")
    client.close()


def filled(port, queue, count, data, header=b""):
    """A queue with so many messages in it."""
    client = a.Client(amqp(port), a.opened("filling") + a.begun() + a.sender("filling", 0, queue))
    client.until(a.FLOW)
    sent, part = 0, 400
    while sent < count:
        frames = (a.transfer(0, number, header + a.message(data), settled=a.FALSE) for number in range(sent, min(sent + part, count)))
        client.peer.sendall(b"".join(frames))
        sent = min(sent + part, count)
        # Wait for the answer of the last one: 400 at a time stay within the credit.
        while (body := client.until(a.DISPOSITION)) and not last_of(body) >= sent - 1:
            pass
    client.close()


def last_of(disposition):
    """The last delivery that a disposition is about; its fields are as the broker encodes them."""
    fields, at = [], 3
    at += {0xC0: 3, 0xD0: 9}[disposition[at]]
    for _ in range(3):
        code = disposition[at]
        width = {0x40: 0, 0x41: 0, 0x42: 0, 0x43: 0, 0x52: 1, 0x70: 4}[code]
        fields.append(int.from_bytes(disposition[at + 1 : at + 1 + width], "big") if code not in (0x40, 0x41, 0x42) else None)
        at += 1 + width
    return fields[2] if fields[2] is not None else fields[1]


def deaf_with_credit(port):
    """a consumer takes all credit there is for 64 MiB of messages, and reads nothing"""
    queue = "hostile.amqp.deaf"
    filled(port, queue, 1024, b"x" * (64 << 10), a.DURABLE)
    clients = [a.Client(amqp(port), a.opened(f"deaf-{number}") + a.begun()) for number in range(4)]
    for client in clients:
        client.peer.sendall(a.receiver("deaf", 0, queue) + a.flow(0, (1 << 32) - 1))
    time.sleep(1)
    return clients


def credit_flood(port):
    """100,000 flows that give all credit and take it back, each to be echoed, from a client that reads nothing"""
    client = a.Client(amqp(port), a.opened() + a.begun() + a.receiver("flood", 0, "hostile.amqp.flood"))
    peers.send_some(client.peer, (a.flow(0, (1 << 32) - 1, a.TRUE) + a.flow(0, 0, a.TRUE)) * 50_000, 5)
    return [client]


def never_settles(port):
    """a consumer of 70,000 messages that settles none gets 65,536 at most"""
    queue = "hostile.amqp.hoarded"
    filled(port, queue, 70_000, b"x")
    client = a.Client(amqp(port), a.opened() + a.begun() + a.receiver("hoard", 0, queue) + a.flow(0, (1 << 32) - 1))
    client.peer.settimeout(8)
    got = 0
    try:
        while (frame := client.take()) is not None:
            got += frame[0] == a.TRANSFER
    except TimeoutError:
        pass
    assert UNSETTLED_MAX // 2 < got <= UNSETTLED_MAX, f"it got {got}"
    return [client]


def costly_verdicts(port):
    """20,000 verdicts about all 2^32 deliveries, and 20,000 about none"""
    client = a.Client(amqp(port), a.opened() + a.begun() + a.receiver("judge", 0, "hostile.amqp.judge") + a.flow(0, 100))
    accepted = a.described(0x24)
    everything = a.said(a.DISPOSITION, a.TRUE, a.uint(0), a.uint((1 << 32) - 1), a.TRUE, accepted)
    backwards = a.said(a.DISPOSITION, a.TRUE, a.uint(9), a.uint(3), a.FALSE, accepted)
    sent = peers.send_some(client.peer, (everything + backwards) * 20_000, 10)
    assert sent == len(everything + backwards) * 20_000, f"only {sent} bytes were taken"
    return [client]


def unfinished(port):
    """200 links with a message each whose end never comes"""
    client = a.Client(amqp(port), a.opened() + a.begun())
    for link in range(200):
        client.peer.sendall(a.sender(f"unfinished-{link}", link, "hostile.amqp.unfinished"))
    for _ in range(200):
        client.until(a.FLOW)
    part = a.message(b"x" * 60_000)
    try:
        for _ in range(8):
            for link in range(200):
                client.peer.sendall(a.transfer(link, link, part, settled=a.FALSE, more=a.TRUE))
    except OSError:
        pass
    return [client]


def transactions(port):
    """20,000 transactions that are declared and never discharged"""
    attach = a.said(a.ATTACH, a.text("coordinator"), a.uint(0), a.FALSE, a.NULL, a.NULL, a.described(a.SOURCE),
                    a.described(a.COORDINATOR), a.NULL, a.NULL, a.uint(0))
    client = a.Client(amqp(port), a.opened() + a.begun() + attach)
    client.until(a.FLOW)
    declare = b"\0\x53\x77" + a.described(0x31)
    declared = refused = 0
    for first in range(0, 20_000, 400):
        client.peer.sendall(b"".join(a.transfer(0, first + n, declare, settled=a.FALSE) for n in range(400)))
        for _ in range(400):
            body = client.until(a.DISPOSITION)
            declared += b"\0\x53\x33" in body
            refused += b"resource-limit-exceeded" in body
    assert (declared, refused) == (OPEN_MAX, 20_000 - OPEN_MAX), (declared, refused)
    return [client]


def logins(port):
    """SASL: frames of 100 KiB, an endless exchange, unknown mechanisms, AMQP inside of it"""
    def sasl(body):
        return a.frame(body, kind=1)

    init = a.described(0x41, a.symbol("ANONYMOUS"), a.binary(b"x" * 100_000))
    response = a.described(0x43, a.binary(b"x"))
    for words in (sasl(init), sasl(response) * 1000, sasl(a.described(0x41, a.symbol("NONE" * 60))), a.opened(),
                  a.SASL_HEADER * 100, sasl(a.described(0x41)), sasl(b"")):
        peer = socket.create_connection(("127.0.0.1", amqp(port)), 10)
        peer.sendall(a.SASL_HEADER)
        peers.send_some(peer, words)
        peer.shutdown(socket.SHUT_WR)
        assert peers.ended(peer), f"it stays open after {words[:40]!r}"
        peer.close()


def mutations(port):
    """400 conversations with bytes changed, left out and doubled"""
    random.seed(SEED)
    queue = "hostile.amqp.mutations"
    sound = b"".join([
        a.opened(), a.begun(), a.sender("s", 0, queue), a.receiver("r", 1, queue), a.flow(1, 10),
        *(a.transfer(0, number, a.message(b"m"), settled=a.FALSE) for number in range(5)),
        a.said(a.DISPOSITION, a.TRUE, a.uint(0), a.uint(4), a.TRUE, a.described(0x24)),
        a.said(a.DETACH, a.uint(0), a.TRUE), a.said(a.END), a.said(a.CLOSE),
    ])
    for _ in range(400):
        words = bytearray(sound)
        for _ in range(random.randrange(1, 6)):
            at = random.randrange(len(words))
            how = random.randrange(3)
            if how == 0:
                words[at] = random.randrange(256)
            elif how == 1:
                del words[at : at + random.randrange(1, 9)]
            else:
                words[at:at] = words[at : at + random.randrange(1, 40)]
        client = a.Client(amqp(port), bytes(words))
        client.peer.settimeout(0.02)
        try:
            while client.take() is not None:
                pass
        except (TimeoutError, OSError):
            pass
        client.close()


CASES = [
    sizes, bombs, channels, names, without_credit, deaf_with_credit, credit_flood, never_settles, costly_verdicts,
    unfinished, transactions, logins, mutations,
]


def run(binary, report, only=None):
    broker = brokers.new(binary).must_start()
    for case in CASES:
        if only and only not in case.__name__:
            continue
        if not broker.alive():
            broker = brokers.new(binary).must_start()
        peers.run_case(broker, case, lambda title, *more: report(f"AMQP: {title}", *more))
    broker.kill()
