"""Queues move from one store to another and back, while clients use them, and while the broker is killed."""

import glob
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time

import broker as brokers
import openwire as o

STORES = ("fast", "main")
ROUNDS = 3
KILLS = 10
BACKLOG = 4000


class Bench:
    """A broker with two stores, and what was sent to whom and came."""

    def __init__(self, binary, folder):
        self.binary, self.fast = binary, os.path.join(folder, "fast")
        store = f'[[store]]\nname = "fast"\npath = "{self.fast}"\n'
        self.broker = brokers.new(binary, data=os.path.join(folder, "data"), extra=store)

    def command(self, *words):
        command = [self.binary, "queue", *words, "--data", self.broker.data]
        return subprocess.run(command, capture_output=True, text=True, timeout=90)

    def move(self, queue, store, *more):
        done = self.command("move", queue, "--to", store, *more)
        assert done.returncode == 0, done.stderr
        return done.stderr

    def refused(self, queue, store):
        done = self.command("move", queue, "--to", store)
        assert done.returncode == 1, f"{queue} to {store} was not refused"
        return done.stderr

    def moves(self):
        done = self.command("moves")
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def until_there(self, seconds=60):
        until = time.monotonic() + seconds
        while self.moves():
            assert time.monotonic() < until, f"still on the move: {self.moves()}"
            time.sleep(0.05)

    def connect(self):
        return o.Client(self.broker.port)


def idle(bench):
    """Nobody uses it: all goes, in order, and is found there after a restart; what makes no sense says so."""
    client, queue = bench.connect(), o.queue("idle")
    for number in range(500):
        client.send(queue, b"%d" % number)
    client.close()
    said = bench.move("idle", "fast", "--wait")
    assert "has moved to fast" in said, said
    bench.broker.kill()
    bench.broker.must_start()
    for name, store, why in (
        ("idle", "fast", "it is already in that store"),
        ("idle", "fasst", "did you mean fast?"),
        ("nothing", "fast", "there is no such queue"),
        ("Consumer.a.VirtualTopic.b", "fast", "there is no such queue"),
    ):
        assert why in bench.refused(name, store), f"{name} to {store}: {bench.refused(name, store)}"
    got = [int(text) for text, _ in brokers.drain(bench.connect(), queue)]
    assert got == list(range(500)), f"{len(got)}: {got[:5]}"


def unreadable(bench):
    """One message cannot be read: the others are there, it is told of, and the queue goes nowhere else before it is taken out."""
    client, queue = bench.connect(), o.queue("hit")
    for number in range(40):
        client.send(queue, f"{number:04} ".encode() + b"hit " * 20_000)
    client.close()
    # With a checkpoint behind them, so that they are not in memory.
    bench.broker.terminate(20)
    bench.broker.must_start()
    [path] = [path for path in glob.glob(f"{bench.broker.data}/*.segment") if b"0017 hit" in open(path, "rb").read()]
    with open(path, "r+b") as file:
        file.seek(open(path, "rb").read().index(b"0017 hit") + 50)
        file.write(b"X")
    done = bench.command("move", "hit", "--to", "fast", "--wait")
    assert done.returncode == 1 and "is now in fast, except 1 unreadable messages" in done.stderr, done.stderr
    for store in ("main", "fast"):
        said = bench.refused("hit", store)
        assert "unreadable" in said or "cannot be read" in said, said
    want = [number for number in range(40) if number != 17]
    bench.broker.kill()
    bench.broker.must_start()
    client = bench.connect()
    got = [int(text[:4]) for text, _ in brokers.drain(client, queue)]
    assert got == want, f"{len(got)} of {len(want)}: {got[:20]}"


