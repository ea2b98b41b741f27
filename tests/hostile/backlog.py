"""A million messages that nobody reads, in 64 MiB of memory: how much that is, kill -9, and all of them are there soon."""

import base64
import glob
import os
import subprocess
import time

import amqp
import amqp_wire as a
import broker as brokers
import openwire as o

MESSAGES, QUEUES = 1_000_000, 100
# Bodies of base64 have four characters for three bytes of noise.
BODY_BYTES, NOISE_BYTES = 100, 75
# How many are read and compared; the others are counted. NIGHTLY reads all.
READ = MESSAGES if "NIGHTLY" in os.environ else 200_000
# Of queues with the same number each so many are read.
QUEUES_READ = 3
# Much more than it takes: a shared machine has pauses.
FIRST_DELIVERY_MAX_S = 5
TOOL_SECONDS = 120
# As many readers, each of a queue of its own that is some times as large as what one of them may have read ahead of it.
READERS, UNREAD, UNREAD_BYTES = 200, 60, 16 << 10
# So many transactions of so many messages of 1000 bytes, of each of which one stays: twice what stays, and some for each record.
TRANSACTIONS, OF_EACH = 300, 400
LEFT_BYTES_MAX = TRANSACTIONS * 2 * 1300
# Where so many have a message in hand it may take more than it was given: that, and 16 KiB for each connection and its buffers.
IN_HAND_BYTES = READERS * (UNREAD_BYTES + (16 << 10))


def write_lines(path):
    with open(path, "wb") as out:
        for _ in range(MESSAGES // 10_000):
            noise = base64.b64encode(os.urandom(10_000 * NOISE_BYTES))
            out.write(b"".join(noise[at : at + BODY_BYTES] + b"\n" for at in range(0, len(noise), BODY_BYTES)))


def bench(broker, *words):
    """A measurement of postroad-bench, which is beside the binary."""
    tool(broker, *words, program=os.path.join(os.path.dirname(broker.binary), "postroad-bench"), stdout=subprocess.DEVNULL)


def tool(broker, *words, program=None, **files):
    """A command of the binary, as a client of the broker."""
    command = [program or broker.binary, *words, "--url", f"tcp://127.0.0.1:{broker.port}"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=TOOL_SECONDS, **files)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-400:]}"


def read(broker, name, count):
    """The bodies of so many messages of a queue, one behind the other."""
    path = os.path.join(broker.folder, "got")
    with open(path, "wb") as out:
        tool(broker, "receive", name, "--raw", "--count", str(count), "--timeout", "20000", stdout=out)
    with open(path, "rb") as got:
        return got.read()


def depths(broker):
    """What each queue holds, by name."""
    rows = [row for row in broker.http("/metrics")[1].splitlines() if row.startswith("postroad_queue_depth{")]
    return {row.split('"')[1].removeprefix("queue://"): int(float(row.split()[-1])) for row in rows}


def most_mib(broker):
    """The most memory that it took, which is no more than it was given."""
    most = broker.memory_bytes("VmHWM")
    assert most <= brokers.MEMORY_BYTES, f"{most / (1 << 20):.1f} MiB of memory, of {brokers.MEMORY_BYTES >> 20}"
    return round(most / (1 << 20), 1)


def killed(broker, name):
    """The most memory before, and seconds from the start to the first delivery."""
    most = most_mib(broker)
    broker.kill()
    started = time.monotonic()
    broker.must_start()
    client = o.Client(broker.port)
    client.consume(o.queue(name), 1)
    client.take(60)
    took = time.monotonic() - started
    client.close()
    assert took <= FIRST_DELIVERY_MAX_S, f"the first delivery came {took:.1f} s after the start"
    return most, took


def one_queue(broker):
    lines = os.path.join(broker.folder, "lines")
    write_lines(lines)
    with open(lines, "rb") as source:
        tool(broker, "send", "deep", "--lines", "--window", "4096", stdin=source, stdout=subprocess.DEVNULL)
    most, took = killed(broker, "deep")
    assert depths(broker) == {"deep": MESSAGES}, depths(broker)
    with open(lines, "rb") as wanted:
        want = wanted.read(READ * (BODY_BYTES + 1)).replace(b"\n", b"")
    assert read(broker, "deep", READ) == want, f"not the first {READ} messages, in order"
    assert depths(broker) == {"deep": MESSAGES - READ}, depths(broker)
    return f"{most} MiB, {most_mib(broker)} MiB while reading; first delivery {took:.1f} s after the start"


