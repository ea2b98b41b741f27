"""Reservations over a kill and over changes of the clock. KILL_ROUNDS: how often the broker is killed."""

import os
import re
import struct
import subprocess
import time
import unittest

import iron_mq
import requests

from broker import Broker

HERE = os.path.dirname(os.path.abspath(__file__))
HOUR_S = 3600


def client(broker):
    return iron_mq.IronMQ(host="127.0.0.1", port=broker.http, protocol="http", project_id="p1", token="any")


class Killed(unittest.TestCase):
    ROUNDS = int(os.environ.get("KILL_ROUNDS", 5))

    def test_a_reservation_outlives_a_kill_and_a_delete_is_final(self):
        broker = Broker().start()
        try:
            queue = client(broker).queue("q")
            queue.post("keep")
            queue.add_alerts({"type": "fixed", "direction": "asc", "trigger": 3, "queue": "alerts"})
            [kept] = queue.reserve(timeout=600)["messages"]
            for number in range(self.ROUNDS):
                queue.post(f"deleted {number}", f"reserved {number}")
                deleted, reserved = queue.reserve(max=2, timeout=600)["messages"]
                self.assertEqual(deleted["body"], f"deleted {number}")
                queue.delete(deleted["id"], deleted["reservation_id"])
                broker.kill()
                broker.start()
                self.assertEqual(queue.reserve(max=9)["messages"], [], "what is reserved stays so")
                self.assertEqual(queue.size(), 2, "what was deleted is gone, and nothing else")
                kept.update(queue.touch(kept["id"], kept["reservation_id"], timeout=600))
                queue.delete(reserved["id"], reserved["reservation_id"])
            queue.release(kept["id"], kept["reservation_id"])
            [again] = queue.reserve()["messages"]
            self.assertEqual(again["body"], "keep")
            self.assertEqual(queue.info()["alerts"][0]["trigger"], 3)
            client(broker).create_queue("alerts")
            alerts = client(broker).queue("alerts")
            alerts.clear()
            queue.post("two", "three")
            self.assertEqual(len(alerts.reserve(wait=20)["messages"]), 1, "alerts outlive a kill")
        finally:
            broker.stop()


class Clock(unittest.TestCase):
    """The broker's time of day is moved by a library that the system's loader puts in front of the C library."""

    def setUp(self):
        self.broker = Broker()
        self.addCleanup(self.broker.stop)
        library = os.path.join(self.broker.folder, "clock.so")
        source = os.path.join(HERE, "clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True, timeout=60)
        self.offset = os.path.join(self.broker.folder, "offset")
        self.set_clock(0)
        self.broker.environment = {"LD_PRELOAD": library, "CLOCK_OFFSET": self.offset}
        self.broker.start()

    def set_clock(self, offset_s):
        with open(self.offset, "r+b" if os.path.exists(self.offset) else "wb") as file:
            file.write(struct.pack("q", offset_s))

    def test_the_broker_reads_the_clock_that_is_moved(self):
        self.set_clock(-24 * HOUR_S)
        url = f"http://127.0.0.1:{self.broker.http}/"
        requests.get(url, params={"Action": "CreateQueue", "QueueName": "q"}, timeout=30).raise_for_status()
        asked = {"Action": "GetQueueAttributes", "QueueUrl": f"{url}000000000000/q", "AttributeName.1": "CreatedTimestamp"}
        text = requests.get(url, params=asked, timeout=30).text
        created_s = int(re.search(r"<Value>(\d+)</Value>", text)[1])
        self.assertAlmostEqual(created_s, time.time() - 24 * HOUR_S, delta=60)

    def test_reservations_hold_for_their_time_whichever_way_the_clock_goes(self):
        for offset_s in (2 * HOUR_S, -2 * HOUR_S):
            queue = client(self.broker).queue(f"set-{offset_s}")
            self.set_clock(0)
            queue.post("long", "short")
            [long], [short] = (queue.reserve(timeout=timeout)["messages"] for timeout in (600, 2))
            began = time.monotonic()
            self.set_clock(offset_s)
            self.assertEqual(queue.reserve(max=10)["messages"], [])
            [again] = queue.reserve(max=10, timeout=600, wait=20)["messages"]
            self.assertEqual((again["id"], long["body"]), (short["id"], "long"))
            self.assertGreater(time.monotonic() - began, 1.5)
            touched = queue.touch(long["id"], long["reservation_id"], timeout=600)
            queue.delete(long["id"], touched["reservation_id"])

    def test_a_reservation_over_a_restart_is_never_longer_than_it_was_given_for(self):
        queue = client(self.broker).queue("restarted")
        queue.post("m", "n")
        kept, short = (queue.reserve(timeout=timeout)["messages"][0] for timeout in (600, 3))
        self.broker.kill()
        self.set_clock(-24 * HOUR_S)
        self.broker.start()
        began = time.monotonic()
        [again] = queue.reserve(max=10, timeout=600, wait=20)["messages"]
        self.assertEqual(again["id"], short["id"])
        self.assertLess(time.monotonic() - began, 10, "a day back, and it waits 3 s")
        queue.delete(kept["id"], kept["reservation_id"])
        self.broker.kill()
        self.set_clock(24 * HOUR_S)
        self.broker.start()
        [once_more] = queue.reserve(max=10, wait=20)["messages"]
        self.assertEqual(once_more["id"], short["id"], "a day later its time is over; a delete is final")
