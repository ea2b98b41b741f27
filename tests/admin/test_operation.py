"""What operators do to a running broker: pause and resume a queue, drain the broker."""

import json
import os
import subprocess
import time
import unittest

from broker import BINARY, Broker
from operator_tools import Operator, until
from receiver import Receiver


class Operation(unittest.TestCase):
    def setUp(self):
        self.broker = Broker('[push]\nallow = ["127.0.0.1"]\n').start()
        self.operator = Operator(self.broker)

    def tearDown(self):
        alive = self.broker.is_alive()
        self.broker.stop()
        self.assertTrue(alive, "the broker died")

    def reserve(self, queue):
        """Bodies of the messages that an IronMQ client reserves."""
        path = f"/3/projects/default/queues/{queue}/reservations"
        status, text = self.operator.request("POST", path, {"n": 10}, {"Authorization": "OAuth t"})
        self.assertEqual(status, 200, text)
        return [message["body"] for message in json.loads(text)["messages"]]

    def ctl(self, *words):
        said = self.operator.ctl(*words)
        self.assertEqual(said.returncode, 0, said.stderr)
        return said.stdout

    def test_a_paused_queue_is_seen_everywhere_and_can_be_worked_on(self):
        for text in ("one", "two", "three"):
            self.operator.send("orders", text)
        self.operator.send("others", "other")
        self.assertEqual(self.ctl("pause", "orders"), "")
        self.assertEqual(self.reserve("orders"), [])
        self.assertEqual(self.reserve("others"), ["other"])

        self.assertTrue(self.operator.api("GET", "queues/orders")["is_paused"])
        rows = [json.loads(line) for line in self.ctl("queues", "--json").splitlines()]
        self.assertEqual({row["name"]: row["state"] for row in rows}["orders"], "paused")
        explained = self.operator.api("GET", "queues/orders/explain")
        self.assertIn("paused", [verdict["code"] for verdict in explained["queue_verdicts"]])
        self.assertIn("postroad ctl resume", explained["remedy"])
        self.assertEqual(sum(self.operator.metric("postroad_queues_paused").values()), 1)

        # Operators work on it all the same.
        items = self.operator.api("GET", "queues/orders/messages")["items"]
        self.assertEqual([item["body"]["value"] for item in items], ["one", "two", "three"])
        self.operator.api("DELETE", f"queues/orders/messages/{items[0]['id']}")
        self.operator.api("POST", f"queues/orders/messages/{items[1]['id']}/move", {"to": "others"})
        self.assertEqual(self.reserve("others"), ["two"])

        self.broker.kill()
        self.broker.start()
        self.assertEqual(self.reserve("orders"), [])
        self.ctl("resume", "orders")
        self.assertEqual(self.reserve("orders"), ["three"])
        self.assertFalse(self.operator.api("GET", "queues/orders")["is_paused"])
        paths = [change["path"] for change in self.operator.api("GET", "audit")["items"]]
        self.assertIn("/api/v1/queues/orders/resume", paths)

        self.operator.api("POST", "queues/orders/pause")
        self.operator.send("orders", "four")
        self.assertEqual(self.operator.api("POST", "queues/orders/purge"), {"removed": 1})

    def test_a_queue_that_is_not_there_cannot_be_paused(self):
        said = self.operator.ctl("pause", "nowhere")
        self.assertEqual(said.returncode, 1)
        self.assertIn("there is no queue://nowhere", said.stderr)
        status, _ = self.operator.request("POST", "/api/v1/queues/topic%3A%2F%2Fnews/pause")
        self.assertEqual(status, 400)

    def cli(self, *words):
        url = f"tcp://127.0.0.1:{self.broker.openwire}"
        return subprocess.run([BINARY, *words, "--url", url], capture_output=True, text=True, timeout=60)

    def test_a_drained_broker_refuses_messages_and_connections_and_delivers_the_rest(self):
        self.operator.send("orders", "one")
        url = f"tcp://127.0.0.1:{self.broker.openwire}"
        command = [BINARY, "receive", "orders", "--url", url, "--count", "2"]
        receiving = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.addCleanup(receiving.stdout.close)
        until("it receives", lambda: self.operator.api("GET", "queues/orders")["consumers"] == 1)
        self.operator.send("later", "two")
        self.assertIn("running", self.ctl("broker"))
        self.assertIn("draining", self.ctl("broker", "drain"))

        self.assertEqual(self.cli("send", "orders", "--body", "three").returncode, 1)
        status, text = self.operator.request("POST", "/api/v1/queues/orders/messages", {"body": "three"})
        self.assertEqual(status, 503, text)
        self.assertIn("drained", text)
        iron = {"Authorization": "OAuth t"}
        posted = {"messages": [{"body": "three"}]}
        path = "/3/projects/default/queues/orders/messages"
        self.assertEqual(self.operator.request("POST", path, posted, iron)[0], 503)
        status, text = self.operator.request("GET", "/health/ready")
        self.assertEqual((status, text.split(":")[0]), (503, "draining"))
        self.assertEqual(self.operator.metric("postroad_draining"), {"": 1.0})
        alarms = lambda: self.operator.api("GET", "overview")["alarms"]
        until("an alarm", lambda: "broker" in [alarm["subject"] for alarm in alarms()])
        # HTTP clients still get the rest.
        self.assertEqual(self.reserve("later"), ["two"])

        self.assertIn("running", self.ctl("broker", "resume"))
        self.assertEqual(self.operator.request("GET", "/health/ready")[0], 200)
        self.operator.send("orders", "four")
        out, _ = receiving.communicate(timeout=30)
        self.assertEqual((out.split(), receiving.returncode), (["one", "four"], 0))

    def test_top_and_watch_show_a_broker_again_and_again(self):
        for number in range(5):
            self.operator.send("orders", str(number))
        data = ["--data", os.path.join(self.broker.folder, "data")]
        command = [BINARY, "top", *data, "--every", "1", "--count", "1"]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual((shown.returncode, shown.stderr), (0, ""))
        [row] = [line.split() for line in shown.stdout.splitlines() if line.startswith("orders ")]
        self.assertEqual(row[3], "5")
        self.assertIn("queues 1 ", shown.stdout)
        watching = subprocess.Popen(
            [BINARY, "ctl", "queues", "--json", "--watch", "1", *data], stdout=subprocess.PIPE, text=True
        )
        self.addCleanup(watching.stdout.close)
        counts = [json.loads(watching.stdout.readline())["messages"]]
        self.operator.send("orders", "more")
        while counts[-1] < 6 and len(counts) < 10:
            counts.append(json.loads(watching.stdout.readline())["messages"])
        watching.terminate()
        watching.wait(30)
        self.assertEqual((counts[0], counts[-1]), (5, 6))

    def test_pushes_stop_while_a_queue_is_paused(self):
        receiver = Receiver()
        self.addCleanup(receiver.close)
        subscribers = [{"name": "one", "url": receiver.url()}]
        settings = {"queue": {"type": "multicast", "push": {"subscribers": subscribers}}}
        iron = {"Authorization": "OAuth t"}
        status, text = self.operator.request("PUT", "/3/projects/default/queues/cast", settings, iron)
        self.assertEqual(status, 200, text)
        self.operator.send("cast", "first")
        receiver.wait_for(1)
        self.ctl("pause", "cast")
        self.operator.send("cast", "second")
        time.sleep(0.5)
        self.assertEqual(len(receiver.requests), 1)
        self.ctl("resume", "cast")
        self.assertEqual([request.body for request in receiver.wait_for(2)], ["first", "second"])


if __name__ == "__main__":
    unittest.main()