class Traffic:
    """Producers and consumers of one queue, each with a connection and a thread of its own, until told to stop."""

    def __init__(self, bench, name, producers, consumers, transacted=False):
        self.bench, self.queue, self.transacted = bench, o.queue(name), transacted
        self.sent = {number: 0 for number in range(producers)}
        self.got, self.lock, self.errors = [], threading.Lock(), []
        self.sending, self.reading = True, True
        makers = [(self.produce, number) for number in self.sent] + [(self.consume, None)] * consumers
        self.threads = [threading.Thread(target=self.guard, args=maker, daemon=True) for maker in makers]
        for thread in self.threads:
            thread.start()

    def guard(self, act, argument):
        try:
            act(self.bench.connect(), argument)
        except Exception as error:
            self.errors.append(error)

    def produce(self, client, number):
        transaction = 0
        while self.sending:
            count = 3 if self.transacted else 1
            if self.transacted:
                transaction += 1
                client.step(o.BEGIN, transaction)
            for _ in range(count):
                text = b"%d:%d" % (number, self.sent[number])
                of = client.transaction(transaction) if self.transacted else None
                client.send(self.queue, text, transaction=of, seconds=30)
                self.sent[number] += 1
            if self.transacted:
                client.step(o.COMMIT, transaction)
            time.sleep(0.002)

    def consume(self, client, _):
        client.consume(self.queue, 20)
        while self.reading:
            try:
                delivery = client.take(0.2)
            except TimeoutError:
                continue
            number, count = o.body(delivery).split(b":")
            with self.lock:
                self.got.append((int(number), int(count), o.counter(delivery)))
            client.answer(client.ack(delivery), 30)

    def end(self, in_order):
        self.sending = False
        until = time.monotonic() + 30
        while len(self.got) < sum(self.sent.values()) and time.monotonic() < until and not self.errors:
            time.sleep(0.05)
        time.sleep(0.3)
        self.reading = False
        for thread in self.threads:
            thread.join(40)
        assert not self.errors, self.errors
        for number, count in self.sent.items():
            mine = [place for of, place, _ in self.got if of == number]
            wanted = list(range(count))
            assert sorted(mine) == wanted, f"{self.queue}: {len(mine)} of {count} from producer {number}"
            assert not in_order or mine == wanted, f"{self.queue}: not in the order of producer {number}"
        assert not any(again for *_, again in self.got), f"{self.queue}: something came again"
        return len(self.got)


def in_use(bench):
    """Producers and consumers go on while their queues move there and back: nothing is lost, doubled, or out of order."""
    kinds = {
        "one": Traffic(bench, "one", 3, 1),
        "transacted": Traffic(bench, "transacted", 2, 1, True),
        "several": Traffic(bench, "several", 2, 3),
    }
    # A queue is there once something has come out of it.
    until = time.monotonic() + 30
    while not all(traffic.got for traffic in kinds.values()) and time.monotonic() < until:
        time.sleep(0.05)
    for round in range(ROUNDS):
        for store in STORES:
            for name in kinds:
                bench.move(name, store)
            bench.until_there()
            time.sleep(0.2)
    counts = [traffic.end(name != "several") for name, traffic in kinds.items()]
    assert min(counts) > 50, counts
    return f"{sum(counts)} messages"


def held(bench):
    """What a consumer holds is waited for, and comes in its place if it is given back."""
    queue, client, reader = o.queue("held"), bench.connect(), bench.connect()
    for number in range(10):
        client.send(queue, b"%d" % number)
    reader.consume(queue, 3)
    first = [reader.take() for _ in range(3)]
    bench.move("held", "fast")
    for number in range(10, 15):
        client.send(queue, b"%d" % number)
    time.sleep(0.3)
    # What was sent before all knew of the new place is there too.
    said = bench.moves()
    assert len(said) == 1 and said[0].startswith("queue://held to fast: 0 moved, 1"), said
    assert said[0].endswith(" left, 3 of them in flight"), said
    reader.answer(reader.ack(first[0]))
    reader.close()
    bench.until_there()
    got = brokers.drain(bench.connect(), queue)
    assert [int(text) for text, _ in got] == list(range(1, 15)), got


def gone(bench):
    """The store that it moves to loses its directory: it is told why nothing moves, no other goes there, and it goes on by itself."""
    queue, client, reader = o.queue("gone"), bench.connect(), bench.connect()
    for number in range(5):
        client.send(queue, b"%d" % number)
    client.send(o.queue("other"), b"other")
    reader.consume(queue, 1)
    first = reader.take()
    bench.move("gone", "fast")
    away = bench.fast + ".away"
    os.rename(bench.fast, away)
    until = time.monotonic() + 20
    while "store fast: journal writes fail" not in bench.broker.ready()[1]:
        assert time.monotonic() < until, "nobody sees that the directory is gone"
        time.sleep(0.1)
    reader.answer(reader.ack(first))
    reader.close()
    time.sleep(1.2)
    [said] = bench.moves()
    assert "retrying, because it was refused: " in said and "fast" in said, said
    said = bench.refused("other", "fast")
    assert "the store fast is not writable now, and a move cannot be cancelled: " in said, said
    told = [line for line in bench.broker.errors().splitlines() if "could not be made durable" in line]
    assert len(told) <= 2, told
    os.rename(away, bench.fast)
    bench.until_there()
    bench.move("other", "fast", "--wait")
    for name, want in (("gone", [b"1", b"2", b"3", b"4"]), ("other", [b"other"])):
        got = [text for text, _ in brokers.drain(bench.connect(), o.queue(name))]
        assert got == want, f"{name}: {got}"


