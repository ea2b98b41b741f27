"""What operators look at: stores, listeners, subscriptions, policies, messages by content, capacity."""

import json
import threading
import unittest
import urllib.parse

from operator_tools import WithBroker, until

CONFIG = """
[[policy]]
destination = "queue://orders.>"
messages_max = 1000

[[policy]]
destination = "queue://orders.eu"
redelivery_count = 3

[[tenant]]
name = "shop"
destinations = ["queue://orders.>"]
"""


class Inspection(WithBroker):
    config = CONFIG

    def test_stores_listeners_and_policies_are_shown(self):
        self.operator.send("others", "one")
        written = lambda: [row for row in self.rows("stores") if row["segments"] and row["written_bytes"]]
        [store] = until("the store of the message", written)
        self.assertEqual((store["name"], store["state"], store["reason"]), ("main", "running", None))
        urls = [row["url"] for row in self.rows("listeners")]
        self.assertIn(f"tcp://127.0.0.1:{self.broker.openwire}", urls)
        self.assertIn(f"http://127.0.0.1:{self.broker.http}", urls)
        for queue, pattern, tenant, own in [
            ("orders.eu", "queue://orders.eu", "shop", "policy[queue://orders.eu].redelivery_count"),
            ("orders.us", "queue://orders.>", "shop", "policy[queue://orders.>].messages_max"),
            ("others", None, None, "dead_letter_queue"),
        ]:
            policy = json.loads(self.ctl("policy", queue, "--json"))
            self.assertEqual((policy["pattern"], policy["tenant"]), (pattern, tenant))
            self.assertIn(own, [setting["key"] for setting in policy["settings"]])
        self.assertIn("the defaults are in force", self.ctl("policy", "others"))
        self.assertIn("has wildcards", self.ctl("policy", "orders.>", code=1))

    def test_messages_are_found_by_content_and_time_and_copied(self):
        for number in range(120):
            text = f"order {number} of Müller" if number % 40 == 7 else f"order {number}"
            self.operator.send("orders.eu", text)
        path = "queues/orders.eu/messages"
        found = self.operator.api("GET", f"{path}?text={urllib.parse.quote('MÜLLER')}")
        bodies = [item["body"]["value"] for item in found["items"]]
        self.assertEqual(bodies, ["order 7 of Müller", "order 47 of Müller", "order 87 of Müller"])
        self.assertEqual((found["scanned"], found["next"]), (120, None))
        # Page by page, each search beginning where the last one ended.
        first = self.operator.api("GET", f"{path}?text=of&limit=1")
        then = self.operator.api("GET", f"{path}?text=of&limit=5&cursor={first['next']}")
        self.assertEqual([item["body"]["value"] for item in first["items"] + then["items"]], bodies)
        middle = found["items"][1]["timestamp_ms"]
        early = self.operator.api("GET", f"{path}?text=of&to_ms={middle}&selector=JMSPriority%20%3D%204")
        late = self.operator.api("GET", f"{path}?text=of&from_ms={middle}")
        self.assertEqual(len(early["items"]) + len(late["items"]), 3)
        self.assertIn(bodies[1], [item["body"]["value"] for item in late["items"]])

        self.ctl("copy", "orders.eu", found["items"][0]["id"], "--to", "copies")
        copies = self.rows("browse", "copies", "--text", "müller")
        self.assertEqual([copy["body"]["value"] for copy in copies], bodies[:1])
        self.assertEqual(self.operator.api("GET", "queues/orders.eu")["messages"], 120)
        self.assertIn("has no message ID:none", self.ctl("copy", "orders.eu", "ID:none", "--to", "x", code=1))
        # A body that is longer than a listing shows is exported whole.
        self.operator.send("long", "x" * 5000 + "end")
        [whole] = self.rows("browse", "long", "--text", "END", "--body-bytes", "10000")
        self.assertEqual((len(whole["body"]["value"]), whole["body"]["is_cut"]), (5003, False))

    def test_capacity_is_fitted_to_a_load_and_asked_for_another(self):
        ends = threading.Event()

        def load():
            while not ends.is_set():
                self.operator.send("busy", "x" * 500)

        thread = threading.Thread(target=load)
        thread.start()
        try:
            self.check_capacity()
        finally:
            ends.set()
            thread.join()

    def check_capacity(self):
        def fitted():
            plan = self.operator.api("GET", "planner?subscribers=40&size=2")
            return plan if plan["headroom"] is not None and plan["error_next"]["forecasts"] > 0 else None

        plan = until("a fit", fitted, 60)
        headroom, forecast, now = plan["headroom"], plan["forecast"], plan["now"]
        self.assertLessEqual(headroom["least"], headroom["likely"])
        self.assertLessEqual(headroom["likely"], headroom["most"])
        self.assertGreater(now["received"], 0)
        self.assertAlmostEqual(forecast["delivered"], now["delivered"] + 40 * now["received"], delta=0.01)
        self.assertAlmostEqual(forecast["written_bytes"], 2 * now["written_bytes"], delta=0.01)
        self.assertGreaterEqual(forecast["busy_error"], 0)
        said = self.ctl("plan", "--subscribers", "40")
        self.assertIn("forecast  ", said)
        self.assertIn("times this load", said)
        status, text = self.operator.request("GET", "/api/v1/planner?size=-1")
        self.assertEqual(status, 400, text)


if __name__ == "__main__":
    unittest.main()
