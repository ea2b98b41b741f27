"""What clients have made: scheduled messages, sessions, producers, topics and bindings."""

import json
import os
import subprocess
import sys
import time
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "hostile"))

import openwire
from operator_tools import BINARY, WithBroker, until


class Clients(WithBroker):
    def schedule(self, to, text, *properties):
        """Sends a scheduled message by OpenWire."""
        options = [word for name in properties for word in ("--property", name)]
        command = [BINARY, "send", to, "--url", f"tcp://127.0.0.1:{self.broker.openwire}", "--body", text, *options]
        subprocess.run(command, check=True, capture_output=True, timeout=60)

    def test_scheduled_messages_are_listed_shown_and_deleted(self):
        hour = 3_600_000
        self.schedule("orders.late", "second", f"AMQ_SCHEDULED_DELAY:long={2 * hour}", "shop=eu")
        self.schedule("topic://prices", "first", f"AMQ_SCHEDULED_DELAY:long={hour}")
        self.schedule("orders.often", "third", f"AMQ_SCHEDULED_DELAY:long={3 * hour}", "AMQ_SCHEDULED_PERIOD:long=5000",
                      "AMQ_SCHEDULED_REPEAT:int=7")
        rows = self.rows("schedules")
        self.assertEqual(
            [(row["destinations"], row["period_ms"], row["times"]) for row in rows],
            [(["topic://prices"], None, None), (["queue://orders.late"], None, None), (["queue://orders.often"], 5000, 7)],
        )
        near = time.time() * 1000 + hour
        self.assertLess(abs(rows[0]["due_ms"] - near), 600_000)
        self.assertTrue(all(row["bytes"] > 0 and row["job"].startswith("ID:") for row in rows), rows)
        self.assertEqual(self.rows("schedules", "--filter", "orders"), rows[1:])
        self.assertEqual(self.rows("schedules", "--job", rows[2]["job"]), rows[2:])
        self.assertEqual(self.rows("schedules", "--job", "none"), [])
        self.assertEqual(self.rows("schedules", "--to-ms", str(rows[1]["due_ms"])), rows[:1])
        self.assertEqual(self.rows("schedules", "--from-ms", str(rows[1]["due_ms"])), rows[1:])
        # Page by page, in one order over all partitions.
        paged, cursor = [], ""
        for _ in range(3):
            page = self.operator.api("GET", f"schedules?limit=1{cursor}")
            self.assertEqual(page["total"], 3)
            paged += page["items"]
            cursor = f"&cursor={page['next']}"
        self.assertEqual(([row["id"] for row in paged], page["next"]), ([row["id"] for row in rows], None))
        self.assertIn("each 5000 ms, 7 times more", self.ctl("schedules"))

        shown = json.loads(self.ctl("schedules", "show", rows[1]["id"]))
        self.assertEqual((shown["id"], shown["message"]["body"]["value"]), (rows[1]["id"], "second"))
        self.assertEqual(shown["message"]["properties"]["shop"], "eu")
        self.assertEqual(self.ctl("schedules", "delete", rows[1]["id"]), "")
        self.assertIn("there is no scheduled message", self.ctl("schedules", "delete", rows[1]["id"], code=1))
        self.assertEqual(self.rows("schedules"), [rows[0], rows[2]])
        # It stays deleted, and ids stay the same.
        self.broker.kill()
        self.broker.start()
        self.assertEqual(self.rows("schedules"), [rows[0], rows[2]])
        for query, status in [("sort=-due", 400), ("limit=501", 400), ("cursor=x", 400), ("colour=red", 400)]:
            self.assertEqual(self.operator.request("GET", f"/api/v1/schedules?{query}")[0], status, query)
        for id, status in [("x", 400), ("1-0-999999-0", 404), ("1-9999-1-0", 404)]:
            for method in ("GET", "DELETE"):
                self.assertEqual(self.operator.request(method, f"/api/v1/schedules/{id}")[0], status, id)

    def test_a_repeating_message_keeps_its_id(self):
        self.schedule("ticks", "tick", "AMQ_SCHEDULED_DELAY:long=1", "AMQ_SCHEDULED_PERIOD:long=300",
                      "AMQ_SCHEDULED_REPEAT:int=-1")
        [before] = until("the schedule", lambda: self.rows("schedules"))
        messages = lambda: self.operator.api("GET", "queues?filter=ticks")["items"]
        until("two messages", lambda: messages() and messages()[0]["messages"] >= 2)
        # The id of an earlier firing.
        self.ctl("schedules", "delete", before["id"])
        self.assertEqual(self.rows("schedules"), [])

    def test_sessions_producers_topics_and_bindings_are_listed(self):
        port = self.broker.openwire
        reader, writer = openwire.Client(port, "ID:reader"), openwire.Client(port, "ID:writer")
        reader.consume(openwire.topic("prices.eu"))
        reader.consume(openwire.topic("prices.>"))
        reader.consume(openwire.queue("Consumer.shop.VirtualTopic.orders"), prefetch=10)
        producer = (123, {"connection_id": "ID:writer", "value": 4, "session_id": 2})
        writer.call(openwire.PRODUCER_INFO, producer_id=producer, destination=openwire.topic("prices.eu"), window=4096)
        writer.send(openwire.topic("VirtualTopic.orders"), "one")

        sessions = {row["session"]: row for row in self.rows("sessions", "--filter", "ID:")}
        self.assertEqual(set(sessions), {"ID:reader:1", "ID:writer:2"})
        self.assertEqual((sessions["ID:reader:1"]["consumers"], sessions["ID:reader:1"]["producers"]), (3, 0))
        self.assertEqual((sessions["ID:writer:2"]["consumers"], sessions["ID:writer:2"]["producers"]), (0, 1))
        held = lambda: self.operator.api("GET", "sessions?sort=-held&limit=1")["items"][0]
        until("the delivery", lambda: held()["session"] == "ID:reader:1" and held()["held"] == 1)

        [row] = self.rows("producers", "topic://prices.eu")
        self.assertEqual((row["name"], row["window_bytes"]), ("ID:writer:2:4", 4096))
        self.assertEqual(self.rows("producers", "other"), [])
        topics = {row["name"]: row["bindings"] for row in self.rows("topics")}
        self.assertEqual((topics["prices.eu"], topics["VirtualTopic.orders"]), (2, 1))
        self.assertEqual([row["name"] for row in self.rows("topics", "--filter", "prices")], ["prices.eu"])
        self.assertEqual(self.operator.api("GET", "topics/prices.eu")["bindings"], 2)
        self.assertEqual(self.operator.request("GET", "/api/v1/topics/none")[0], 404)
        self.assertEqual(self.operator.request("GET", "/api/v1/topics/queue%3A%2F%2Fa")[0], 400)

        bindings = [(row["topic"], row["kind"], row["to"]) for row in self.rows("bindings")]
        self.assertIn(("VirtualTopic.orders", "queue", "Consumer.shop.VirtualTopic.orders"), bindings)
        self.assertIn(("prices.eu", "subscription", "ID:reader:1:1"), bindings)
        self.assertIn(("prices.>", "subscription", "ID:reader:1:2"), bindings)
        self.assertEqual(len([row for row in bindings if row[0] == "prices.>"]), 1, "one of a pattern")
        [row] = self.rows("bindings", "VirtualTopic.orders")
        self.assertEqual((row["durable"], row["messages"]), (True, 1))
        reader.close()
        gone = lambda: not self.rows("bindings", "--filter", "prices")
        until("the end of the subscriptions", gone)
        writer.close()


if __name__ == "__main__":
    unittest.main()