def many_queues(broker):
    bench(broker, "depth", "--messages", str(MESSAGES), "--queues", str(QUEUES), "--rounds", "1", "--probe", "1000")
    names = [name for name, depth in depths(broker).items() if depth]
    most, took = killed(broker, names[0])
    there = {name: depth for name, depth in depths(broker).items() if depth}
    assert there == dict.fromkeys(names, MESSAGES // QUEUES) and len(names) == QUEUES, there
    for name in names[:: QUEUES // QUEUES_READ]:
        got = read(broker, name, there[name])
        assert len(got) == there[name] * BODY_BYTES, f"{name}: {len(got)} bytes of bodies"
    return f"{most} MiB, {most_mib(broker)} MiB while reading; first delivery {took:.1f} s after the start"


def many_readers(broker):
    for number in range(READERS):
        amqp.filled(broker.port, f"unread.{number}", UNREAD, b"x" * UNREAD_BYTES, a.DURABLE)
    before = most_mib(broker)
    readers = [o.Client(broker.port) for _ in range(READERS)]
    for number, reader in enumerate(readers):
        reader.consume(o.queue(f"unread.{number}"), 1)
        reader.take(60)
    at_it = broker.memory_bytes("VmHWM")
    assert at_it <= brokers.MEMORY_BYTES + IN_HAND_BYTES, f"{at_it / (1 << 20):.1f} MiB for {READERS} readers of a message each"
    for reader in readers:
        reader.close()
    rest = {f"unread.{number}": UNREAD for number in range(READERS)}
    deadline = time.monotonic() + 20
    while (left := broker.memory_bytes("VmRSS")) > brokers.MEMORY_BYTES or depths(broker) != rest:
        assert time.monotonic() < deadline, f"{left / (1 << 20):.1f} MiB once they have gone; {depths(broker)}"
        time.sleep(0.2)
    return f"{before} MiB, {at_it / (1 << 20):.1f} MiB while they are at it, {left / (1 << 20):.1f} MiB behind them"


def left_of_transactions(broker):
    """One message stays of each transaction with hundreds: what compaction leaves is that, and it is there after a kill."""
    client = o.Client(broker.port)
    for number in range(1, TRANSACTIONS + 1):
        client.step(0, number)
        for place in range(OF_EACH):
            name = "stays" if place == OF_EACH // 2 else "goes"
            client.publish(o.queue(name), f"{number} ".ljust(1000, "x"), wait=False, transaction=client.transaction(number))
        client.step(2, number)
    client.close()
    sizes = lambda: [os.path.getsize(path) for path in glob.glob(f"{broker.data}/**/*.compacted", recursive=True)]
    passing = TRANSACTIONS * (OF_EACH - 1)
    for _ in range(20):
        tool(broker, "receive", "goes", "--raw", "--count", str(passing), "--timeout", "20000", stdout=subprocess.DEVNULL)
        # What passes through brings checkpoints, and so compaction.
        passing = 60_000
        tool(broker, "send", "goes", "--body", "y" * 1000, "--count", str(passing), "--window", "4096", stdout=subprocess.DEVNULL)
        if sizes() and sum(sizes()) < LEFT_BYTES_MAX:
            break
    assert sizes() and sum(sizes()) < LEFT_BYTES_MAX, f"{sizes()} bytes for {TRANSACTIONS} messages of 1000"
    left = sum(sizes())
    broker.kill()
    broker.must_start()
    got = read(broker, "stays", TRANSACTIONS)
    assert got == b"".join(f"{number} ".ljust(1000, "x").encode() for number in range(1, TRANSACTIONS + 1)), "not those that stayed"
    return f"{left >> 10} KiB for {TRANSACTIONS} messages of 1000 bytes, of {TRANSACTIONS * OF_EACH // 1000} MB that were sent"


def run(binary, report, only=None):
    for title, act in (
        ("a million messages in one queue, in 64 MiB; kill -9; all are there", one_queue),
        (f"a million messages in {QUEUES} queues, in 64 MiB; kill -9; all are there", many_queues),
        (f"one message of each transaction of {OF_EACH} stays", left_of_transactions),
        (f"{READERS} readers of large queues, each with one message in hand, in 64 MiB; they go", many_readers),
    ):
        if only and only not in act.__name__:
            continue
        broker = brokers.new(binary).must_start()
        broker.case(report, f"backlog: {title}", lambda: act(broker))
        broker.kill()
        subprocess.run(["rm", "-rf", broker.folder])
