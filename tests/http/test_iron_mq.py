"""The unmodified Python client of IronMQ."""

import json
import subprocess
import threading
import time
import unittest

import iron_mq
import proton
import requests
from proton import symbol
from proton.utils import BlockingConnection

from broker import BINARY, Broker


class IronMq(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker().start()
        cls.mq = cls.client(cls.broker)

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    @staticmethod
    def client(broker, project="p1"):
        return iron_mq.IronMQ(
            host="127.0.0.1", port=broker.http, protocol="http", project_id=project, token="any"
        )

    def status(self, expected, call, *arguments, **options):
        with self.assertRaises(requests.exceptions.HTTPError) as raised:
            call(*arguments, **options)
        self.assertEqual(raised.exception.response.status_code, expected)
        return raised.exception.response.json()["msg"]

    def test_post_reserve_touch_release_delete(self):
        queue = self.mq.queue("basics")
        self.assertEqual(self.status(404, queue.info), "Queue not found")
        self.assertEqual(self.status(404, queue.reserve), "Queue not found")
        posted = queue.post("one", "two")
        self.assertEqual(posted["msg"], "Messages put on queue.")
        self.assertEqual(len(set(posted["ids"])), 2)
        self.assertEqual(queue.size(), 2)
        [first] = queue.reserve(max=1, timeout=60)["messages"]
        self.assertEqual((first["id"], first["body"], first["reserved_count"]), (posted["ids"][0], "one", 1))
        self.assertEqual([m["body"] for m in queue.peek(max=10)["messages"]], ["two"], "reserved is hidden")
        self.assertEqual(queue.size(), 2, "and counted")
        touched = queue.touch(first["id"], first["reservation_id"], timeout=90)
        self.assertEqual(touched["msg"], "Touched")
        self.assertNotEqual(touched["reservation_id"], first["reservation_id"], "a touch makes a new one")
        for call in (queue.touch, queue.release, queue.delete):
            self.assertIn("timed out", self.status(403, call, first["id"], first["reservation_id"]))
        released = queue.release(first["id"], touched["reservation_id"])
        self.assertEqual(released["msg"], "Released")
        [again] = queue.reserve(max=1)["messages"]
        self.assertEqual((again["body"], again["reserved_count"]), ("one", 2))
        msg = self.status(403, queue.delete, again["id"], first["reservation_id"])
        self.assertIn("Reservation has timed out", msg)
        self.assertIn("reservation_id", self.status(403, queue.delete, again["id"]))
        self.assertEqual(queue.delete(again["id"], again["reservation_id"])["msg"], "Deleted")
        self.assertEqual(self.status(404, queue.delete, again["id"], again["reservation_id"]), "Message not found")
        self.assertEqual(queue.get_message_by_id(posted["ids"][1])["body"], "two")
        self.assertEqual(queue.delete(posted["ids"][1])["msg"], "Deleted")
        self.assertEqual(queue.reserve()["messages"], [])

    def test_batches(self):
        queue = self.mq.queue("batches")
        ids = queue.post(*[f"message {number}" for number in range(100)])["ids"]
        self.assertEqual(len(set(ids)), 100)
        reserved = queue.reserve(max=60)
        self.assertEqual([m["body"] for m in reserved["messages"]], [f"message {n}" for n in range(60)])
        self.assertEqual(queue.delete_multiple(messages=reserved)["msg"], "Deleted")
        rest = queue.reserve(max=100, delete=True)["messages"]
        self.assertEqual(len(rest), 40)
        self.assertEqual(queue.size(), 0)
        queue.post("a", "b")
        reserved = queue.reserve(max=1)
        wrong = dict(reserved["messages"][0], reservation_id="1")
        self.status(403, queue.delete_multiple, messages={"messages": [wrong]})
        self.assertEqual(queue.clear()["msg"], "Cleared")
        self.assertEqual(queue.size(), 0)

    def test_reservations_and_delays_end(self):
        queue = self.mq.queue("times")
        queue.post({"body": "later", "delay": 2}, "now")
        self.assertEqual([m["body"] for m in queue.reserve(max=9, timeout=1)["messages"]], ["now"])
        self.assertEqual(queue.reserve(max=9)["messages"], [])
        began = time.monotonic()
        [back] = queue.reserve(max=1, wait=10, delete=True)["messages"]
        self.assertEqual((back["body"], back["reserved_count"]), ("now", 2))
        [later] = queue.reserve(max=1, wait=10, delete=True)["messages"]
        self.assertEqual(later["body"], "later")
        self.assertTrue(1.5 < time.monotonic() - began < 8)

    def test_long_poll(self):
        queue = self.mq.create_queue("polled")
        queue = self.mq.queue("polled")
        began = time.monotonic()
        self.assertEqual(queue.reserve(wait=1)["messages"], [])
        self.assertTrue(0.9 < time.monotonic() - began < 5)
        got = []
        waiting = threading.Thread(target=lambda: got.extend(queue.reserve(wait=20, delete=True)["messages"]))
        waiting.start()
        time.sleep(0.5)
        queue.post("ping")
        waiting.join(10)
        self.assertEqual([m["body"] for m in got], ["ping"])

    def test_queues(self):
        made = self.mq.create_queue("set", {"message_timeout": 7, "message_expiration": 1000})
        self.assertEqual((made["name"], made["message_timeout"], made["type"]), ("set", 7, "pull"))
        self.assertEqual(self.mq.update_queue("set", {"message_timeout": 9})["message_timeout"], 9)
        info = self.mq.queue("set").info()
        self.assertEqual((info["message_timeout"], info["message_expiration"], info["size"]), (9, 1000, 0))
        self.status(404, self.mq.update_queue, "none", {"message_timeout": 9})
        self.assertEqual(self.mq.queue("set").delete_queue()["msg"], "Deleted")
        self.status(404, self.mq.queue("set").info)
        self.assertIn("multicast", self.status(400, self.mq.create_queue, "other", {"type": "topic"}))

    def test_dead_letters(self):
        self.mq.create_queue("mortal", {"dead_letter": {"queue_name": "dead", "max_reservations": 2}})
        queue, dead = self.mq.queue("mortal"), self.mq.queue("dead")
        queue.post("m")
        for _ in range(2):
            [reserved] = queue.reserve()["messages"]
            queue.release(reserved["id"], reserved["reservation_id"])
        self.assertEqual(queue.reserve()["messages"], [])
        self.assertEqual([m["body"] for m in dead.reserve(wait=5)["messages"]], ["m"])

    def alerts_of(self, queue):
        alerts = queue.info().get("alerts", [])
        return [(alert["type"], alert["direction"], alert["trigger"], alert["queue"]) for alert in alerts]

    def next_alert(self, queue):
        """The next message of a queue that alerts are posted to."""
        [message] = queue.reserve(wait=20, delete=True)["messages"]
        return json.loads(message["body"])

    def test_alerts_are_set_and_removed(self):
        self.mq.create_queue("watched")
        queue = self.mq.queue("watched")
        asc = {"type": "fixed", "direction": "asc", "trigger": 3, "queue": "pager", "snooze": 0}
        desc = {"type": "progressive", "direction": "desc", "trigger": 10, "queue": "pager", "snooze": 60}
        self.assertEqual(queue.add_alerts(asc)["alerts"][0]["trigger"], 3)
        queue.add_alerts(desc)
        both = [("fixed", "asc", 3, "pager"), ("progressive", "desc", 10, "pager")]
        self.assertEqual(self.alerts_of(queue), both)
        self.assertEqual(len({alert["id"] for alert in queue.info()["alerts"]}), 2)
        self.mq.update_queue("watched", {"message_timeout": 90})
        self.assertEqual(self.alerts_of(queue), both, "other settings leave alerts alone")
        self.assertEqual(queue.remove_alerts({"id": queue.info()["alerts"][0]["id"]})["msg"], "Updated")
        self.assertEqual(self.alerts_of(queue), both[1:])
        self.assertEqual(self.status(404, queue.remove_alerts, {"id": "999"}), "Alert not found")
        queue.update_alerts(asc)
        self.assertEqual(self.alerts_of(queue), both[:1], "an update replaces them")
        queue.remove_alerts(asc)
        self.assertNotIn("alerts", queue.info())
        self.assertIn("fixed or progressive", self.status(400, queue.add_alerts, dict(asc, type="x")))
        self.assertIn("another queue", self.status(400, queue.add_alerts, dict(asc, queue="watched")))
        many = [dict(asc, trigger=number) for number in range(1, 22)]
        self.assertIn("at most 20", self.status(400, queue.add_alerts, *many))
        self.assertNotIn("alerts", queue.info(), "nothing was changed")

    def test_alerts_are_posted_when_the_size_passes_a_trigger(self):
        alerts = [
            {"type": "fixed", "direction": "asc", "trigger": 2, "queue": "rises"},
            {"type": "progressive", "direction": "desc", "trigger": 2, "queue": "falls"},
            {"type": "progressive", "direction": "asc", "trigger": 1, "queue": "seldom", "snooze": 3600},
        ]
        self.mq.create_queue("sized", {"alerts": alerts})
        for name in ("rises", "falls", "seldom"):
            self.mq.create_queue(name)
        queue = self.mq.queue("sized")
        queue.post("a", "b", "c")
        alert = self.next_alert(self.mq.queue("rises"))
        self.assertEqual(
            {name: alert[name] for name in ("source_queue", "queue_size", "alert_type", "alert_direction")},
            {"source_queue": "sized", "queue_size": 3, "alert_type": "fixed", "alert_direction": "asc"},
        )
        self.assertEqual((alert["alert_trigger"], alert["alert_id"]), (2, "1"))
        self.assertRegex(alert["created_at"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        # A consumer of another protocol takes them.
        url = f"tcp://127.0.0.1:{self.broker.openwire}"
        subprocess.run([BINARY, "receive", "p1.sized", "--url", url, "--count", "3"], check=True, timeout=30, stdout=subprocess.DEVNULL)
        self.assertLessEqual(self.next_alert(self.mq.queue("falls"))["queue_size"], 2)
        queue.post("d", "e")
        self.assertEqual(self.next_alert(self.mq.queue("rises"))["queue_size"], 2)
        self.assertEqual(self.next_alert(self.mq.queue("seldom"))["queue_size"], 3)
        self.assertEqual(self.mq.queue("seldom").size(), 0, "it snoozes")
        queue.clear()

    def test_messages_reach_jms_consumers(self):
        queue = self.mq.queue("shared")
        queue.post("from HTTP")
        url = f"tcp://127.0.0.1:{self.broker.openwire}"
        command = [BINARY, "receive", "p1.shared", "--url", url, "--count", "1"]
        received = subprocess.run(command, capture_output=True, text=True, timeout=30)
        self.assertIn("from HTTP", received.stdout, received.stderr)
        self.assertEqual(queue.size(), 0)
        subprocess.run([BINARY, "send", "p1.shared", "--body", "from JMS", "--url", url], check=True, timeout=30)
        self.assertEqual([m["body"] for m in queue.reserve(wait=5)["messages"]], ["from JMS"])
        default = self.client(self.broker, "default").queue("plain")
        default.post("x")
        received = subprocess.run(
            [BINARY, "receive", "plain", "--url", url, "--count", "1"], capture_output=True, text=True, timeout=30
        )
        self.assertIn("x", received.stdout, received.stderr)


class FromAmqp(unittest.TestCase):
    def test_maps_and_lists_of_amqp_are_json(self):
        broker = Broker().start()
        try:
            connection = BlockingConnection(f"127.0.0.1:{broker.amqp}", timeout=20)
            sender = connection.create_sender("queue://p1.values")
            kind = symbol("x-opt-jms-msg-type")
            jms_map, jms_stream = {kind: proton.byte(2)}, {kind: proton.byte(4)}
            for message in [
                proton.Message(body={"a": 1, "b": "größe", "c": b"\xff\x00"}, annotations=jms_map),
                proton.Message(body=[1, "two", None, True, 1.5], annotations=jms_stream),
                proton.Message(body={"nested": {"list": [1, 2]}}),
                proton.Message(),
            ]:
                sender.send(message)
            connection.close()
            queue = IronMq.client(broker).queue("values")
            bodies = [m["body"] for m in queue.reserve(max=10, wait=20, delete=True)["messages"]]
            self.assertEqual(
                [json.loads(body) for body in bodies[:3]],
                [{"a": 1, "b": "größe", "c": "/wA="}, [1, "two", None, True, 1.5], {"nested": {"list": [1, 2]}}],
            )
            self.assertIn(bodies[3], ("", "null"))
        finally:
            broker.stop()


class PassedOn(unittest.TestCase):
    CONFIG = """
[[composite]]
address = "queue://p1.all"
targets = [{ destination = "queue://p1.eu", selector = "JMSPriority = 4" }, { destination = "queue://p1.seen" }]
forward_only = true

[[composite]]
address = "queue://p1.kept"
targets = [{ destination = "queue://p1.copied" }]
forward_only = false

[[route]]
name = "moved"
from = "queue://p1.from"
to = [{ destination = "queue://p1.to" }]
"""

    @classmethod
    def setUpClass(cls):
        cls.broker = Broker(cls.CONFIG).start()
        cls.mq = IronMq.client(cls.broker)

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    def bodies(self, name):
        return [m["body"] for m in self.mq.queue(name).reserve(max=10, wait=20, delete=True)["messages"]]

    def test_posts_go_to_the_targets_of_composite_queues(self):
        ids = self.mq.queue("all").post("a", "b")["ids"]
        self.assertEqual(len(set(ids)), 2)
        self.assertEqual([self.bodies("eu"), self.bodies("seen")], [["a", "b"], ["a", "b"]])
        self.assertEqual(self.mq.queue("kept").post("c")["msg"], "Messages put on queue.")
        self.assertEqual([self.bodies("kept"), self.bodies("copied")], [["c"], ["c"]])

    def test_posts_pass_routes_with_their_delays(self):
        self.mq.queue("from").post({"body": "later", "delay": 2}, "now")
        self.assertEqual([self.bodies("to"), self.bodies("to")], [["now"], ["later"]])
        with self.assertRaises(requests.exceptions.HTTPError) as raised:
            self.mq.queue("from").reserve()
        self.assertEqual(raised.exception.response.status_code, 404, "nothing stays at the address")

    def test_other_queues_keep_their_ids(self):
        queue = self.mq.queue("plain")
        [first] = queue.post("x")["ids"]
        self.assertEqual(queue.get_message_by_id(first)["body"], "x")
