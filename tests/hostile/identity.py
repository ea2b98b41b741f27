"""Clients that come back: what they send again is taken once. And users who name what belongs to another."""

import os
import subprocess
import tempfile
import time

import broker as brokers
import openwire as o

ROUNDS = int(os.environ.get("ROUNDS", "300"))
RUNTIME = "[runtime]\ncores = 2\npartitions = 8\n"
TARGETS = [o.queue(f"again.{number}") for number in range(8)]
# 64 bits, so that no window of an audit reaches it from the first messages.
FAR = 1 << 40
PRODUCER_VALUE = 1


def run(binary, report, only=None):
    for title, extra, act in (
        (f"failover on 2 cores: {ROUNDS} messages sent again are taken once", RUNTIME, once_each),
        (f"failover on 2 cores: {ROUNDS} messages for several partitions are taken once", RUNTIME, once_everywhere),
        (f"failover on 2 cores: {ROUNDS} transactions sent again are taken once", RUNTIME, once_in_transactions),
        ("failover while more is on its way keeps the order", RUNTIME, in_order),
        ("a user does not take another's connection, durable subscription or temporary queue", None, owners),
        ("a user does not have another's messages taken for duplicates, nor the other way round", None, audits),
        ("a leap of a producer's numbers does not forget the earlier ones", RUNTIME, leap),
    ):
        if only and only not in title:
            continue
        broker = brokers.new(binary, with_users(binary) if extra is None else extra).must_start()
        broker.case(report, title, lambda: act(broker))
        broker.kill()


def with_users(binary):
    """Two users, ann and bob, whose passwords are their names."""
    users = os.path.join(tempfile.mkdtemp(prefix="postroad-hostile."), "users")
    for user in ("ann", "bob"):
        command = [binary, "user", "add", user, "--users", users]
        subprocess.run(command, input=user.encode() + b"\n", check=True, stdout=subprocess.DEVNULL)
    return f'{RUNTIME}[security]\nusers = "{users}"\n'


class Peer(o.Client):
    """A client whose connection may come back."""

    def __init__(self, port, name, user=None, client_id=None, again=False, connect=True):
        super().__init__(port, name=name, connect=False)
        self.user, self.client_id, self.again = user, client_id or name, again
        self.peer.sendall(o.wire_format())
        if connect:
            self.introduce()

    def introduce(self, wait=True):
        number = self.push(
            o.CONNECTION_INFO, True, connection_id=(120, {"value": self.name}), client_id=self.client_id,
            user_name=self.user, password=self.user, failover_reconnect=self.again,
        )
        if wait:
            self.answer(number)

    def numbered(self, destination, number, transaction=None, wait=True):
        self.sent = number - 1
        return self.publish(destination, f"m{number}", wait=wait, transaction=transaction)

    def begin(self, number):
        self.push(o.TRANSACTION_INFO, connection_id=(120, {"value": self.name}), transaction_id=self.transaction(number),
                  step=o.BEGIN)

    def commit(self, number):
        return self.push(o.TRANSACTION_INFO, True, connection_id=(120, {"value": self.name}),
                         transaction_id=self.transaction(number), step=o.COMMIT)

    def subscribe(self, topic, name):
        self.consumers += 1
        consumer = self.consumer_id(self.consumers)
        self.call(o.CONSUMER_INFO, consumer_id=consumer, destination=o.topic(topic), prefetch=10, subscription=name,
                  client_id=self.client_id)


def depths(broker, names, user=None):
    """How many messages each of the queues holds, in all; each is read to its end."""
    total = 0
    for name in names:
        depths.readers += 1
        reader = Peer(broker.port, f"ID:reader-{depths.readers}", user)
        total += len(brokers.drain(reader, name, quiet_seconds=1))
    return total


depths.readers = 0


def fail_over(broker, act):
    """`act(peer, number)` over one connection, which closes at once, and over another one whose socket was there before."""
    for number in range(1, ROUNDS + 1):
        name = f"ID:again-{number}"
        first = Peer(broker.port, name)
        second = Peer(broker.port, name, again=True, connect=False)
        act(first, number)
        first.close()
        time.sleep(number % 3 / 1000)
        second.introduce(wait=False)
        second.answer(act(second, number), 20)
        second.close()


def once_each(broker):
    fail_over(broker, lambda peer, number: peer.numbered(TARGETS[number % 8], number))
    got = depths(broker, TARGETS)
    assert got == ROUNDS, f"{got} messages"


def once_everywhere(broker):
    everywhere = o.queue(",".join(f"again.{number}" for number in range(4)))
    fail_over(broker, lambda peer, number: peer.numbered(everywhere, number))
    got = depths(broker, TARGETS[:4])
    assert got == 4 * ROUNDS, f"{got} messages"


def once_in_transactions(broker):
    def act(peer, number):
        peer.begin(1)
        for target in range(3):
            peer.numbered(TARGETS[(number + target) % 8], 1 + target, peer.transaction(1), wait=False)
        return peer.commit(1)

    fail_over(broker, act)
    got = depths(broker, TARGETS)
    assert got == 3 * ROUNDS, f"{got} messages"


