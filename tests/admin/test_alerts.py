"""Alerts: a real broker, a local webhook, and a queue that hears of them."""

import json
import signal
import subprocess
import unittest

from broker import BINARY, Broker
from operator_tools import Operator, until
from receiver import Receiver

RULES = """
memory_bytes = 67108864

[[alert]]
name = "deep"
on = "depth"
destinations = ["queue://orders.>"]
above = 4
clear_at = 1
for_seconds = 1
severity = "critical"
to = ["log", "{url}", "queue://ops.alerts"]

[[alert]]
name = "lonely"
on = "no_consumer"
destinations = ["queue://orders.>"]

[[alert]]
name = "dead"
on = "depth"
above = 0
destinations = ["queue://ActiveMQ.DLQ"]
to = ["{url}"]

[[alert]]
name = "old"
on = "age"
above = 1
destinations = ["queue://orders.old"]
to = ["{url}"]

[[alert]]
name = "full"
on = "memory"
above = 0
"""


class Alerts(unittest.TestCase):
    def setUp(self):
        self.failures = 0
        self.receiver = Receiver(self.answer)
        self.broker = Broker(RULES.replace("{url}", self.receiver.url("/hook"))).start()
        self.operator = Operator(self.broker)

    def tearDown(self):
        alive = self.broker.is_alive()
        self.broker.stop()
        self.receiver.close()
        self.assertTrue(alive, "the broker died")

    def test_http_clients_that_ask_for_messages_are_consumers(self):
        iron = {"Authorization": "OAuth t"}
        reserve = lambda queue: self.operator.request(
            "POST", f"/3/projects/default/queues/{queue}/reservations", {"n": 1}, iron
        )
        for queue in ("orders.polled", "orders.left"):
            self.operator.send(queue, "m")
        self.assertEqual(reserve("orders.polled")[0], 200)
        self.operator.send("orders.polled", "n")
        lonely = lambda: {alert["subject"] for alert in self.operator.api("GET", "alerts?filter=lonely")["items"]}
        until("the other fires", lambda: "queue://orders.left" in lonely())
        # Its alert may have been there before the request.
        until("no alert", lambda: "queue://orders.polled" not in lonely())

    def answer(self, request):
        """The endpoint fails as often as it is told."""
        if self.failures:
            self.failures -= 1
            return 503
        return 200

    def alerts(self, name):
        items = self.operator.api("GET", "alerts?limit=500")["items"]
        return {item["subject"]: item["state"] for item in items if item["alert"] == name}

    def notifications(self, name):
        """All changes of a rule that the webhook has confirmed, as subject and state."""
        with self.receiver.changed:
            bodies = [json.loads(request.body) for request in self.receiver.requests]
        changes = [change for body in bodies if body["alert"] == name for change in body["changes"]]
        return [(change["subject"], change["state"]) for change in changes]

    def test_a_deep_queue_fires_and_is_resolved_by_webhook_queue_log_and_metric(self):
        self.failures = 2
        for number in range(5):
            self.operator.send("orders.new", f"{number}")
        self.operator.send("orders.shallow", "one")
        self.operator.send("elsewhere", "one")
        subject = "queue://orders.new"
        until("it fires", lambda: self.alerts("deep").get(subject) == "firing")
        self.assertEqual(list(self.alerts("deep")), [subject])
        until("the webhook", lambda: self.notifications("deep").count((subject, "firing")) >= 3)
        request = self.receiver.requests[0]
        self.assertEqual((request.path, request.headers["Content-Type"]), ("/hook", "application/json"))
        body = json.loads(request.body)
        self.assertEqual((body["severity"], body["on"], body["above"]), ("critical", "depth", 4))
        self.assertEqual(body["changes"][0]["value"], 5)
        labels = '{alert="deep",severity="critical"}'
        until("the metric", lambda: self.operator.metric("postroad_alerts_firing")[labels] == 1)
        alarms = self.operator.api("GET", "overview")["alarms"]
        self.assertTrue(any(alarm["subject"] == subject for alarm in alarms), alarms)

        said = self.operator.ctl("alerts")
        line = next(line for line in said.stdout.splitlines() if line.startswith("deep "))
        self.assertIn("5 messages are in it", line)

        # Between the level that clears it and the threshold it goes on; then it is resolved.
        command = [BINARY, "receive", "orders.new", "--url", f"tcp://127.0.0.1:{self.broker.openwire}"]
        subprocess.run([*command, "--count", "2"], check=True, capture_output=True, timeout=60)
        until("two left", lambda: self.operator.api("GET", "queues/orders.new")["messages"] == 3)
        self.assertEqual(self.alerts("deep").get(subject), "firing")
        self.operator.api("POST", "queues/orders.new/purge")
        until("it is resolved", lambda: (subject, "resolved") in self.notifications("deep"))
        self.assertEqual(self.alerts("deep"), {})
        states = until("both are in the queue", lambda: self.told(2))
        self.assertEqual(states, ["firing", "resolved"])
        with open(f"{self.broker.folder}/err") as log:
            text = log.read()
        self.assertIn("alert fires: 5 messages are in it", text)
        self.assertIn("alert is resolved", text)

    def told(self, count):
        """The states in the queue of notifications, once there are so many."""
        if self.operator.request("GET", "/api/v1/queues/ops.alerts")[0] != 200:
            return None
        items = self.operator.api("GET", "queues/ops.alerts/messages")["items"]
        states = [json.loads(item["body"]["value"])["changes"][0]["state"] for item in items]
        return states if len(states) >= count else None

    def test_queues_without_consumers_dead_letters_age_and_memory(self):
        self.operator.send("orders.old", "stays")
        until("no consumer", lambda: self.alerts("lonely").get("queue://orders.old") == "firing")
        until("age", lambda: ("queue://orders.old", "firing") in self.notifications("old"))
        until("memory", lambda: self.alerts("full").get("broker") == "firing")
        self.operator.api("POST", "queues/late/messages", {"body": "late", "ttl_ms": 1})
        until("dead letters", lambda: ("queue://ActiveMQ.DLQ", "firing") in self.notifications("dead"))
        command = [BINARY, "receive", "orders.old", "--url", f"tcp://127.0.0.1:{self.broker.openwire}"]
        subprocess.run([*command, "--count", "1"], check=True, capture_output=True, timeout=60)
        until("it left", lambda: ("queue://orders.old", "resolved") in self.notifications("old"))
        self.assertEqual(self.alerts("lonely"), {})

    def test_sighup_reads_the_rules_again(self):
        self.operator.send("billing", "one")
        with open(self.broker.config, "w") as file:
            file.write('[[alert]]\nname = "billing"\non = "depth"\nabove = 0\ndestinations = ["queue://billing"]\n')
        self.broker.process.send_signal(signal.SIGHUP)
        until("the new rule", lambda: self.alerts("billing") == {"queue://billing": "firing"})
        with open(self.broker.config, "w") as file:
            file.write('[[alert]]\nname = "billing"\non = "length"\n')
        self.broker.process.send_signal(signal.SIGHUP)

        def refused():
            with open(f"{self.broker.folder}/err") as log:
                return "[[alert]] 1: on is \"length\"" in log.read().replace('\\"', '"')

        until("the log names the error", refused)
        self.assertEqual(self.alerts("billing"), {"queue://billing": "firing"})


if __name__ == "__main__":
    unittest.main()
