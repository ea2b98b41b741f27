"""Large messages: memory stays what it is, nobody waits for them, and what is cut off leaves nothing."""

import hashlib
import os
import struct
import subprocess
import tempfile
import time

import amqp
import amqp_wire as a
import broker as brokers
import openwire as o
from witness import Witness

MIB = 1 << 20
BYTES_MESSAGE = 24
o.FIELDS.setdefault(BYTES_MESSAGE, o.FIELDS[o.TEXT_MESSAGE])
GIB = 1 << 30
LIMIT = "[openwire]\nmax_frame_bytes = 2147483647\n[amqp]\nmax_message_bytes = 3221225472\n"
# What the broker may take for one large message on its way in and out at once: pieces in flight, buffers of two sockets, and
# the allocator's slack.
GROWTH_BYTES_MAX = 48 * MIB
LARGE = 256 * MIB


def pieces(total, seed=1):
    """A body that no piece of which repeats."""
    block = hashlib.shake_256(str(seed).encode()).digest(MIB)
    for at in range(0, total, MIB):
        piece = struct.pack(">q", at) + block[8:]
        yield piece[: min(MIB, total - at)]


class Sender(o.Client):
    """Sends bodies that it never has in memory."""

    def begin(self, destination, total, persistent=True, transaction=None):
        """Everything of a frame ahead of its body; returns the number of the command and what stands behind the body."""
        self.sent += 1
        number = self.next_command()
        producer = (123, {"connection_id": self.name, "value": 1, "session_id": 1})
        whole = o.frame(
            BYTES_MESSAGE, command_id=number, response_required=True, producer_id=producer, destination=destination,
            transaction_id=transaction, message_id=(110, {"producer_id": producer, "producer_sequence": self.sent}),
            persistent=persistent, priority=4, content=b"MARK",
        )
        at = whole.index(struct.pack(">i", 4) + b"MARK")
        head, tail = whole[4:at], whole[at + 8 :]
        size = len(head) + 4 + total + len(tail)
        self.peer.sendall(struct.pack(">i", size) + head + struct.pack(">i", total))
        return number, tail

    def send_large(self, destination, total, seed=1, seconds=60, **options):
        number, tail = self.begin(destination, total, **options)
        for piece in pieces(total, seed):
            self.peer.sendall(piece)
        self.peer.sendall(tail)
        self.answer(number, seconds)


class Receiver(o.Client):
    """Takes frames that it never has in memory: `digests` has one for each large one, of its body alone."""

    def take_large(self, total, seconds=60):
        """The next delivery, whose body has `total` bytes: its message id, and the digest of the body."""
        until = time.monotonic() + seconds
        head = self.exactly(4, until)
        size = struct.unpack(">i", head)[0]
        while size < total:
            self.keep(o.decode(self.exactly(size, until)))
            size = struct.unpack(">i", self.exactly(4, until))[0]
        begin = self.exactly(64 << 10, until)
        # Unlike anything ahead of it: sizes are chosen so.
        at = begin.index(struct.pack(">i", total)) + 4
        digest, left = hashlib.sha256(begin[at:]), total - (len(begin) - at)
        while left > 0:
            part = self.exactly(min(left, MIB), until)
            digest.update(part)
            left -= len(part)
        tail = self.exactly(size - (64 << 10) - (total - (len(begin) - at)), until)
        small = begin[: at - 4] + struct.pack(">i", 0) + tail
        kind, fields = o.decode(small)
        assert kind == o.MESSAGE_DISPATCH, kind
        return fields, digest.hexdigest()

    def settle(self, delivery):
        """Waits for no answer: ahead of that the next delivery may come."""
        self.ack(delivery, wait=False)

    def exactly(self, count, until):
        data = bytearray(self.buffer[:count])
        del self.buffer[:count]
        while len(data) < count:
            if not o.select_read(self.peer, max(0, until - time.monotonic())):
                raise TimeoutError("the body stops")
            part = self.peer.recv(min(count - len(data), 1 << 18))
            if not part:
                raise o.Gone("closed by the broker")
            data += part
        return bytes(data)


