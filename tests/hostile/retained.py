"""One client that multiplies what topics retain: many temporary queues, and many subscriptions to their advisories."""

import time

import broker as brokers
import openwire as o

TEMPORARY_QUEUES = 4000
CONSUMERS = 400
# The broker's own floor and what a debug build takes beside the budget.
RSS_MAX = 160 << 20


def run(binary, report, only=None):
    title = f"{TEMPORARY_QUEUES} temporary queues, {CONSUMERS} consumers of their advisories: others are served within the budget"
    if only and only not in title:
        return
    started = time.monotonic()
    broker = brokers.new(binary).must_start()
    try:
        hostile, other = o.Client(broker.port), o.Client(broker.port)
        for number in range(TEMPORARY_QUEUES):
            name = f"{hostile.name}:{number}"
            hostile.call(o.DESTINATION_INFO, connection_id=(120, {"value": hostile.name}),
                         destination=(o.TEMP_QUEUE, {"name": name}), operation=0, timeout=0)
        before = broker.memory_bytes()
        for _ in range(CONSUMERS):
            hostile.consume(o.topic("ActiveMQ.Advisory.TempQueue"), prefetch=0)
        after = broker.memory_bytes()
        begun = time.monotonic()
        other.send(o.queue("others"), b"hello", persistent=False, seconds=5)
        waited_ms = (time.monotonic() - begun) * 1000
        # A reader that acknowledges gets all of them.
        reader = o.Client(broker.port)
        reader.consume(o.topic("ActiveMQ.Advisory.TempQueue"), prefetch=1000)
        for number in range(TEMPORARY_QUEUES):
            try:
                reader.ack(reader.take(5), wait=False)
            except TimeoutError:
                raise AssertionError(f"a reader was shown {number} of {TEMPORARY_QUEUES} advisories") from None
        # A pattern that does not spell the broker's own topics gets none of them.
        stranger = o.Client(broker.port)
        stranger.consume(o.topic(">"), prefetch=1000)
        try:
            shown = stranger.take(1)
            raise AssertionError(f"a subscriber of every topic was shown an advisory: {shown['destination']}")
        except TimeoutError:
            pass
        assert after < RSS_MAX and after - before < 16 << 20, f"{before >> 20} MiB, then {after >> 20} MiB"
        broker.check()
        report(title, None, time.monotonic() - started,
               f"{before >> 20} MiB, then {after >> 20} MiB; a send in {waited_ms:.0f} ms")
    except Exception as error:
        report(title, error, time.monotonic() - started)
    broker.kill()
