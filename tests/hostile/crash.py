"""kill -9 in a loop under load, and SIGTERM under load: what was confirmed holds."""

import os
import random
import threading
import time

import broker as brokers
import openwire as o

# Of each of the two loops: a minute together, or what CRASH_SECONDS says.
SECONDS = int(os.environ.get("CRASH_SECONDS", 30))
PRODUCERS, CONSUMERS = 4, 2
# Between two windows of a producer: what is left in the end has to be read here, slowly.
PAUSE_S = 0.02
NAME = o.queue("crash")
SEED = 20261121
# Sent behind everything that is read in the end.
END = b"end"
# What waits for no sync outlives the process all the same; with so long a time nothing is synced by the clock.
WRITTEN_FIRST = """[store]
async_sync_ms = 60000
[[policy]]
destination = "queue://crash"
durability = "async"
"""


class Load:
    """Producers and consumers that connect again after each crash, and remember what was confirmed to them.

    A message is known by its producer's number and its own. `doubtful` are those whose acknowledgement was sent, whatever came of it.
    """

    def __init__(self, broker):
        self.broker, self.stopping, self.failures = broker, False, []
        self.lock = threading.Lock()
        self.acknowledged = [set() for _ in range(PRODUCERS)]
        self.confirmed, self.doubtful, self.seen_again, self.seen = set(), set(), [], {}
        self.up = threading.Event()
        self.threads = [threading.Thread(target=self.guard, args=task, daemon=True) for task in self.tasks()]
        self.next = [0] * PRODUCERS

    def tasks(self):
        """What runs side by side, each a function and the number that it is given."""
        return [(self.produce, number) for number in range(PRODUCERS)] + [(self.consume, number) for number in range(CONSUMERS)]

    def text(self, number, sequence):
        return f"{number}:{sequence}:" + "x" * 200

    def start(self):
        self.up.set()
        for thread in self.threads:
            thread.start()

    def guard(self, act, number):
        while not self.stopping:
            if not self.up.wait(0.05):
                continue
            try:
                act(number)
            except (o.Gone, OSError):
                time.sleep(0.01)
            except TimeoutError as error:
                if self.up.is_set() and not self.stopping:
                    self.failures.append(f"{act.__name__} {number}: {error}")
                    return
            except Exception as error:
                if isinstance(error, o.Refused) and not self.up.is_set():
                    continue
                self.failures.append(f"{act.__name__} {number}: {type(error).__name__}: {error}")
                return

    def produce(self, number):
        """Windows of 8 sends; the answer of each is awaited. A send without an answer is not sent again: it may be lost."""
        client = o.Client(self.broker.port)
        try:
            while not self.stopping:
                self.confirm_sent(client, number, NAME, 8)
                time.sleep(PAUSE_S)
        finally:
            client.close()

    def confirm_sent(self, client, number, queue, count=1):
        """Sends so many, then waits for the answer of each."""
        window = []
        for _ in range(count):
            self.next[number] += 1
            window.append((self.next[number], client.publish(queue, self.text(number, self.next[number]))))
        for sequence, command in window:
            client.answer(command, 20)
            self.acknowledged[number].add(sequence)

    def key(self, delivery):
        """Which message it is; its body is the one that was sent."""
        text = o.body(delivery).decode()
        number, sequence, _ = text.split(":", 2)
        key = int(number), int(sequence)
        assert text == self.text(*key), f"message {key} has another body"
        return key

    def note(self, delivery, last):
        """One delivery: never one that was confirmed; in order per producer, unless it was delivered before."""
        key = self.key(delivery)
        with self.lock:
            if key in self.confirmed:
                self.seen_again.append(key)
            first = key not in self.seen
            self.seen[key] = self.seen.get(key, 0) + 1
        if first and not o.counter(delivery):
            assert key[1] > last.get(key[0], 0), f"producer {key[0]}: {key[1]} after {last[key[0]]}"
            last[key[0]] = key[1]
        return key

    def consume(self, number):
        client = o.Client(self.broker.port)
        try:
            client.consume(NAME, 50)
            last = {}
            while not self.stopping:
                try:
                    delivery = client.take(0.3)
                except TimeoutError:
                    continue
                self.settle(client, delivery, last)
        finally:
            client.close()

    def settle(self, client, delivery, last):
        """Acknowledges a delivery and waits for the answer."""
        key = self.note(delivery, last)
        with self.lock:
            self.doubtful.add(key)
        client.answer(client.ack(delivery), 20)
        with self.lock:
            self.confirmed.add(key)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(25)

    def drain(self, queue):
        """Consumes what is left in a queue: the deliveries, in order."""
        client, got, is_end = o.Client(self.broker.port), [], False
        client.send(queue, END, seconds=20)
        client.consume(queue, 1000)
        while True:
            try:
                # Behind the last one may come what consumers gave back while they left.
                delivery = client.take(1.5 if is_end else 60)
            except TimeoutError:
                assert is_end, "the last message of a queue does not come"
                break
            client.ack(delivery, wait=False)
            if o.body(delivery) == END:
                is_end = True
            else:
                got.append(delivery)
        client.call(o.SESSION_INFO, 60)
        client.close()
        return got

    def verify(self):
        """Consumes what is left and compares."""
        last = {}
        return self.judge({self.note(delivery, last) for delivery in self.drain(NAME)})

    def judge(self, left):
        """What was acknowledged is `left`, or somebody has acknowledged it; what was confirmed did not come again."""
        assert not self.failures, self.failures[0]
        sent = {(number, sequence) for number, ones in enumerate(self.acknowledged) for sequence in ones}
        lost = sorted(sent - left - self.doubtful)
        assert not lost, f"{len(lost)} of {len(sent)} acknowledged messages are lost, first {lost[0]}"
        assert not self.seen_again, f"{len(self.seen_again)} came after their acknowledgement, first {self.seen_again[0]}"
        assert len(sent) > 500 and len(self.confirmed) > 200, f"too little load: {len(sent)} sent, {len(self.confirmed)} confirmed"
        return f"{len(sent)} sent, {len(self.confirmed)} confirmed"


def killed(broker):
    chance, load, kills = random.Random(SEED), Load(broker.must_start()), 0
    load.start()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and not load.failures:
        time.sleep(chance.uniform(0.3, 1.2))
        load.up.clear()
        broker.kill()
        kills += 1
        broker.must_start()
        load.up.set()
    load.stop()
    return f"{kills} kills, {load.verify()}"


def terminated(broker):
    load = Load(broker.must_start())
    load.start()
    time.sleep(1.5)
    load.up.clear()
    started = time.monotonic()
    code = broker.terminate(15)
    took = time.monotonic() - started
    load.stop()
    assert code == 0, f"exit code {code}"
    assert took < 10, f"it took {took:.1f} s"
    broker.must_start()
    return f"ended in {took:.1f} s, {load.verify()}"


def run(binary, report, only=None):
    for title, act, extra in (
        (f"killed again and again for {SECONDS} s under load: nothing confirmed is lost or comes again", killed, ""),
        (f"the same for {SECONDS} s with messages that are confirmed before they are synced", killed, WRITTEN_FIRST),
        ("SIGTERM under load: exit code 0 within 10 s, nothing confirmed is lost or comes again", terminated, ""),
    ):
        if only and only not in act.__name__:
            continue
        broker = brokers.new(binary, extra)
        broker.case(report, title, lambda: act(broker))
        broker.kill()
