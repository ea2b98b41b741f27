"""Limits on what lies on the disk, of the broker, of a tenant and of a queue (docs/features/limits.md): kill -9 changes nothing of them."""

import os

import broker as brokers
import disk
import openwire as o

STORE_BYTES = 256 << 20
# The limit of a tenant or a queue, and what lies there: the largest number of bodies that fits with their headers.
LIMIT_BYTES, BODY = 1 << 20, b"x" * (64 << 10)
FITS = LIMIT_BYTES // (len(BODY) + 1)
STORE = f"[store]\ndisk_bytes_max = {STORE_BYTES}\n"
TENANT = f"""[[tenant]]
name = "acme"
destinations = ["queue://acme.>"]
disk_bytes_max = {LIMIT_BYTES}
at_limit = "fail"
"""
POLICY = f"""[[policy]]
destination = "queue://acme.a"
disk_bytes_max = {LIMIT_BYTES}
at_limit = "fail"
"""
FREE = o.queue("free")


def passes(broker, *queues):
    """What is not persistent passes, and what goes elsewhere than to those that are full."""
    client = o.Client(broker.port)
    for queue in queues:
        client.send(queue, b"volatile", persistent=False)
        client.consume(queue, 1000)
    client.close()


def used_bytes(broker):
    """What the files take, blocks that were never written aside."""
    files = [os.path.join(broker.data, name) for name in os.listdir(broker.data)]
    return sum(os.stat(file).st_blocks * 512 for file in files)


def of_store(broker):
    ledger = disk.Ledger()

    def is_full():
        refusal = ledger.fill(o.Client(broker.port))
        assert refusal.java_class.endswith("ResourceAllocationException"), refusal
        assert "the store is full" in refusal.text and "disk" in refusal.text, refusal
        assert broker.metric('postroad_journal_full{store="main"}') == 1
        status, reason = broker.ready()
        assert status == 503 and "full" in reason, (status, reason)
        passes(broker, o.queue("volatile"))
        # They may go beyond it for what makes room again.
        used = used_bytes(broker)
        assert used <= STORE_BYTES, f"{used >> 20} MiB of files"
        return used

    def consumed():
        reader = o.Client(broker.port)
        reader.consume(disk.QUEUE, 20)
        ledger.take(reader, (len(ledger.sent) - len(ledger.done)) * 3 // 4)
        reader.close()
        ledger.resume(o.Client(broker.port))

    used = [is_full()]
    taken = len(ledger.sent)
    consumed()
    used.append(is_full())
    broker.kill()
    broker.must_start()
    # Room that a start finds may take some in.
    used.append(is_full())
    consumed()
    broker.kill()
    broker.must_start()
    ledger.check_all(o.Client(broker.port))
    return f"full after {taken} messages; {', '.join(str(bytes >> 20) for bytes in used)} MiB of files of {STORE_BYTES >> 20}"


def filled(broker, queues):
    """Sends to each in turn until one is refused: how many were taken, and the refusal."""
    client = o.Client(broker.port)
    for number in range(2 * FITS):
        try:
            client.send(queues[number % len(queues)], b"%d:" % number + BODY, seconds=15)
        except o.Refused as refusal:
            client.close()
            return number, refusal
    raise AssertionError(f"{2 * FITS} sends were not refused")


def of_some(broker, queues, others, word):
    """A limit over `queues` together, whose refusal has this word in it; `others` are free."""

    def is_full(want):
        taken, refusal = filled(broker, queues)
        assert taken == want, f"{taken} of {want} were taken"
        assert refusal.java_class.endswith("ResourceAllocationException") and word in refusal.text, refusal
        passes(broker, queues[0])
        client = o.Client(broker.port)
        for queue in others:
            client.send(queue, BODY)
        client.close()
        return refusal

    def consumed(count):
        client = o.Client(broker.port)
        client.consume(queues[0], 1)
        persistent = 0
        while persistent < count:
            delivery = client.take()
            persistent += len(o.body(delivery)) > len(BODY)
            client.answer(client.ack(delivery))
        client.close()

    refusal = is_full(FITS)
    consumed(3)
    is_full(3)
    broker.kill()
    broker.must_start()
    is_full(0)
    consumed(2)
    is_full(2)
    broker.kill()
    broker.must_start()
    is_full(0)
    there = sum(len(body) > len(BODY) for queue in queues for body, _ in brokers.drain(o.Client(broker.port), queue))
    assert there == FITS, f"{there} messages are there, not {FITS}"
    return f"{refusal} after {FITS}"


def of_tenant(broker):
    return of_some(broker, (o.queue("acme.a"), o.queue("acme.b")), (FREE,), "acme")


def of_policy(broker):
    return of_some(broker, (o.queue("acme.a"),), (o.queue("acme.b"), FREE), "limit of its policy")


def run(binary, report, only=None):
    for title, act, extra in (
        ("of the broker: refused, the rest goes on, and the same after kill -9", of_store, STORE),
        ("of a tenant: the same", of_tenant, TENANT),
        ("of a queue by its policy: the same", of_policy, POLICY),
    ):
        if only and only not in act.__name__:
            continue
        broker = brokers.new(binary, extra).must_start()
        broker.case(report, f"disk_bytes_max {title}", lambda: act(broker))
        broker.kill()
