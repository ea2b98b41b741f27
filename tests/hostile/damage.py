"""Bits that flip on the disk while the broker runs, and files that go: what is hit is missed and told of, the rest comes as it was sent."""

import hashlib
import mmap
import os
import re
import subprocess
import time

import broker as brokers
import files
import openwire as o

COUNT, BODY_BYTES = 40, 600_000
# Two are neighbours, one is the last; all lie in a segment that nothing more is written to.
HIT = (17, 18, 25, 31, 39)
QUEUE, FILL = o.queue("damage"), o.queue("fill")
# Bytes behind them, so that they lie in segments that are left: the largest has 64 MiB.
FILL_BYTES = 80 << 20


def body_of(number):
    return b"%d:" % number + hashlib.shake_256(b"%d" % number).digest(BODY_BYTES)


def places(broker, data):
    """Where it lies, as often as it does: `[(file, offset)]`."""
    found = []
    for name in sorted(os.listdir(broker.data)):
        path = os.path.join(broker.data, name)
        if not os.path.isfile(path) or not os.path.getsize(path):
            continue
        with open(path, "rb") as source, mmap.mmap(source.fileno(), 0, prot=mmap.PROT_READ) as held:
            at = held.find(data)
            while at >= 0:
                found.append((name, at))
                at = held.find(data, at + 1)
    return found


