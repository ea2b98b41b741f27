"""Dead letters that were sent back by mistake: the redrive is listed, and undone as far as it can be."""

import json
import unittest

from operator_tools import Operator, WithBroker, broker_with_users, until

PROJECT = "/3/projects/default/queues"
OAUTH = {"Authorization": "OAuth t"}


class Redrives(WithBroker):
    def iron(self, method, path, body=None):
        status, text = self.operator.request(method, f"{PROJECT}/{path}", body, OAUTH)
        self.assertIn(status, (200, 201), text)
        return json.loads(text)

    def reserve(self, queue, count=1):
        return self.iron("POST", f"{queue}/reservations", {"n": count, "timeout": 600})["messages"]

    def die(self, queue, *texts):
        """Messages that become dead letters: their only delivery is given back."""
        dead_letter = {"queue_name": "ActiveMQ.DLQ", "max_reservations": 1}
        self.iron("PUT", queue, {"queue": {"dead_letter": dead_letter}})
        for text in texts:
            self.operator.send(queue, text)
        for message in self.reserve(queue, len(texts)):
            path = f"{queue}/messages/{message['id']}/release"
            self.iron("POST", path, {"reservation_id": message["reservation_id"]})
        # A further request finds that they were delivered as often as they may.
        self.assertEqual(self.reserve(queue, 10), [])

    def bodies(self, queue):
        items = self.operator.api("GET", f"queues/{queue}/messages")["items"]
        return [item["body"]["value"] for item in items]

    def dead(self):
        items = self.operator.api("GET", "queues/ActiveMQ.DLQ/messages")["items"]
        return {item["body"]["value"]: (item["origin"], item["dead_letter_cause"]) for item in items}

    def setUp(self):
        super().setUp()
        self.die("a", "a1", "a2", "a3")
        self.die("b", "b1", "b2")
        until("five dead letters", lambda: len(self.dead()) == 5)

    def test_what_still_waits_is_moved_back_with_origin_and_cause_and_the_rest_is_explained(self):
        before = self.dead()
        answer = self.operator.api("POST", "queues/ActiveMQ.DLQ/redrive", {})
        self.assertEqual((answer["moved"], answer["stayed"]), (5, 0))
        redrive = answer["redrive"]
        self.operator.send("a", "fresh")

        # One is consumed, one is in flight, and one dies once more.
        one, two = self.reserve("a", 2)
        self.iron("DELETE", f"a/messages/{one['id']}", {"reservation_id": one["reservation_id"]})
        lost = self.reserve("b")[0]
        self.iron("POST", f"b/messages/{lost['id']}/release", {"reservation_id": lost["reservation_id"]})
        held = self.reserve("b")[0]
        until("it died again", lambda: list(self.dead()) == [lost["body"]])

        # The record and the messages survive the broker.
        self.broker.kill()
        self.broker.start()
        row = self.operator.api("GET", "redrives?destination=ActiveMQ.DLQ")["items"][0]
        self.assertEqual((row["id"], row["state"], row["moved"]), (redrive, "done", 5))
        targets = {target["destination"]: target["messages"] for target in row["targets"]}
        self.assertEqual(targets, {"queue://a": 3, "queue://b": 2})

        planned = self.operator.api("POST", f"redrives/{redrive}/undo", {"dry_run": True})
        self.assertEqual(self.bodies("a")[-1], "fresh", "a dry run moves nothing")
        undone = self.operator.api("POST", f"redrives/{redrive}/undo")
        self.assertEqual(planned, undone)
        counts = [undone[name] for name in ("moved", "in_flight", "dead_again", "gone")]
        self.assertEqual(counts, [1, 2, 1, 1], "leases hold messages over the restart")
        self.assertEqual(self.bodies("a"), [two["body"], "fresh"])
        stay = [one["body"], two["body"], held["body"]]
        self.assertEqual(self.dead(), {body: of for body, of in before.items() if body not in stay})

        rows = self.operator.api("GET", "audit")["items"]
        details = {row["path"]: row["detail"] for row in rows}
        self.assertIn("moved to queue://ActiveMQ.DLQ", details[f"/api/v1/redrives/{redrive}/undo"])

    def test_messages_in_flight_stay_and_can_be_undone_later(self):
        redrive = self.operator.api("POST", "queues/ActiveMQ.DLQ/redrive", {})["redrive"]
        held = self.reserve("b")[0]
        said = self.ctl("redrives", "undo", str(redrive))
        self.assertIn("4 messages are dead letters again", said)
        self.assertIn("1 are in flight", said)
        self.iron("DELETE", f"b/messages/{held['id']}", {"reservation_id": held["reservation_id"]})
        answer = json.loads(self.ctl("redrives", "undo", str(redrive), "--json"))
        self.assertEqual((answer["moved"], answer["in_flight"], answer["gone"]), (0, 0, 1))
        self.assertEqual(self.rows("redrives")[0]["undone"], 4)

    def test_ctl_lists_redrives_and_a_rate_makes_one_of_them(self):
        said = self.operator.ctl("redrive", "ActiveMQ.DLQ", "--rate", "20", "--max", "4")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("ctl redrives undo", said.stderr)
        rows = self.rows("redrives", "ActiveMQ.DLQ")
        self.assertEqual([(row["moved"], row["state"]) for row in rows], [(4, "done")])
        self.assertIn("queue://ActiveMQ.DLQ", self.ctl("redrives"))
        planned = self.ctl("redrives", "undo", str(rows[0]["id"]), "--dry-run")
        self.assertIn("4 messages would be", planned)
        self.assertEqual(len(self.dead()), 1)
        said = self.ctl("redrives", "undo", "17", code=1)
        self.assertIn("there is no redrive 17", said)
        status, text = self.operator.request("POST", "/api/v1/redrives/x/undo")
        self.assertEqual((status, "is not the number" in text), (400, True), text)

    def test_the_metric_and_the_ledger_agree(self):
        redrive = self.operator.api("POST", "queues/ActiveMQ.DLQ/redrive", {})["redrive"]
        self.operator.api("POST", f"redrives/{redrive}/undo")
        self.assertEqual(sum(self.operator.metric("postroad_redriven_total").values()), 5)
        self.assertEqual(self.operator.api("GET", "ledger")["difference"], 0)


