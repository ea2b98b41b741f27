"""Ten thousand connections that do nothing."""

import resource
import time

import broker as brokers
import openwire as o
from witness import Witness

CONNECTIONS = 10_000
# The broker's part of one connection; the kernel's socket buffers are not in it. The aim is 8 KiB, which was kept until links,
# routes and permissions had their parts in a connection: docs/benchmarks.md.
BYTES_EACH_MAX = 10 << 10


DESCRIPTORS = 256


def run(binary, report, only=None):
    descriptors(binary, report, only)
    many(binary, report, only)


def descriptors(binary, report, only):
    """Connections may take what the system allows; the journal needs files none the less."""
    title = f"idle connections use up {DESCRIPTORS} descriptors: durable sends of 160 MiB go on"
    if only and only not in title:
        return
    started, peers = time.monotonic(), []
    broker = brokers.new(binary)
    try:
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        assert broker.start(limits=few), broker.errors()[-300:]
        sender = o.Client(broker.port)
        peers = [o.dial(broker.port) for _ in range(DESCRIPTORS + 50)]
        time.sleep(0.3)
        for _ in range(160):
            sender.send(o.queue("descriptors"), b"x" * (1 << 20))
        while peers:
            peers.pop().close()
        time.sleep(0.5)
        o.Client(broker.port).close()
        broker.check()
        report(title, None, time.monotonic() - started)
    except Exception as error:
        report(title, error, time.monotonic() - started)
    for peer in peers:
        peer.close()
    broker.kill()


def many(binary, report, only):
    title = f"{CONNECTIONS} idle connections: others are served, at most {BYTES_EACH_MAX} bytes each"
    if only and only not in title:
        return
    started = time.monotonic()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit < CONNECTIONS + 200:
        return report(title, f"the system allows {limit} open files", 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    broker = brokers.new(binary).must_start()
    peers = []
    try:
        witness = Witness(broker.port)
        witness.start()
        time.sleep(0.3)
        before = broker.memory_bytes()
        for number in range(CONNECTIONS):
            # A few source addresses: one has no more than some 28,000 ports, some of them lately used.
            peer = o.dial(broker.port, f"127.0.0.{2 + number % 8}")
            name = f"ID:idle-{number}"
            peer.sendall(o.wire_format() + o.frame(
                o.CONNECTION_INFO, command_id=1, response_required=True, connection_id=(120, {"value": name}), client_id=name
            ))
            peers.append(peer)
        for peer in peers:
            assert o.select_read(peer, 10), "a connection is not answered"
            assert peer.recv(1 << 16), "a connection was closed"
        witness.check(witness.rounds)
        time.sleep(1)
        longest = witness.check(witness.rounds)
        each = (broker.memory_bytes() - before) // CONNECTIONS
        broker.check()
        assert each <= BYTES_EACH_MAX, f"{each} bytes for each connection"
        left = time.monotonic()
        for peer in peers:
            peer.close()
        witness.check(witness.rounds)
        note = f"{each} bytes each, longest round trip {longest * 1000:.0f} ms, {time.monotonic() - left:.1f} s to leave"
        report(title, None, time.monotonic() - started, note)
        witness.stop()
    except Exception as error:
        report(title, error, time.monotonic() - started)
    for peer in peers:
        peer.close()
    broker.kill()
