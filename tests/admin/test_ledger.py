"""The ledger: after every way in which a message may leave a queue, counts and content agree."""

import json
import subprocess
import unittest

from broker import BINARY, Broker
from operator_tools import Operator, until

CONFIG = """
[[policy]]
destination = "queue://small"
messages_max = 3
at_limit = "drop-oldest"
"""

LEFT = ("held", "in_flight", "consumed", "expired", "dead_lettered", "dropped", "moved")


class Ledger(unittest.TestCase):
    def setUp(self):
        self.broker = Broker(CONFIG).start()
        self.operator = Operator(self.broker)

    def tearDown(self):
        alive = self.broker.is_alive()
        self.broker.stop()
        self.assertTrue(alive, "the broker died")

    def rows(self):
        """The rows that `postroad ctl ledger` prints, by queue; the sums of all have none."""
        said = self.operator.ctl("ledger", "--json")
        self.assertEqual(said.returncode, 0, said.stderr)
        rows = [json.loads(line) for line in said.stdout.splitlines()]
        return {row.get("name"): row for row in rows}

    def stop_broker(self):
        """Stops the broker in order; its directory stays."""
        self.broker.process.terminate()
        self.broker.process.wait(60)
        self.broker.process.stdout.close()

    def check_later(self):
        """A check of all queues that begins after this call."""
        checks = self.operator.api("GET", "ledger")["checks"]
        ledger = lambda: self.operator.api("GET", "ledger")
        return until("two more checks", lambda: (ledger() if ledger()["checks"] >= checks + 2 else None), 60)

    def test_messages_are_accounted_for(self):
        send = self.operator.send
        for number in range(10):
            send("orders", f"{number}")
        for number in range(5):
            send("small", f"{number}")
        self.operator.api("POST", "queues/late/messages", {"body": "late", "ttl_ms": 1})
        command = [BINARY, "receive", "orders", "--url", f"tcp://127.0.0.1:{self.broker.openwire}"]
        subprocess.run([*command, "--count", "4"], check=True, capture_output=True, timeout=60)
        moved = self.operator.api("GET", "queues/orders/messages?limit=1")["items"][0]["id"]
        self.operator.api("POST", f"queues/orders/messages/{moved}/move", {"to": "elsewhere"})
        until("it expires", lambda: self.operator.api("GET", "queues/late")["expired"] == 1)

        rows = self.rows()
        for name, want in [
            ("orders", {"sent": 10, "held": 5, "consumed": 5}),
            ("small", {"sent": 5, "held": 3, "dropped": 2}),
            ("late", {"sent": 1, "expired": 1}),
            ("elsewhere", {"sent": 1, "held": 1}),
            ("ActiveMQ.DLQ", {"sent": 1, "held": 1}),
        ]:
            row = rows[name]
            self.assertEqual({key: row[key] for key in ("sent", *LEFT) if row[key]}, want, name)
            self.assertEqual(row["difference"], 0, name)

        all_queues = self.check_later()
        self.assertEqual((all_queues["sent"], all_queues["held"], all_queues["consumed"]), (18, 10, 5))
        self.assertEqual(all_queues["sent"], sum(all_queues[key] for key in LEFT))
        self.assertEqual((all_queues["difference"], all_queues["differing"]), (0, []))
        self.assertEqual(self.operator.metric("postroad_ledger_difference"), {"": 0.0})
        self.assertGreater(self.operator.metric("postroad_ledger_checks_total")[""], 1)

        # Counts go on after kill -9, and after a stop with a checkpoint; so does the equation.
        for end in (self.broker.kill, self.stop_broker):
            end()
            self.broker.start()
            after = self.rows()
            self.assertEqual({name: after[name] for name in rows if name}, {name: rows[name] for name in rows if name})
        send("orders", "one more")
        subprocess.run([*command, "--count", "6"], check=True, capture_output=True, timeout=60)
        row = self.rows()["orders"]
        self.assertEqual((row["sent"], row["held"], row["consumed"], row["difference"]), (11, 0, 11, 0))
        all_queues = self.check_later()
        self.assertEqual((all_queues["sent"], all_queues["difference"]), (19, 0))
        self.assertIn("all ", self.operator.ctl("ledger").stdout)


if __name__ == "__main__":
    unittest.main()