PERMISSIONS = """
[security]
users = "{users}"

[[security.permission]]
users = ["ann"]
destinations = ["queue://orders.>"]
actions = ["read", "write", "create", "manage"]

[[security.permission]]
users = ["root"]
destinations = ["queue://>", "topic://>"]
actions = ["read", "write", "create", "manage", "admin"]
"""


class OfUsers(unittest.TestCase):
    def test_only_users_who_manage_the_dead_letters_see_and_undo_a_redrive(self):
        broker = broker_with_users(PERMISSIONS, ann="secret-a", root="secret-r")
        self.addCleanup(broker.stop)
        root, ann = Operator(broker, "root", "secret-r"), Operator(broker, "ann", "secret-a")
        root.send("dead", "x")
        redrive = root.api("POST", "queues/dead/redrive", {"to": "orders.a"})["redrive"]
        self.assertEqual(ann.api("GET", "redrives")["items"], [])
        for method, path in (("GET", ""), ("POST", "/undo")):
            self.assertEqual(ann.request(method, f"/api/v1/redrives/{redrive}{path}")[0], 403)
        self.assertEqual([row["user"] for row in root.api("GET", "redrives")["items"]], ["root"])
        self.assertEqual(root.api("POST", f"redrives/{redrive}/undo")["moved"], 1)
        # One without an origin is as it was before.
        self.assertEqual(len(root.api("GET", "queues/dead/messages")["items"]), 1)


if __name__ == "__main__":
    unittest.main()
