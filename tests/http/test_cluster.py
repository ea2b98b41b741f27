"""Three nodes that replicate: reservations, alerts and push queues outlive the node that leads."""

import json
import os
import time
import unittest

import iron_mq
import requests

from broker import Broker
from receiver import Receiver

NODES = 3


class Cluster(unittest.TestCase):
    def setUp(self):
        self.nodes = [Broker('[push]\nallow = ["127.0.0.1"]\n') for _ in range(NODES)]
        seeds = ",".join(f"127.0.0.1:{20_000 + node.offset}" for node in self.nodes)
        for number, node in enumerate(self.nodes):
            peers = f"127.0.0.1:{20_000 + node.offset}"
            node.options = ["--node", f"n{number}", "--cluster-listen", peers, "--cluster-seeds", seeds]
            node.spawn()
            self.addCleanup(node.stop)
        for node in self.nodes:
            node.wait_until_ready()

    def leader(self):
        """The node that answers requests of queues, once there is one."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            for node in filter(Broker.is_alive, self.nodes):
                url = f"http://127.0.0.1:{node.http}/3/projects/p1/queues"
                try:
                    if requests.get(url, timeout=5, allow_redirects=False).status_code == 200:
                        return node
                except requests.RequestException:
                    pass
            time.sleep(0.2)
        raise AssertionError("no node leads")

    def client(self, node):
        return iron_mq.IronMQ(host="127.0.0.1", port=node.http, protocol="http", project_id="p1", token="any")

    def test_a_node_without_a_leader_explains_why_nothing_is_delivered(self):
        self.leader()
        last, *others = self.nodes
        for node in others:
            node.kill()
        until = time.monotonic() + 60
        answer = None
        while time.monotonic() < until:
            url = f"http://127.0.0.1:{last.http}/api/v1/queues/orders/explain"
            try:
                answer = requests.get(url, timeout=5, allow_redirects=False)
                if answer.status_code == 200 and answer.json()["queue_verdicts"][0]["code"] == "no_leader":
                    break
            except requests.RequestException:
                pass
            time.sleep(0.2)
        [verdict] = answer.json()["queue_verdicts"]
        self.assertIn("has no leader", verdict["text"])
        self.assertIn("majority", answer.json()["remedy"])

    def test_reservations_alerts_and_pushes_outlive_the_leader(self):
        receiver = Receiver()
        self.addCleanup(receiver.close)
        first = self.leader()
        mq = self.client(first)
        alert = {"type": "fixed", "direction": "asc", "trigger": 4, "queue": "alerts"}
        mq.create_queue("q", {"alerts": [alert]})
        mq.create_queue("alerts")
        push = {"subscribers": [{"name": "s", "url": receiver.url()}]}
        mq.create_queue("pushed", {"type": "unicast", "push": push})
        queue = mq.queue("q")
        queue.post("kept", "deleted", "free")
        kept, deleted = queue.reserve(max=2, timeout=600)["messages"]
        queue.delete(deleted["id"], deleted["reservation_id"])
        follower = next(node for node in self.nodes if node is not first)
        self.assertEqual(self.client(follower).queue("q").size(), 2, "a follower names the leader")
        first.kill()
        mq = self.client(self.leader())
        queue = mq.queue("q")
        self.assertEqual([m["body"] for m in queue.reserve(max=9, timeout=600)["messages"]], ["free"])
        touched = queue.touch(kept["id"], kept["reservation_id"], timeout=600)
        queue.post("third", "fourth")
        [posted] = mq.queue("alerts").reserve(wait=20)["messages"]
        self.assertEqual(json.loads(posted["body"])["source_queue"], "q")
        mq.queue("pushed").post("after")
        self.assertEqual([request.body for request in receiver.wait_for(1)], ["after"])
        self.assertEqual(queue.delete(kept["id"], touched["reservation_id"])["msg"], "Deleted")