def killed(bench):
    """kill -9 at some moment of a move, again and again: it goes on by itself, and nothing that was confirmed is lost or comes twice."""
    queue, client = o.queue("killed"), bench.connect()
    numbers = [client.publish(queue, b"%d" % number) for number in range(BACKLOG)]
    for number in numbers:
        client.answer(number, 60)
    sent, doubt, next_number, stores = list(range(BACKLOG)), set(), BACKLOG, 0
    for round in range(KILLS):
        if not bench.moves():
            bench.move("killed", STORES[stores % 2])
            stores += 1
        until = time.monotonic() + random.random() * 0.6
        client = bench.connect()
        while time.monotonic() < until:
            client.send(queue, b"%d" % next_number)
            sent.append(next_number)
            next_number += 1
        client.publish(queue, b"%d" % next_number)
        doubt.add(next_number)
        next_number += 1
        bench.broker.kill()
        bench.broker.must_start()
    bench.until_there()
    got = [int(text) for text, _ in brokers.drain(bench.connect(), queue)]
    known = [number for number in got if number not in doubt]
    assert len(set(got)) == len(got), f"{len(got) - len(set(got))} came twice"
    assert known == sent, f"{len(known)} of {len(sent)}, in order: {known == sorted(known)}"
    return f"{stores} moves, {len(got)} messages"


def lost(bench):
    """The store that it moves to is lost on the way and given up: what had not gone yet arrives there, in order."""
    queue, client = o.queue("lost"), bench.connect()
    numbers = [client.publish(queue, b"%d" % number) for number in range(BACKLOG)]
    for number in numbers:
        client.answer(number, 60)
    client.send(o.queue("stays"), b"stays")
    bench.move("lost", "fast")
    until = time.monotonic() + 20
    while bench.moves() and not any(f"{BACKLOG} left" not in moving for moving in bench.moves()):
        assert time.monotonic() < until, f"nothing moves: {bench.moves()}"
    bench.broker.kill()
    os.rename(bench.fast, bench.fast + ".lost")
    assert not bench.broker.start(), "it started without a store"
    assert "`postroad store abandon` continues without its messages" in bench.broker.errors(), bench.broker.errors()
    command = [bench.binary, "store", "abandon", bench.broker.data, "--store"]
    for words, why in (("fasst", "--write"), "did you mean fast?"), (("fast",), "nothing was changed"):
        done = subprocess.run([*command, *words], capture_output=True, text=True)
        assert done.returncode == 1 and why in done.stderr, f"{words}: {done.stderr}"
        assert not bench.broker.start(), f"{words}: it started"
    done = subprocess.run([*command, "fast", "--write"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    bench.broker.must_start()
    bench.until_there()
    got = [int(text) for text, _ in brokers.drain(bench.connect(), queue)]
    assert got == list(range(BACKLOG - len(got), BACKLOG)), f"{len(got)} of {BACKLOG}: {got[:5]}"
    assert brokers.drain(bench.connect(), o.queue("stays")) == [(b"stays", 0)]
    client = bench.connect()
    client.send(queue, b"new")
    bench.broker.kill()
    bench.broker.must_start()
    assert [text for text, _ in brokers.drain(bench.connect(), queue)] == [b"new"]
    return f"{BACKLOG - len(got)} of {BACKLOG} were there"


def run(binary, report, only=None):
    folder = tempfile.mkdtemp(prefix="postroad-hostile-moving.")
    bench = Bench(binary, folder)
    try:
        bench.broker.must_start()
        for title, act in (
            ("an idle queue moves, and is found there after a restart", idle),
            ("clients go on while their queues move there and back", in_use),
            ("what a consumer holds is waited for", held),
            ("the directory of the target is gone for a while", gone),
            ("kill -9 in the midst of moves", killed),
            ("the store that it moves to is lost and given up", lost),
            # What it leaves behind is on the move for ever.
            ("one of its messages cannot be read", unreadable),
        ):
            if only and only not in title:
                continue
            if not bench.broker.case(report, f"moving: {title}", lambda: act(bench)):
                break
    finally:
        bench.broker.kill()
        shutil.rmtree(folder, ignore_errors=True)
