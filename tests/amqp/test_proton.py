"""python-qpid-proton against the broker at POSTROAD_AMQP."""

import contextlib
import os
import socket
import threading
import time
import unittest
import uuid
from urllib.parse import urlsplit

from proton import ConnectionException, Disposition, Message, Timeout, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, Copy, DurableSubscription, Selector
from proton.utils import BlockingConnection, LinkDetached, SendException

URL = os.environ["POSTROAD_AMQP"]
PATIENCE = 10


def unique(label):
    return f"test.proton.{label}.{uuid.uuid4()}"


class Waiting(MessagingHandler):
    """A client of events that ends once it has what it waits for."""

    def __init__(self):
        super().__init__(auto_accept=False)
        self.seen = []

    def run(self):
        container = Container(self)
        container.timeout = PATIENCE
        container.run()
        return self.seen

    def stop(self, event):
        event.connection.close()


class Wire:
    """A way to the broker that can be cut, without a word to either side."""

    def __init__(self):
        broker = urlsplit(URL)
        self.door = socket.create_server(("127.0.0.1", 0))
        self.url = f"amqp://127.0.0.1:{self.door.getsockname()[1]}"
        self.ends = []
        threading.Thread(target=self.relay, args=(broker.hostname, broker.port), daemon=True).start()

    def relay(self, host, port):
        client, _ = self.door.accept()
        broker = socket.create_connection((host, port))
        self.ends = [client, broker]
        for here, there in ((client, broker), (broker, client)):
            threading.Thread(target=self.pump, args=(here, there), daemon=True).start()

    @staticmethod
    def pump(here, there):
        try:
            while data := here.recv(65536):
                there.sendall(data)
        except OSError:
            pass  # It was cut.

    def cut(self):
        for end in (self.door, *self.ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class ProtonTest(unittest.TestCase):
    def connect(self, **options):
        connection = BlockingConnection(URL, timeout=PATIENCE, **options)
        self.addCleanup(connection.close)
        return connection

    def test_broker_says_what_it_is(self):
        connection = self.connect().conn
        self.assertEqual(connection.remote_properties[symbol("product")], "Postroad")
        self.assertIn(symbol("ANONYMOUS-RELAY"), list(connection.remote_offered_capabilities))

    def test_messages_keep_every_section(self):
        connection, queue = self.connect(), unique("sections")
        sent = Message(
            body={"a": [1, "two", 3.5, None, True]},
            id=uuid.uuid4(),
            user_id=b"me",
            address=queue,
            subject="subject",
            reply_to="replies",
            correlation_id="correlation",
            content_type="text/plain",
            durable=True,
            priority=7,
            properties={"text": "gr\u00fcn", "number": -1, "yes": True},
            annotations={symbol("x-opt-mine"): "kept"},
            group_id="group",
            group_sequence=3,
        )
        connection.create_sender(queue).send(sent)
        receiver = connection.create_receiver(queue, credit=1)
        got = receiver.receive()
        receiver.accept()
        for field in ("body", "id", "user_id", "address", "subject", "reply_to", "correlation_id", "content_type",
                      "durable", "priority", "properties", "annotations", "group_id", "group_sequence"):
            self.assertEqual(getattr(got, field), getattr(sent, field), field)
        self.assertEqual(got.delivery_count, 0)

    def test_every_outcome_has_its_effect(self):
        connection, queue = self.connect(), unique("outcomes")
        sender = connection.create_sender(queue)
        for name in ("accepted", "released", "failed", "rejected"):
            sender.send(Message(body=name, durable=True))
        receiver = connection.create_receiver(queue, credit=4)
        for outcome in (Disposition.ACCEPTED, Disposition.RELEASED, None, Disposition.REJECTED):
            receiver.receive()
            if outcome is None:
                delivery = receiver.fetcher.unsettled.popleft()
                delivery.local.failed = True
                delivery.update(Disposition.MODIFIED)
                delivery.settle()
            else:
                receiver.settle(outcome)
        receiver.flow(2)
        left = []
        for _ in range(2):
            message = receiver.receive()
            left.append((message.body, message.delivery_count))
            receiver.accept()
        self.assertEqual(sorted(left), [("failed", 1), ("released", 0)])

    def test_large_messages_pass_in_small_frames(self):
        queue = unique("large")
        body = bytes(range(256)) * 4000
        small = self.connect(max_frame_size=4096)
        small.create_sender(queue).send(Message(body=body))
        receiver = small.create_receiver(queue, credit=1)
        # The body is a view into the message, which must live as long.
        message = receiver.receive()
        self.assertEqual(bytes(message.body), body)
        receiver.accept()

    def test_selectors_select_and_browsers_take_nothing(self):
        connection, queue = self.connect(), unique("filter")
        sender = connection.create_sender(queue)
        for number in range(4):
            sender.send(Message(body=number, properties={"number": number}))
        browser = connection.create_receiver(queue, credit=4, options=Copy())
        self.assertEqual([browser.receive().body for _ in range(4)], [0, 1, 2, 3])
        browser.close()
        selecting = connection.create_receiver(queue, credit=4, options=Selector("number > 1"))
        got = []
        for _ in range(2):
            got.append(selecting.receive().body)
            selecting.accept()
        self.assertEqual(got, [2, 3])

    def test_a_dynamic_node_answers_requests(self):
        connection, queue = self.connect(), unique("requests")
        replies = connection.create_receiver(None, dynamic=True, credit=1)
        address = replies.link.remote_source.address
        self.assertTrue(address.startswith("temp-queue://"), address)
        connection.create_sender(queue).send(Message(body="ping", reply_to=address))
        server = self.connect()
        receiver = server.create_receiver(queue, credit=1)
        request = receiver.receive()
        receiver.accept()
        # The anonymous relay: a link to nowhere, and an address in each message.
        server.create_sender(None).send(Message(address=request.reply_to, body="pong"))
        self.assertEqual(replies.receive().body, "pong")

    def test_a_delay_becomes_a_delivery_time(self):
        connection, queue = self.connect(), unique("delay")
        sender, receiver = connection.create_sender(queue), connection.create_receiver(queue, credit=2)
        sent_ms = time.time() * 1000
        delay = {symbol("x-opt-delivery-delay"): 1500}
        sender.send(Message(body="later", durable=True, annotations=delay))
        sender.send(Message(body="now", durable=True))
        self.assertEqual(receiver.receive().body, "now")
        receiver.accept()
        later = receiver.receive(timeout=PATIENCE)
        came_ms = time.time() * 1000
        receiver.accept()
        self.assertEqual((later.body, list(later.annotations)), ("later", [symbol("x-opt-delivery-time")]))
        due_ms = later.annotations[symbol("x-opt-delivery-time")]
        self.assertGreaterEqual(due_ms, int(sent_ms) + 1500)
        self.assertGreaterEqual(came_ms, due_ms)

    def test_what_cannot_be_sent_is_rejected_with_a_reason(self):
        with self.assertRaises(SendException):
            self.connect().create_sender(None).send(Message(body="to nobody"))

    def test_a_bad_selector_detaches_the_link(self):
        with self.assertRaises(LinkDetached) as caught:
            self.connect().create_receiver(unique("bad"), options=Selector("this is no selector ("))
        self.assertEqual(caught.exception.condition, "amqp:invalid-field")

    def test_credit_is_drained(self):
        queue = unique("drain")
        self.connect().create_sender(queue).send(Message(body="one"))

        class Draining(Waiting):
            def on_start(self, event):
                connection = event.container.connect(URL)
                self.receiver = event.container.create_receiver(connection, queue)
                self.receiver.flow(0)

            def on_link_opened(self, event):
                self.receiver.drain(10)

            def on_message(self, event):
                self.seen.append(event.message.body)
                self.accept(event.delivery)

            def on_link_flow(self, event):
                if self.receiver.credit == 0 and "drained" not in self.seen:
                    self.seen.append("drained")
                    self.stop(event)

        handler = Draining()
        handler.prefetch = 0
        handler.handlers = [h for h in handler.handlers if type(h).__name__ != "FlowController"]
        self.assertEqual(handler.run(), ["one", "drained"])

    def test_a_transaction_is_all_or_nothing(self):
        queue = unique("transaction")

        class Transacting(Waiting):
            def on_start(self, event):
                self.container = event.container
                self.connection = event.container.connect(URL)
                self.sender = event.container.create_sender(self.connection, queue)
                self.rounds = ["abort", "commit"]
                self.container.declare_transaction(self.connection, handler=self)

            def on_transaction_declared(self, event):
                event.transaction.send(self.sender, Message(body=self.rounds[0]))
                if self.rounds.pop(0) == "abort":
                    event.transaction.abort()
                else:
                    event.transaction.commit()

            def on_transaction_aborted(self, event):
                self.seen.append("aborted")
                self.container.declare_transaction(self.connection, handler=self)

            def on_transaction_committed(self, event):
                self.seen.append("committed")
                self.connection.close()

        self.assertEqual(Transacting().run(), ["aborted", "committed"])
        receiver = self.connect().create_receiver(queue, credit=2)
        self.assertEqual(receiver.receive().body, "commit")
        receiver.accept()

    def test_a_link_that_is_attached_by_another_connection_is_stolen(self):
        container, topic = unique("container"), "topic://" + unique("topic")

        def subscribe():
            connection = BlockingConnection(URL, timeout=PATIENCE, container=Container(container_id=container))
            self.addCleanup(connection.close)
            return connection.create_receiver(topic, credit=1, name="news", options=DurableSubscription())

        old = subscribe()
        sender = self.connect().create_sender(topic)
        sender.send(Message(body="first", durable=True))
        self.assertEqual(old.receive().body, "first")
        new = subscribe()
        with self.assertRaises(LinkDetached) as caught:
            old.receive(timeout=PATIENCE)
        self.assertEqual(caught.exception.condition, "amqp:link:stolen")
        again = new.receive()
        self.assertEqual((again.body, again.delivery_count), ("first", 1))
        new.accept()

    def test_what_a_lost_connection_had_comes_again_and_what_it_sent_is_there(self):
        queue, wire = unique("lost"), Wire()
        lost = BlockingConnection(wire.url, timeout=PATIENCE)
        lost.create_sender(queue).send(Message(body="a", durable=True))
        self.assertEqual(lost.create_receiver(queue, credit=1).receive().body, "a")
        wire.cut()
        with self.assertRaises(ConnectionException):
            lost.create_sender(queue).send(Message(body="never"))
        receiver = self.connect().create_receiver(queue, credit=2)
        message = receiver.receive()
        self.assertEqual((message.body, message.delivery_count), ("a", 1))
        receiver.accept()
        with self.assertRaises(Timeout):
            receiver.receive(timeout=0.5)

    def test_a_pattern_is_every_topic_or_queue_that_matches(self):
        connection, root = self.connect(), unique("pattern")
        receiver = connection.create_receiver(f"topic://{root}.*", credit=5)
        connection.create_sender(f"topic://{root}.a").send(Message(body="of a topic"))
        self.assertEqual(receiver.receive().body, "of a topic")
        for name in ("a", "b"):
            connection.create_sender(f"queue://{root}.{name}").send(Message(body=name))
        receiver = connection.create_receiver(f"queue://{root}.*", credit=5)
        self.assertEqual(sorted(receiver.receive().body for _ in "ab"), ["a", "b"])
        connection.create_sender(f"queue://{root}.later").send(Message(body="later"))
        self.assertEqual(receiver.receive().body, "later")
        for _ in range(3):
            receiver.accept()

    def test_credentials_are_taken_and_malformed_ones_refused(self):
        connection = self.connect(user="me", password="secret", allowed_mechs="PLAIN")
        self.assertEqual(connection.conn.transport.user, "me")


if __name__ == "__main__":
    unittest.main()