def fill(broker):
    """All bodies, and enough behind them."""
    client = o.Client(broker.port)
    for number in range(COUNT):
        client.send(QUEUE, body_of(number))
    for _ in range(FILL_BYTES // BODY_BYTES):
        client.send(FILL, b"x" * BODY_BYTES)
    client.close()


def while_running(broker):
    fill(broker)
    # Nothing of it is in memory.
    broker.kill()
    broker.must_start()
    hit = {}
    for number in HIT:
        hit[number] = places(broker, body_of(number)[BODY_BYTES // 2 :][:64])
        assert hit[number], f"body {number} is nowhere"
        for name, at in hit[number]:
            files.flip(os.path.join(broker.data, name), at, 0x04)

    client = o.Client(broker.port)
    client.consume(QUEUE, 4)
    for number in range(COUNT):
        if number not in HIT:
            delivery = client.take(20)
            assert o.body(delivery) == body_of(number), f"{o.body(delivery)[:4]} came, or another body of it, not {number}"
            client.answer(client.ack(delivery))
    nothing_comes(client)
    client.close()
    assert broker.metric('postroad_damaged_messages_total{partition="0"}') == len(HIT)
    told = {(name, int(at)) for name, at in re.findall(r"/(\w+\.segment): damaged at byte (\d+)", broker.errors())}
    for number, lies in hit.items():
        # What is told is where the record begins.
        near = [at for name, at in told if any(name == file and at <= flipped < at + BODY_BYTES for file, flipped in lies)]
        assert near, f"the log does not name {lies}, where body {number} is damaged: {sorted(told)}"
    assert len(told) == len(HIT), f"it tells of more: {sorted(told)}"
    assert broker.metric('postroad_journal_damaged_ranges{store="main"}') == len(HIT)
    of_messages = [line for line in broker.errors().splitlines() if "a message cannot be read" in line]
    assert len(of_messages) == len(HIT) and all("queue://damage" in line for line in of_messages), of_messages
    assert broker.ready() == (200, "ready\n"), broker.ready()

    # They stay, and harm nobody.
    broker.kill()
    broker.must_start()
    assert broker.metric('postroad_queue_depth{destination="queue://damage"}') == len(HIT)
    client = o.Client(broker.port)
    client.consume(QUEUE, 4)
    client.send(QUEUE, b"behind")
    assert o.body(client.take()) == b"behind"
    nothing_comes(client)


def segment_removed(broker):
    """Sealed segments before the last checkpoint, one of which somebody removes and puts back."""
    fill(broker)
    assert broker.terminate(20) == 0
    lies = [{name for name, _ in places(broker, body_of(number)[BODY_BYTES // 2 :][:64])} for number in range(COUNT)]
    gone = min(set.union(*lies))
    left = [number for number in range(COUNT) if gone not in lies[number]]
    assert 0 < len(left) < COUNT, f"all or none of them are in {gone}"
    name = gone.split(".")[0]
    dump = [broker.binary, "store", "dump", broker.data]
    everything = subprocess.run(dump, capture_output=True, text=True).stdout.splitlines()
    elsewhere = [line for line in everything if not line.startswith(name)]
    aside = os.path.join(broker.data, "..", "aside")
    os.rename(os.path.join(broker.data, gone), aside)

    verify = [broker.binary, "store", "verify", broker.data]
    found = subprocess.run(verify, capture_output=True, text=True)
    assert found.returncode == 1 and f"{gone}: byte 0: the file is missing" in found.stdout, found
    dumped = subprocess.run(dump, capture_output=True, text=True)
    assert dumped.returncode == 1 and f"{gone}: damaged at byte 0: the file is missing" in dumped.stderr, dumped.stderr
    assert dumped.stderr.endswith("1 damaged place\n"), dumped.stderr
    assert len(elsewhere) < len(everything) and dumped.stdout.splitlines() == elsewhere, "not all records but its own"
    stats = subprocess.run([broker.binary, "store", "stats", broker.data], capture_output=True, text=True)
    assert stats.returncode == 0 and " (1 missing), " in stats.stdout, stats
    assert f"{int(name, 16):<34x} {'missing':>12} " in stats.stdout, stats.stdout
    broker.must_start()
    assert broker.ready() == (200, "ready\n"), broker.ready()
    assert f"{gone}: damaged at byte 0: the file is missing" in broker.errors(), broker.errors()
    client = o.Client(broker.port)
    client.consume(QUEUE, 4)
    for number in left:
        delivery = client.take(20)
        assert o.body(delivery) == body_of(number), f"{o.body(delivery)[:4]} came, not {number}"
        client.answer(client.ack(delivery))
    nothing_comes(client)
    client.send(QUEUE, b"behind")
    delivery = client.take()
    assert o.body(delivery) == b"behind"
    client.answer(client.ack(delivery))
    client.close()
    broker.kill()

    os.rename(aside, os.path.join(broker.data, gone))
    broker.must_start()
    client = o.Client(broker.port)
    client.consume(QUEUE, 4)
    for number in sorted(set(range(COUNT)) - set(left)):
        delivery = client.take(20)
        assert o.body(delivery) == body_of(number), f"{o.body(delivery)[:4]} came back, not {number}"
        client.answer(client.ack(delivery))
    nothing_comes(client)


def directory_gone(broker):
    """Its directory is moved away, then another put there, then its newest segment removed; what was confirmed counts."""
    client = o.Client(broker.port)
    client.send(QUEUE, b"first")
    aside, fake = broker.data + ".aside", broker.data + ".fake"
    notes = []
    for word, there in (("the directory was removed", False), ("another directory is in its place", True)):
        os.rename(broker.data, aside)
        if there:
            os.mkdir(broker.data)
        notes.append(stops(broker, client, word))
        if there:
            os.rename(broker.data, fake)
            assert not os.listdir(fake), f"it wrote where it was not told to: {os.listdir(fake)}"
        os.rename(aside, broker.data)
        await_ready(broker, 200, "ready")
        client.send(QUEUE, word.encode())
    client.consume(QUEUE, 1)
    for want in (b"first", b"the directory was removed", b"another directory is in its place"):
        delivery = client.take()
        assert o.body(delivery) == want, o.body(delivery)
        client.answer(client.ack(delivery))
    segments = [name for name in os.listdir(broker.data) if name.endswith(".segment")]
    for name in segments:
        os.unlink(os.path.join(broker.data, name))
    notes.append(stops(broker, client, "the file was removed"))
    return f"it stops after {max(notes):.1f} s at most"


def stops(broker, client, word):
    """How long the broker takes to see it."""
    started = time.monotonic()
    await_ready(broker, 503, word)
    took = time.monotonic() - started
    try:
        client.send(QUEUE, b"for nobody", seconds=5)
        raise AssertionError("it confirms what nobody will find")
    except o.Refused as refusal:
        assert word in refusal.text, refusal
    return took


def await_ready(broker, status, word):
    until = time.monotonic() + 5
    while time.monotonic() < until:
        found = broker.ready()
        if found[0] == status and word in found[1]:
            return
        time.sleep(0.05)
    raise AssertionError(f"not {status} with {word!r} within 5 s: {found}")


def nothing_comes(client):
    try:
        raise AssertionError(f"{o.body(client.take(1))[:6]} came behind all others")
    except TimeoutError:
        pass


def run(binary, report, only=None):
    cases = {
        f"{len(HIT)} of {COUNT} bodies are damaged while it runs: the others come, and it tells where": while_running,
        "its directory is moved away, and then its newest segment removed: it confirms nothing from then on": directory_gone,
        "a segment is gone: what is in others comes, and the rest once it is put back": segment_removed,
    }
    for title, case in cases.items():
        if only and only not in title:
            continue
        broker = brokers.new(binary).must_start()
        broker.case(report, title, lambda: case(broker))
        broker.kill()
