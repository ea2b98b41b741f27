"""Bodies of 1 MiB and more, which the broker keeps in pieces: over HTTP they come whole, from and to clients of other protocols."""

import base64
import os
import subprocess
import threading
import unittest

import iron_mq
import proton
import requests
from proton.utils import BlockingConnection

from broker import Broker
from receiver import Receiver

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = "größe €uro 😀 " * 60_000
BINARY_BODY = bytes(range(256)) * (5 << 10)


class Large(unittest.TestCase):
    def setUp(self):
        self.broker = Broker('[push]\nallow = ["127.0.0.1"]\n').start()
        self.addCleanup(self.broker.stop)
        self.mq = iron_mq.IronMQ(host="127.0.0.1", port=self.broker.http, protocol="http", project_id="p1", token="any")

    def restart(self):
        self.broker.kill()
        self.broker.start()

    def send_jms(self, queue, kind, *bodies):
        files = []
        for number, body in enumerate(bodies):
            files.append(os.path.join(self.broker.folder, f"body{number}"))
            with open(files[-1], "wb") as file:
                file.write(body)
        command = ["java", "-cp", os.path.join(HERE, "installed", "java", "*"), os.path.join(HERE, "clients", "JmsSend.java")]
        url = f"tcp://127.0.0.1:{self.broker.openwire}"
        sent = subprocess.run([*command, url, queue, kind, *files], capture_output=True, text=True, timeout=120)
        self.assertEqual(sent.returncode, 0, sent.stdout + sent.stderr)

    def send_amqp(self, queue, *bodies):
        connection = BlockingConnection(f"127.0.0.1:{self.broker.amqp}", timeout=60)
        sender = connection.create_sender(f"queue://{queue}")
        for body in bodies:
            sender.send(proton.Message(body=body, durable=True))
        connection.close()

    def test_large_bodies_of_jms_are_peeked_reserved_and_deleted_over_kills(self):
        self.send_jms("p1.q", "text", TEXT.encode(), b"small")
        self.send_jms("p1.q", "bytes", BINARY_BODY)
        queue = self.mq.queue("q")
        bodies = [TEXT, "small", base64.b64encode(BINARY_BODY).decode()]
        self.assertEqual([m["body"] for m in queue.peek(max=10)["messages"]], bodies)
        reserved = queue.reserve(max=10, timeout=600)["messages"]
        self.assertEqual([m["body"] for m in reserved], bodies)
        self.assertEqual(queue.get_message_by_id(reserved[0]["id"])["body"], TEXT)
        self.restart()
        self.assertEqual(queue.reserve(max=10)["messages"], [], "they are reserved")
        queue.delete(reserved[1]["id"], reserved[1]["reservation_id"])
        queue.release(reserved[0]["id"], reserved[0]["reservation_id"])
        [again] = queue.reserve(max=10, timeout=600)["messages"]
        self.assertEqual((again["body"], again["reserved_count"]), (TEXT, 2))
        queue.delete(again["id"], again["reservation_id"])
        self.restart()
        queue.release(reserved[2]["id"], reserved[2]["reservation_id"])
        self.assertEqual([m["body"] for m in queue.reserve(max=10, delete=True)["messages"]], bodies[2:])
        self.assertEqual(queue.size(), 0)

    def test_a_reserve_ends_at_4_mib(self):
        two, most = "x" * (2 << 20), "y" * (16 << 20)
        self.send_amqp("p1.sizes", two, two, two, "last", most)
        lengths = []
        for _ in range(3):
            reserved = self.mq.queue("sizes").reserve(max=100, delete=True)["messages"]
            lengths.append([len(message["body"]) for message in reserved])
        self.assertEqual(lengths, [[2 << 20, 2 << 20], [2 << 20, 4, 16 << 20], []])

    def test_a_body_over_16_mib_is_passed_over_and_stays(self):
        self.send_amqp("p1.beyond", b"z" * ((16 << 20) + 1))
        queue = self.mq.queue("beyond")
        self.assertEqual(queue.reserve(max=10, timeout=1)["messages"], [])
        connection = BlockingConnection(f"127.0.0.1:{self.broker.amqp}", timeout=100)
        receiver = connection.create_receiver("queue://p1.beyond", credit=1)
        self.assertEqual(len(receiver.receive(timeout=90).body), (16 << 20) + 1)
        receiver.release(delivered=False)
        connection.close()
        self.assertEqual(queue.reserve(max=10, delete=True, wait=5)["messages"], [])
        self.restart()
        self.assertEqual(queue.size(), 1)

    def test_a_large_body_is_posted_and_reaches_other_protocols(self):
        body = "ä" * (2 << 20)
        self.mq.queue("posted").post(body)
        connection = BlockingConnection(f"127.0.0.1:{self.broker.amqp}", timeout=60)
        self.assertEqual(connection.create_receiver("queue://p1.posted").receive(timeout=60).body, body)
        connection.close()

    def test_large_bodies_are_pushed_again_after_a_failure(self):
        answers = iter([500, 200, 200])
        receiver = Receiver(lambda request: next(answers))
        self.addCleanup(receiver.close)
        subscribers = [{"name": "s", "url": receiver.url()}]
        self.mq.create_queue("pushed", {"type": "multicast", "push": {"subscribers": subscribers, "retries_delay": 1}})
        self.send_amqp("p1.pushed", TEXT)
        self.assertEqual([request.body for request in receiver.wait_for(2)], [TEXT, TEXT])

    def test_many_large_answers_at_once_have_a_bound(self):
        self.send_amqp("p1.many", "x" * (8 << 20))
        url = f"http://127.0.0.1:{self.broker.http}/3/projects/p1/queues/many/messages"
        lengths = []

        def peek():
            answer = requests.get(url, timeout=120)
            while answer.status_code == 503:
                answer = requests.get(url, timeout=120)
            lengths.append(len(answer.json()["messages"][0]["body"]))

        peeks = [threading.Thread(target=peek) for _ in range(16)]
        for one in peeks:
            one.start()
        for one in peeks:
            one.join(180)
        self.assertEqual(lengths, [8 << 20] * 16)
        with open(f"/proc/{self.broker.process.pid}/status") as status:
            peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        self.assertLess(peak, 16 * 8 * 2 << 10, "KiB: not all of them were in memory at the same time")