# How a section of bytes begins, up to its length.
DATA = b"\0\x53\x75\xb0"


class AmqpSender:
    """The same by AMQP, on a link of its own for each message."""

    def __init__(self, port):
        self.client, self.links = a.Client(amqp.amqp(port)), 0

    def send_large(self, destination, total, seed=1, seconds=60, persistent=True):
        client, handle = self.client, self.links
        client.peer.settimeout(seconds)
        client.peer.sendall(a.sender(f"large-{handle}", handle, destination[1]["name"]))
        client.until(a.FLOW)
        self.links += 1
        ahead = a.DURABLE if persistent else b""
        for piece in self.body(total, seed):
            piece, ahead = ahead + piece, b""
            # A frame may have 1 MiB.
            for part in (piece[: MIB // 2], piece[MIB // 2 :]):
                client.peer.sendall(a.transfer(handle, handle, part, settled=a.FALSE, more=a.TRUE))
        client.peer.sendall(a.transfer(handle, handle, b"", settled=a.FALSE))
        verdict = client.until(a.DISPOSITION)
        assert b"\0\x53\x24" in verdict, f"not accepted: {verdict}"

    def body(self, total, seed):
        """One section."""
        yield DATA + struct.pack(">I", total)
        yield from pieces(total, seed)


class SectionsSender(AmqpSender):
    def body(self, total, seed):
        """A section for each piece, and a footer behind them."""
        for piece in pieces(total, seed):
            yield DATA + struct.pack(">I", len(piece)) + piece
        yield b"\0\x53\x78\xc1\x01\0"


class AmqpReceiver:
    def __init__(self, port):
        self.client = a.Client(amqp.amqp(port))

    def consume(self, destination, credit):
        self.client.peer.sendall(a.receiver("large", 0, destination[1]["name"]) + a.flow(0, credit))

    def take_large(self, total, seconds=60):
        """The number of the next delivery, whose body has `total` bytes, and the digest of the body."""
        self.client.peer.settimeout(seconds)
        first, part = a.delivered(self.client.until(a.TRANSFER))
        mark, ahead = DATA + struct.pack(">I", total), bytes(part)
        while mark not in ahead:
            assert len(ahead) < MIB, f"no body of {total} bytes begins: {ahead[:100]}"
            ahead += a.delivered(self.client.until(a.TRANSFER))[1]
        part = ahead[ahead.index(mark) + len(mark) :]
        digest, left = hashlib.sha256(part), total - len(part)
        while left > 0:
            _, part = a.delivered(self.client.until(a.TRANSFER))
            digest.update(part)
            left -= len(part)
        assert not left, f"{-left} bytes too many"
        return first, digest.hexdigest()

    def settle(self, number):
        self.client.peer.sendall(a.accepted(number))


def digest_of(total, seed=1):
    digest = hashlib.sha256()
    for piece in pieces(total, seed):
        digest.update(piece)
    return digest.hexdigest()


class Peak:
    """The most resident memory of the broker from now on."""

    def __init__(self, broker):
        self.broker = broker
        with open(f"/proc/{broker.process.pid}/clear_refs", "w") as out:
            # What it was at most before is forgotten.
            out.write("5")

        self.before = broker.memory_bytes()

    def grown(self):
        """By how many bytes it has grown at most."""
        return max(0, self.broker.memory_bytes("VmHWM") - self.before)


def goes_through(binary, persistent=True, total=LARGE, wire=(Sender, Receiver)):
    broker, seconds = brokers.new(binary, LIMIT).must_start(), max(60, total // (8 * MIB))
    try:
        warm(broker, wire)
        peak = Peak(broker)
        witness = Witness(broker.port)
        witness.start()
        sender, receiver = (end(broker.port) for end in wire)
        if not persistent:
            receiver.consume(o.queue("large"), 1)
        began = time.monotonic()
        sender.send_large(o.queue("large"), total, persistent=persistent, seconds=seconds)
        sent = time.monotonic()
        if persistent:
            receiver.consume(o.queue("large"), 1)
        delivery, digest = receiver.take_large(total, seconds)
        taken = time.monotonic()
        assert digest == digest_of(total), "another body"
        receiver.settle(delivery)
        grown = peak.grown()
        slowest = witness.check(0)
        witness.stop()
        until = time.monotonic() + 10
        while broker.metric('postroad_queue_depth{destination="queue://large"}') and time.monotonic() < until:
            time.sleep(0.1)
        assert broker.metric('postroad_queue_depth{destination="queue://large"}') == 0, "it is there still"
        assert grown <= GROWTH_BYTES_MAX, f"memory grew by {grown >> 20} MiB"
        broker.check()
        return (
            f"+{grown >> 20} MiB; in {sent - began:.1f} s, out {taken - sent:.1f} s; others waited at most {slowest * 1000:.0f} ms"
        )
    finally:
        broker.kill()


def used_bytes(broker):
    """What the broker's files hold that is not free again: all of them together."""
    return sum(os.path.getsize(os.path.join(broker.data, name)) for name in os.listdir(broker.data))


def churn(broker, name):
    """Small messages that come and go, until old segments can be given up: two checkpoints further on."""
    client = o.Client(broker.port)
    text = "x" * (900 << 10)
    client.consume(o.queue(name), 1)
    for _ in range(200):
        client.send(o.queue(name), text)
        client.answer(client.ack(client.take(20)))
    client.close()


def cut_off(binary):
    """A sender that goes in the middle of a body leaves nothing; the next one is served."""
    broker = brokers.new(binary, LIMIT).must_start()
    try:
        churn(broker, "churn")
        before = used_bytes(broker)
        for seed in range(3):
            sender = Sender(broker.port)
            sender.begin(o.queue("cut"), LARGE)
            for index, piece in enumerate(pieces(LARGE, seed)):
                if index == 100:
                    break
                sender.peer.sendall(piece)
            sender.close()
        sender = Sender(broker.port)
        sender.send_large(o.queue("cut"), 3 * MIB + 17)
        receiver = Receiver(broker.port)
        receiver.consume(o.queue("cut"), 1)
        delivery, digest = receiver.take_large(3 * MIB + 17)
        assert digest == digest_of(3 * MIB + 17), "another body"
        receiver.answer(receiver.ack(delivery))
        churn(broker, "churn")
        after = used_bytes(broker)
        # Files are kept for reuse: what counts is that 300 MiB are not.
        assert after <= before + 192 * MIB, f"{before >> 20} MiB before, {after >> 20} MiB after"
        broker.check()
        return f"{before >> 20} MiB of files before, {after >> 20} MiB after"
    finally:
        broker.kill()


def killed(binary):
    """kill -9 while one body comes in and another goes out: what was confirmed is there, what was not is not."""
    broker = brokers.new(binary, LIMIT).must_start()
    total = 24 * MIB + 5
    try:
        for round_number in range(3):
            name = o.queue(f"killed{round_number}")
            sender, receiver = Sender(broker.port), Receiver(broker.port)
            sender.send_large(name, total, round_number)
            number, _ = sender.begin(o.queue("half"), LARGE)
            receiver.consume(name, 1)
            for index, piece in enumerate(pieces(LARGE, 99)):
                if index == 20 + 30 * round_number:
                    break
                sender.peer.sendall(piece)
            receiver.exactly(MIB, time.monotonic() + 10)
            broker.kill()
            broker.must_start()
            assert number not in sender.answers, "half a message was confirmed"
            receiver = Receiver(broker.port)
            receiver.consume(name, 1)
            delivery, digest = receiver.take_large(total)
            assert digest == digest_of(total, round_number), "another body"
            receiver.answer(receiver.ack(delivery))
            half = o.Client(broker.port)
            half.consume(o.queue("half"), 1)
            try:
                half.take(0.5)
                raise AssertionError("half a message was delivered")
            except TimeoutError:
                pass
            half.close()
        broker.check()
    finally:
        broker.kill()


def in_transactions(binary):
    """A commit shows the message, a rollback frees it, a rejected one is a dead letter with the same body."""
    broker = brokers.new(binary, LIMIT).must_start()
    total = 2 * MIB + 3
    try:
        sender = Sender(broker.port)
        for number, step in ((1, o.ROLLBACK), (2, o.COMMIT)):
            sender.step(o.BEGIN, number)
            sender.send_large(o.queue("tx"), total, number, transaction=sender.transaction(number))
            sender.step(step, number)
        receiver = Receiver(broker.port)
        receiver.consume(o.queue("tx"), 1)
        delivery, digest = receiver.take_large(total)
        assert digest == digest_of(total, 2), "not the one that was committed"
        receiver.answer(receiver.ack(delivery, kind=o.POISON))
        receiver.close()
        broker.kill()
        broker.must_start()
        receiver = Receiver(broker.port)
        receiver.consume(o.queue("ActiveMQ.DLQ"), 1)
        delivery, digest = receiver.take_large(total)
        assert digest == digest_of(total, 2), "the dead letter has another body"
        receiver.answer(receiver.ack(delivery))
        broker.check()
    finally:
        broker.kill()


def to_several(binary):
    """Two queues and a browser have one body; each reads it whole, whatever the others do meanwhile."""
    broker = brokers.new(binary, LIMIT).must_start()
    total = 24 * MIB
    try:
        sender = Sender(broker.port)
        sender.send_large(o.queue("one,two"), total)
        slow = Receiver(broker.port)
        slow.consumers += 1
        browser = slow.consumer_id(slow.consumers)
        slow.call(o.CONSUMER_INFO, consumer_id=browser, destination=o.queue("one"), prefetch=1, browser=True)
        time.sleep(0.2)
        for name in ("one", "two"):
            receiver = Receiver(broker.port)
            receiver.consume(o.queue(name), 1)
            delivery, digest = receiver.take_large(total)
            assert digest == digest_of(total), f"{name}: another body"
            receiver.answer(receiver.ack(delivery))
            receiver.close()
        delivery, digest = slow.take_large(total)
        assert digest == digest_of(total), "the browser has another body"
        broker.check()
    finally:
        broker.kill()


def taken(broker, name, total, seed, kind=o.INDIVIDUAL):
    """The next message of a queue is this one, whole; it is settled so."""
    receiver = Receiver(broker.port)
    receiver.consume(o.queue(name), 1)
    delivery, digest = receiver.take_large(total)
    assert digest == digest_of(total, seed), f"{name}: another body"
    receiver.answer(receiver.ack(delivery, kind=kind), 60)
    receiver.close()


def in_several_homes(binary, extra, total=96 * MIB):
    """Queues of several partitions: each has the body where it is, and a dead letter takes it along; memory stays."""
    names = ["one", "two", "three", "four", "far.five"]
    broker = brokers.new(binary, LIMIT + extra(tempfile.mkdtemp(prefix="postroad-hostile."))).must_start()
    try:
        warm(broker)
        peak = Peak(broker)
        sender = Sender(broker.port)
        sender.send_large(o.queue(",".join(names)), total)
        sender.step(o.BEGIN, 1)
        for name in names:
            sender.send_large(o.queue(f"{name}.tx"), 3 * MIB, 2, transaction=sender.transaction(1))
        sender.step(o.COMMIT, 1)
        # One dead letter of each: those whose home is another than that of the dead letters move there.
        for name in names:
            taken(broker, name, total, 1, o.POISON)
        grown = peak.grown()
        broker.kill()
        broker.must_start()
        for name in names:
            taken(broker, f"{name}.tx", 3 * MIB, 2)
            taken(broker, "ActiveMQ.DLQ", total, 1)
        assert grown <= GROWTH_BYTES_MAX, f"memory grew by {grown >> 20} MiB"
        broker.check()
        return f"+{grown >> 20} MiB"
    finally:
        broker.kill()


def two_partitions(_):
    return "[runtime]\npartitions = 2\n"


def two_stores(folder):
    return f"""[[store]]
name = "far"
path = "{os.path.join(folder, 'far')}"
[[policy]]
destination = "queue://far.>"
store = "far"
"""


def while_moving(binary, total=24 * MIB):
    """A queue moves to another store with a large message, and while others come: they are waited for, and all have their places."""
    broker = brokers.new(binary, LIMIT + two_stores(tempfile.mkdtemp(prefix="postroad-hostile."))).must_start()
    queue = o.queue("moves")

    def command(*words):
        done = subprocess.run([binary, "queue", *words, "--data", broker.data], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def send_rest(sender, number, tail, body):
        for piece in body:
            sender.peer.sendall(piece)
        sender.peer.sendall(tail)
        sender.answer(number, 60)

    try:
        before = Sender(broker.port)
        before.send_large(queue, total, 1)
        coming, given_up = Sender(broker.port), Sender(broker.port)
        body = pieces(total, 2)
        number, tail = coming.begin(queue, total)
        given_up.begin(queue, total)
        for _ in range(4):
            coming.peer.sendall(next(body))
            given_up.peer.sendall(bytes(MIB))
        time.sleep(0.5)
        command("move", "moves", "--to", "far")
        waits, until = "1 moved, 0 left, 2 uploads of large messages in progress", time.monotonic() + 60
        while waits not in command("moves"):
            assert time.monotonic() < until, command("moves")
            time.sleep(0.1)
        before.send_large(queue, total, 3)
        given_up.close()
        send_rest(coming, number, tail, body)
        until = time.monotonic() + 60
        while command("moves"):
            assert time.monotonic() < until, f"still on the move: {command('moves')}"
            time.sleep(0.1)
        broker.kill()
        broker.must_start()
        for seed in (1, 2, 3):
            taken(broker, "moves", total, seed)
        broker.check()
    finally:
        broker.kill()


def exported(binary, extra=""):
    """Out of a stopped broker and into a new directory, piece by piece."""
    broker = brokers.new(binary, LIMIT).must_start()
    total, names = 5 * MIB + 11, ("moved", "left", "third")
    moved = None
    try:
        sender = Sender(broker.port)
        for seed, name in enumerate(names):
            sender.send_large(o.queue(name), total, seed)
            sender.send(o.queue(name), "small")
        broker.terminate(20)
        file, target = os.path.join(broker.folder, "export.jsonl"), os.path.join(broker.folder, "other")
        moved = brokers.new(binary, LIMIT + extra, target)
        subprocess.run([binary, "store", "export", broker.data, "--to", file], check=True, capture_output=True)
        words = ["store", "import", target, "--from", file, "--config", moved.config]
        subprocess.run([binary, *words], check=True, capture_output=True)
        moved.must_start()
        for seed, name in enumerate(names):
            taken(moved, name, total, seed)
            receiver = o.Client(moved.port)
            receiver.consume(o.queue(name), 1)
            assert o.body(receiver.take()) == b"small", f"what came behind it in {name}"
    finally:
        broker.kill()
        if moved:
            moved.kill()


def refused(binary):
    """Beyond the limit the connection ends, as for any frame; the broker goes on."""
    broker = brokers.new(binary, "[openwire]\nmax_frame_bytes = 4194304\n").must_start()
    try:
        sender = Sender(broker.port)
        try:
            sender.send_large(o.queue("refused"), 5 * MIB)
            raise AssertionError("it was taken")
        except (o.Gone, OSError):
            pass
        sender = Sender(broker.port)
        sender.send_large(o.queue("refused"), 3 * MIB)
        broker.check()
    finally:
        broker.kill()


def rewritten_for_nobody(binary, total=24 * MIB):
    """Consumers of the other protocol that go in the midst: the next one has all of it."""
    broker = brokers.new(binary, LIMIT).must_start()
    try:
        for wire in ((AmqpSender, Receiver), (SectionsSender, Receiver), (Sender, AmqpReceiver)):
            queue = o.queue("-".join(end.__name__ for end in wire))
            wire[0](broker.port).send_large(queue, total)
            for _ in range(3):
                gone = wire[1](broker.port)
                gone.consume(queue, 1)
                if isinstance(gone, Receiver):
                    gone.exactly(2 * MIB, time.monotonic() + 20)
                    gone.close()
                else:
                    gone.client.until(a.TRANSFER)
                    gone.client.close()
            receiver = wire[1](broker.port)
            receiver.consume(queue, 1)
            delivery, digest = receiver.take_large(total)
            assert digest == digest_of(total), "another body"
            receiver.settle(delivery)
            # What it says behind a body comes.
            wire[0](broker.port).send_large(queue, total, 2)
            if isinstance(receiver, AmqpReceiver):
                receiver.client.peer.sendall(a.flow(0, 2))
            assert receiver.take_large(total)[1] == digest_of(total, 2), "another body"
        broker.check()
    finally:
        broker.kill()


def given_up(binary, total=256 * MIB):
    """A consumer that goes while it is found out how long its message will be: no more of that is read, and the next has all of it."""
    broker = brokers.new(binary, LIMIT).must_start()
    try:
        SectionsSender(broker.port).send_large(o.queue("given.up"), total)
        client = Receiver(broker.port)
        client.send(o.queue("soon"), "soon")
        before = broker.bytes_read()
        client.consume(o.queue("given.up"), 1)
        client.call(o.REMOVE_INFO, object_id=client.consumer_id(1))
        client.consume(o.queue("soon"), 1)
        assert o.body(client.take(20)) == b"soon"
        got = broker.bytes_read() - before
        assert got < total // 4, f"{got} bytes were read for nobody"
        client.consume(o.queue("given.up"), 1)
        assert client.take_large(total)[1] == digest_of(total), "another body"
        broker.check()
    finally:
        broker.kill()
    return f"{got / MIB:.1f} MiB read before it went"


def behind_a_window(binary, total=8 * MIB):
    """A client whose window is used up by one large message, and another one due, sends one itself: it is taken, and then the window
    opens."""
    broker = brokers.new(binary, LIMIT).must_start()
    try:
        first = AmqpSender(broker.port)
        for seed in (1, 2):
            first.send_large(o.queue("window"), total, seed)
        both, receiver = AmqpSender(broker.port), AmqpReceiver(broker.port)
        both.client.close()
        both.client = receiver.client = a.Client(amqp.amqp(broker.port), a.opened() + a.begun(window=4))
        both.client.peer.sendall(a.receiver("large", 0, "queue://window") + a.flow(0, 2, window=4))
        for _ in range(4):
            both.client.until(a.TRANSFER)
        # Handles are counted: the receiver has the first.
        both.links = 1
        both.send_large(o.queue("sent"), total, 3, seconds=20)
        both.client.close()
        other = AmqpReceiver(broker.port)
        other.consume(o.queue("sent"), 1)
        assert other.take_large(total)[1] == digest_of(total, 3), "another body"
        broker.check()
    finally:
        broker.kill()


def none_at_all(binary):
    """A large message by AMQP with nothing in its body, for OpenWire: what comes behind it comes whole."""
    broker = brokers.new(binary, LIMIT).must_start()
    try:
        class Nothing(AmqpSender):
            def body(self, total, seed):
                yield from [b"\0\x53\x75\xa0\0" * (MIB // 5)] * 3

        Nothing(broker.port).send_large(o.queue("none"), 0)
        Sender(broker.port).send_large(o.queue("none"), 2 * MIB)
        receiver = Receiver(broker.port)
        receiver.consume(o.queue("none"), 2)
        none = receiver.take()
        assert not o.body(none), "it has a body"
        delivery, digest = receiver.take_large(2 * MIB)
        assert digest == digest_of(2 * MIB), "another body"
        receiver.answer(receiver.ack(delivery))
        broker.check()
    finally:
        broker.kill()


def beyond_the_other(binary, total=5 * MIB):
    """More than OpenWire takes, and sent by AMQP: a dead letter that says so, which a client of AMQP has whole, and which those of
    OpenWire do not have over and over."""
    broker = brokers.new(binary, "[openwire]\nmax_frame_bytes = 4194304\n").must_start()
    try:
        sender = AmqpSender(broker.port)
        sender.send_large(o.queue("beyond"), total)
        sender.send_large(o.queue("beyond"), 3 * MIB, 2)
        receiver = Receiver(broker.port)
        receiver.consume(o.queue("beyond"), 1)
        delivery, digest = receiver.take_large(3 * MIB)
        assert digest == digest_of(3 * MIB, 2), "another body"
        receiver.answer(receiver.ack(delivery))
        syncs = 'postroad_journal_syncs_total{store="main"}'
        in_vain = Receiver(broker.port)
        in_vain.consume(o.queue("ActiveMQ.DLQ"), 1)
        time.sleep(1)
        before = broker.metric(syncs)
        time.sleep(2)
        assert broker.metric(syncs) - before < 10, "it goes round and round"
        in_vain.close()
        # It rests for ten seconds.
        dead = AmqpReceiver(broker.port)
        dead.consume(o.queue("ActiveMQ.DLQ"), 1)
        delivery, digest = dead.take_large(total)
        assert digest == digest_of(total), "the dead letter has another body"
        dead.settle(delivery)
        broker.check()
    finally:
        broker.kill()


AMQP = AmqpSender, AmqpReceiver
CASES = [
    ("256 MiB in and out: memory stays, others are served", goes_through),
    ("the same, not persistent", lambda binary: goes_through(binary, False, 64 * MIB + 17)),
    ("256 MiB by AMQP: the same", lambda binary: goes_through(binary, wire=AMQP)),
    ("64 MiB by AMQP, not persistent", lambda binary: goes_through(binary, False, 64 * MIB + 17, AMQP)),
    ("256 MiB in by AMQP, out by OpenWire", lambda binary: goes_through(binary, wire=(AmqpSender, Receiver))),
    ("256 MiB in by OpenWire, out by AMQP", lambda binary: goes_through(binary, wire=(Sender, AmqpReceiver))),
    ("48 MiB in sections by AMQP, out by OpenWire", lambda binary: goes_through(binary, True, 48 * MIB + 17, (SectionsSender, Receiver))),
    ("consumers of the other protocol that go in the middle", rewritten_for_nobody),
    ("a consumer of the other protocol that goes before any of it has come", given_up),
    ("nothing in it, sent by AMQP", none_at_all),
    ("sent by a client that has no window for those that it is sent", behind_a_window),
    ("sent by AMQP, beyond what OpenWire takes", beyond_the_other),
    ("a sender that goes in the middle leaves nothing", cut_off),
    ("kill -9 in the middle: all or nothing", killed),
    ("committed, rolled back, rejected", in_transactions),
    ("one body for two queues and a browser", to_several),
    ("two partitions: queues of both, transactions, dead letters", lambda binary: in_several_homes(binary, two_partitions)),
    ("two stores: the same", lambda binary: in_several_homes(binary, two_stores)),
    ("on their way in while their queue moves", while_moving),
    ("exported and imported", exported),
    ("imported into two partitions", lambda binary: exported(binary, two_partitions(None))),
    ("beyond the limit", refused),
]

if "NIGHTLY" in os.environ:
    CASES += [
        ("1 GiB in and out", lambda binary: goes_through(binary, total=GIB)),
        ("1 GiB in and out by AMQP", lambda binary: goes_through(binary, total=GIB, wire=AMQP)),
        ("1 GiB in by AMQP, out by OpenWire", lambda binary: goes_through(binary, total=GIB, wire=(AmqpSender, Receiver))),
        ("1 GiB in by OpenWire, out by AMQP", lambda binary: goes_through(binary, total=GIB, wire=(Sender, AmqpReceiver))),
    ]


def run(binary, report, only):
    for title, case in CASES:
        if only and only not in title:
            continue
        began = time.monotonic()
        try:
            note, error = case(binary), None
        except Exception as failure:
            note, error = None, failure
        report(f"large messages: {title}", error, time.monotonic() - began, note or "")


def warm(broker, wire=(Sender, Receiver)):
    """What the broker takes once for whoever comes first."""
    sender, receiver = (end(broker.port) for end in wire)
    for _ in range(20):
        sender.send_large(o.queue("warm"), 2 * MIB)
    receiver.consume(o.queue("warm"), 20)
    for _ in range(20):
        receiver.settle(receiver.take_large(2 * MIB)[0])
