"""Why a message is not delivered, as operators and HTTP clients see it: `postroad ctl explain`."""

import json
import subprocess
import unittest

from broker import BINARY, Broker
from operator_tools import Operator, WithBroker, until

IRON = {"Authorization": "OAuth t"}


class Explain(WithBroker):
    config = """
[[policy]]
destination = "queue://small"
messages_max = 1
at_limit = "fail"
at_limit_wait_ms = 100
"""

    def iron(self, method, path, body):
        status, text = self.operator.request(method, f"/3/projects/default/queues/{path}", body, IRON)
        self.assertEqual(status, 200, text)
        return json.loads(text)

    def explain(self, *words):
        return self.ctl("explain", *words)

    def codes(self, queue):
        explained = self.operator.api("GET", f"queues/{queue}/explain")
        return [verdict["code"] for verdict in explained["queue_verdicts"]]

    def consume(self, queue, *words):
        """A consumer that ends with the test."""
        url = f"tcp://127.0.0.1:{self.broker.openwire}"
        command = [BINARY, "receive", queue, "--url", url, "--follow", *words]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait, 30)
        self.addCleanup(process.kill)

    def test_a_message_is_followed_from_cause_to_cause(self):
        identity = self.operator.send("orders", "one")["id"]
        self.ctl("pause", "orders")
        said = self.explain("message", identity)
        self.assertIn("queue://orders\n", said)
        self.assertIn("Resume the queue: `postroad ctl resume orders`", said)
        self.ctl("resume", "orders")
        self.assertIn("No consumer is attached.\nSmallest change: Attach a consumer", self.explain("queue", "orders"))

        self.consume("orders", "--selector", "colour = 'red'")
        wanted = "does not match, as colour is not set"
        until("the selector", lambda: wanted in self.explain("message", identity, "--queue", "orders"))

        [reserved] = self.iron("POST", "orders/reservations", {"n": 1, "timeout": 600})["messages"]
        said = self.explain("queue", "orders")
        lease = reserved["reservation_id"]
        self.assertRegex(said, rf"reserved the message \(lease {lease}\) until 20\S+Z \(in (600|59\d) s\)")
        self.assertIn("Smallest change: Wait for the end of the reservation, or release it.", said)
        body = {"reservation_id": lease, "delay": 300}
        self.iron("POST", f"orders/messages/{reserved['id']}/release", body)
        said = self.explain("message", identity)
        self.assertRegex(said, r"The message is delayed until 20\S+Z \(in (300|29\d) s\)")

    def test_what_is_not_there_is_an_error_that_says_where_to_look(self):
        self.operator.send("orders", "one")
        said = self.ctl("explain", "message", "ID:nowhere-1", code=1)
        self.assertIn("no queue of 1 has the message ID:nowhere-1", said)
        said = self.ctl("explain", "message", "ID:nowhere-1", "--queue", "orders", code=1)
        self.assertIn("queue://orders has no message ID:nowhere-1", said)
        self.assertIn("there is no queue://none", self.ctl("explain", "queue", "none", code=1))

    def test_a_message_behind_others_and_a_queue_at_its_limit(self):
        for text in ("one", "two"):
            self.operator.send("orders", text)
        identity = self.operator.send("orders", "three")["id"]
        said = self.explain("message", identity)
        self.assertIn("Messages that are delivered before it: 2.", said)
        self.operator.send("small", "one")
        self.assertEqual(self.operator.request("POST", "/api/v1/queues/small/messages", {"body": "x"})[0], 507)
        self.assertIn("full", self.codes("small"))

    def test_the_answer_as_json(self):
        self.operator.send("orders", "one")
        answer = json.loads(self.ctl("explain", "queue", "orders", "--json"))
        self.assertEqual(answer["summary"], "No consumer is attached.")
        verdicts = {verdict["code"]: verdict["blocks"] for verdict in answer["queue_verdicts"]}
        self.assertEqual(verdicts, {"no_consumer": True, "ready": False})