def in_order(broker):
    """The first connection has sent a row of messages, and the second one sends the rest of it again, and goes on."""
    count, rounds = 40, 20
    for round_number in range(rounds):
        name, queue = f"ID:row-{round_number}", o.queue(f"row.{round_number}")
        first = Peer(broker.port, name)
        second = Peer(broker.port, name, again=True, connect=False)
        for number in range(1, count + 1):
            first.numbered(queue, number, wait=False)
        first.close()
        second.introduce(wait=False)
        last = 0
        for number in range(1, count + 11):
            last = second.numbered(queue, number)
        second.answer(last, 20)
        second.close()
        got = [body.decode() for body, _ in brokers.drain(o.Client(broker.port), queue, quiet_seconds=0.5)]
        assert got == [f"m{number}" for number in range(1, count + 11)], got


def refused(act):
    try:
        act()
    except (o.Refused, o.Gone) as error:
        return error
    raise AssertionError("it was let in")


def owners(broker):
    ann = Peer(broker.port, "ID:ann", "ann", client_id="desk")
    ann.subscribe("news", "all")
    own = (o.TEMP_QUEUE, {"name": "ID:ann:1"})
    ann.call(o.DESTINATION_INFO, connection_id=(120, {"value": ann.name}), destination=own, operation=0)
    # Her connection by its id and client id.
    error = refused(lambda: Peer(broker.port, "ID:ann", "bob", client_id="desk", again=True))
    assert "InvalidClientIDException" in str(error), error
    # Her subscription, while she reads it.
    bob = Peer(broker.port, "ID:ann", "bob", client_id="other", again=True)
    refused(lambda: bob.call(o.DESTINATION_INFO, connection_id=(120, {"value": bob.name}), destination=own, operation=0))
    bob.close()
    ann.send(o.topic("news"), "one")
    assert o.body(ann.take()) == b"one"
    ann.close()
    # And when she is away.
    time.sleep(0.5)
    bob = Peer(broker.port, "ID:bob", "bob", client_id="desk")
    bob.subscribe("news", "all")
    try:
        raise AssertionError(f"bob was given {o.body(bob.take(1))}")
    except TimeoutError:
        pass
    bob.send(o.topic("news"), "two")
    assert o.body(bob.take()) == b"two"
    # He ends his own, and may not end hers.
    bob.close()
    time.sleep(0.5)
    bob = Peer(broker.port, "ID:bob", "bob", client_id="desk")
    bob.call(9, connection_id=(120, {"value": bob.name}), client_id="desk", subscription="all")
    refused(lambda: bob.call(9, connection_id=(120, {"value": bob.name}), client_id="desk", subscription="all"))
    bob.close()
    time.sleep(0.5)
    ann = Peer(broker.port, "ID:ann", "ann", client_id="desk")
    ann.subscribe("news", "all")
    got = {o.body(ann.take()), o.body(ann.take())}
    assert got == {b"one", b"two"}, got


def audits(broker):
    queue = TARGETS[0]
    # Before ann's message, and behind it.
    for number, order in ((1, ("bob", "ann")), (2, ("ann", "bob"))):
        for user in order:
            Peer(broker.port, "ID:ann", user, client_id=f"{user}-{number}").send_numbered(queue, number)
        for user in order:
            Peer(broker.port, "ID:ann", user, client_id=f"{user}-{number}", again=True).send_numbered(queue, number)
    got = depths(broker, [queue], "ann")
    assert got == 4, f"{got} messages of 4"
    Peer(broker.port, "ID:ann", "ann", client_id="a3").send_numbered(queue, 3)
    Peer(broker.port, "ID:ann", "bob", client_id="b3").send_numbered(queue, FAR)
    Peer(broker.port, "ID:ann", "ann", client_id="a4", again=True).send_numbered(queue, 3)
    got = depths(broker, [queue], "ann")
    assert got == 2, f"{got} messages of 2"
    # All of that is known after a restart.
    broker.kill()
    broker.must_start()
    for number in (1, 2, 3):
        Peer(broker.port, "ID:ann", "ann", client_id=f"r{number}", again=True).send_numbered(queue, number)
    Peer(broker.port, "ID:ann", "bob", client_id="r4", again=True).send_numbered(queue, 3)
    got = depths(broker, [queue], "ann")
    assert got == 1, f"{got} messages of 1"


def send_numbered(self, destination, number):
    self.answer(self.numbered(destination, number))
    self.close()


Peer.send_numbered = send_numbered


def leap(broker):
    queue = TARGETS[0]
    first = Peer(broker.port, "ID:leap")
    for number in (1, 2, FAR, 3, FAR + 1, (1 << 63) - 1):
        first.answer(first.numbered(queue, number))
    first.close()
    second = Peer(broker.port, "ID:leap", again=True)
    for number in ((1 << 63) - 1, FAR, FAR + 1):
        second.answer(second.numbered(queue, number))
    got = depths(broker, [queue])
    assert got == 6, f"{got} messages of 6"
