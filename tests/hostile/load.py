"""Load that outlives crashes: clients that connect again, and remember what was confirmed to them."""

import threading
import time

import openwire as o

PRODUCERS, CONSUMERS = 4, 1
# Those who send besides: what is soon dead, what stays to the end, and to a topic.
CHURNER, KEEPER, TELLER = range(PRODUCERS, PRODUCERS + 3)
# Between two windows of a producer: what is left in the end has to be read here, slowly.
PAUSE_S = 0.02
NAME, MOVED, CHURN, KEPT = (o.queue(f"load.{name}") for name in ("main", "moved", "churn", "kept"))
TOPIC, SUBSCRIPTION, CLIENT_ID = o.topic("load.told"), "reader", "hostile-load"
# All of it, for a [[policy]].
PATTERNS = ("queue://load.>", "topic://load.>")
# Sent behind everything that is read in the end.
END = b"end"
# Bytes of what is soon dead, in turn: three of these are large enough to be taken in pieces, from 1 MiB on.
CHURNED_BYTES = (3_000_000, 960_000, 1_200_000, 960_000, 1_900_000, 960_000)


class Load:
    """Producers and consumers of a queue, transactions that move messages, large ones that come and go, what stays to the end, and a
    topic with a durable subscription.

    A message is known by its producer's number and its own. `doubtful` are those whose acknowledgement was sent, whatever came of it.
    """

    def __init__(self, broker):
        self.broker, self.stopping, self.failures = broker, False, []
        self.lock = threading.Lock()
        self.acknowledged = [set() for _ in range(TELLER + 1)]
        self.confirmed, self.doubtful, self.seen_again, self.seen, self.committed = set(), set(), [], {}, set()
        self.up, self.subscribed = threading.Event(), threading.Event()
        self.threads = [threading.Thread(target=self.guard, args=task, daemon=True) for task in self.tasks()]
        self.next = [0] * (TELLER + 1)

    def tasks(self):
        """What runs side by side, each a function and the number that it is given."""
        producers = [(self.produce, number) for number in range(PRODUCERS)]
        consumers = [(self.consume, number) for number in range(CONSUMERS)]
        others = [(self.move, 0), (self.churn, CHURNER), (self.keep, KEEPER), (self.tell, TELLER), (self.hear, TELLER)]
        return producers + consumers + others

    def text(self, number, sequence):
        if number == CHURNER:
            return f"{number}:{sequence}:" + "x" * CHURNED_BYTES[sequence % len(CHURNED_BYTES)]
        return f"{number}:{sequence}:" + "x" * (30_000 if sequence % 16 == 0 else 200)

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
            self.settle_all(client)
        finally:
            client.close()

    def churn(self, number):
        """Fills segments with what is soon dead, so that there are checkpoints and compaction."""
        client = o.Client(self.broker.port)
        try:
            client.consume(CHURN, 4)
            while not self.stopping:
                self.confirm_sent(client, number, CHURN, 4)
                for _ in range(4):
                    self.settle(client, client.take(20), {})
        finally:
            client.close()

    def keep(self, number):
        """What nobody consumes: compaction has to carry it on."""
        client = o.Client(self.broker.port)
        try:
            while not self.stopping:
                self.confirm_sent(client, number, KEPT)
                time.sleep(PAUSE_S)
        finally:
            client.close()

    def move(self, _):
        """Up to five messages are received and sent on in one transaction."""
        client, last, number = o.Client(self.broker.port), {}, 0
        try:
            client.consume(NAME, 20)
            while not self.stopping:
                number += 1
                client.step(o.BEGIN, number)
                transaction, keys = client.transaction(number), []
                while len(keys) < 5:
                    try:
                        delivery = client.take(0.3)
                    except TimeoutError:
                        break
                    keys.append(self.note(delivery, last))
                    client.ack(delivery, wait=False, transaction=transaction)
                    client.publish(MOVED, self.text(*keys[-1]), wait=False, transaction=transaction)
                client.step(o.COMMIT, number)
                with self.lock:
                    self.confirmed.update(keys)
                    self.committed.update(keys)
        finally:
            client.close()

    def tell(self, number):
        """Publishes once there is a subscription, which must not miss any of it."""
        client = o.Client(self.broker.port)
        try:
            while not self.stopping:
                if self.subscribed.wait(0.1):
                    self.confirm_sent(client, number, TOPIC)
                    time.sleep(PAUSE_S)
        finally:
            client.close()

    def subscriber(self, prefetch):
        """A client with the durable subscription."""
        client = o.Client(self.broker.port, client_id=CLIENT_ID)
        client.call(
            o.CONSUMER_INFO, 20, consumer_id=client.consumer_id(1), destination=TOPIC, prefetch=prefetch, subscription=SUBSCRIPTION,
        )
        self.subscribed.set()
        return client

    def hear(self, _):
        client = self.subscriber(50)
        try:
            self.settle_all(client)
        finally:
            client.close()

    def settle_all(self, client):
        """Takes what comes until it is told to stop."""
        last = {}
        while not self.stopping:
            try:
                delivery = client.take(0.3)
            except TimeoutError:
                continue
            self.settle(client, delivery, last)

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

    def drain(self, destination, quiet_seconds=0.3):
        """Consumes what is left at a destination: the deliveries, in order. Behind the last one may come what consumers gave back."""
        client, got, is_end = o.Client(self.broker.port), [], False
        client.send(destination, END, seconds=20)
        if destination == TOPIC:
            client.close()
            client = self.subscriber(1000)
        else:
            client.consume(destination, 1000)
        while True:
            try:
                delivery = client.take(quiet_seconds if is_end else 60)
            except TimeoutError:
                assert is_end, "the last message of a destination does not come"
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
        moved = [self.key(delivery) for delivery in self.drain(MOVED)]
        left, last = [], {}
        for place in (NAME, CHURN, KEPT, TOPIC):
            left += [self.note(delivery, last) for delivery in self.drain(place, 0.3 if place == KEPT else 1.5)]
        # A commit without an answer has moved its messages or not: they are at one of both places.
        note = self.judge(set(left) | set(moved))
        assert len(set(moved)) == len(moved), "a message was moved twice"
        undone = sorted(self.committed - set(moved))
        assert not undone, f"{len(undone)} of {len(self.committed)} commits are undone, first that of {undone[0]}"
        both = sorted(set(moved) & set(left))
        assert not both, f"{len(both)} transactions are half there, first that of {both[0]}"
        assert len(self.committed) > 20, f"too little load: {len(self.committed)} messages moved"
        return f"{note}, {len(moved)} moved in transactions"

    def judge(self, left):
        """What was acknowledged is `left`, or somebody has acknowledged it; what was confirmed did not come again."""
        assert not self.failures, self.failures[0]
        sent = {(number, sequence) for number, ones in enumerate(self.acknowledged) for sequence in ones}
        lost = sorted(sent - left - self.doubtful)
        assert not lost, f"{len(lost)} of {len(sent)} acknowledged messages are lost, first {lost[0]}"
        assert not self.seen_again, f"{len(self.seen_again)} came after their acknowledgement, first {self.seen_again[0]}"
        assert len(sent) > 500 and len(self.confirmed) > 200, f"too little load: {len(sent)} sent, {len(self.confirmed)} confirmed"
        return f"{len(sent)} sent, {len(self.confirmed)} confirmed"