class Links(unittest.TestCase):
    def test_a_link_leaves_the_queue_out_or_has_no_demand_for_it(self):
        east = Broker('broker_name = "east"\n').start()
        self.addCleanup(east.stop)
        url = f"tcp://127.0.0.1:{east.openwire}"
        link = f'[[bridge]]\nname = "to-east"\nto = ["{url}"]\nexclude = ["queue://private.>"]\n'
        west = Broker(f'broker_name = "west"\n{link}').start()
        self.addCleanup(west.stop)
        operator = Operator(west)
        command = [BINARY, "receive", "private.orders", "--url", url, "--follow"]
        consumer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(consumer.wait, 30)
        self.addCleanup(consumer.kill)
        for queue, code, says in (
            ("private.orders", "link_excludes", "Consumers at east want the queue, but include or exclude of the link to-east"),
            ("public.orders", "link_without_demand", "The link to-east to east has no demand for the queue"),
        ):
            operator.send(queue, "one")

            def found():
                verdicts = operator.api("GET", f"queues/{queue}/explain")["queue_verdicts"]
                return [verdict["text"] for verdict in verdicts if verdict["code"] == code]

            [text] = until(f"{queue}: {code}", found)
            self.assertIn(says, text)

    def start(self, name, links="", to=None):
        link = "" if to is None else f'[[bridge]]\nname = "on"\nto = ["tcp://127.0.0.1:{to.openwire}"]\n{links}'
        started = Broker(f'broker_name = "{name}"\n{link}').start()
        self.addCleanup(started.stop)
        return started

    def consume(self, queue, broker, *words):
        """A consumer that ends with the test."""
        command = [BINARY, "receive", queue, "--url", f"tcp://127.0.0.1:{broker.openwire}", "--follow", *words]
        consumer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(consumer.wait, 30)
        self.addCleanup(consumer.kill)

    def verdict(self, operator, queue, code):
        def found():
            explained = operator.api("GET", f"queues/{queue}/explain")
            verdicts = explained["queue_verdicts"] + explained["consumer_verdicts"]
            return [verdict for verdict in verdicts if verdict["code"] == code]

        [verdict] = until(code, found)
        return verdict

    def test_consumers_that_are_too_far_away_are_named(self):
        east = self.start("east")
        middle = self.start("middle", to=east)
        operator = Operator(self.start("west", to=middle))
        self.consume("far", east)
        operator.send("far", "one")
        verdict = self.verdict(operator, "far", "link_hop_limit")
        self.assertIn("Consumers behind middle want the queue", verdict["text"])
        self.assertIn("Raise consumer_ttl", verdict["remedy"])

    def test_demand_that_a_link_only_reflects_is_named(self):
        east = self.start("east")
        west = self.start("west", "duplex = true\n", to=east)
        operator = Operator(west)
        # East wants the queue for this consumer alone, over the same link.
        self.consume("near", west, "--selector", "colour = 'red'")
        operator.send("near", "one")
        verdict = self.verdict(operator, "near", "link_own_path")
        self.assertIn("Consumers that east knows have another path from this broker", verdict["text"])
        self.assertIn("attach a consumer at the peer itself", verdict["remedy"])

    def test_a_message_that_has_passed_as_many_brokers_as_a_link_permits_says_so(self):
        east = self.start("east")
        middle = self.start("middle", to=east)
        west = Operator(self.start("west", 'static = ["queue://on"]\n', to=middle))
        operator = Operator(middle)
        west.send("on", "one")

        def messages():
            return [queue["messages"] for queue in operator.api("GET", "queues")["items"] if queue["name"] == "on"]

        until("the message is at middle", lambda: messages() == [1])
        self.consume("on", east)
        verdict = self.verdict(operator, "on", "link_path")
        self.assertIn("It is a link to another broker. The message has passed the brokers '[ID:west", verdict["text"])
        # One that was sent to middle passes.
        operator.send("on", "two")
        until("the other one has left", lambda: messages() == [1])


if __name__ == "__main__":
    unittest.main()
