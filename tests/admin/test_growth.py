"""Why a queue grows, as operators see it: `postroad ctl explain queue`, and its rates in the API."""

import subprocess
import threading
import time
import unittest

from broker import BINARY
from operator_tools import WithBroker, until

# A prefetch of these fits into the buffers of a socket: else the connection of a client that reads slowly is the slower part.
BODY_BYTES = 5_000


class Growth(WithBroker):
    config = ""

    def growth(self, queue):
        return self.operator.api("GET", f"queues/{queue}/explain")["growth"]

    def says(self, queue, code):
        """Waits for that verdict."""

        def found():
            growth = self.growth(queue)
            return growth if growth["code"] == code else None

        return until(f"{queue}: {code}, not {self.growth(queue)}", found)

    def consume(self, queue, *words, read_every=None):
        """A consumer that ends with the test; it acknowledges what is read of its output."""
        url = f"tcp://127.0.0.1:{self.broker.openwire}"
        command = [BINARY, "receive", queue, "--url", url, "--follow", *words]
        output = subprocess.DEVNULL if read_every is None else subprocess.PIPE
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait, 30)
        self.addCleanup(process.kill)

        def read_slowly():
            while process.stdout.read(BODY_BYTES + 1):
                time.sleep(read_every)

        if read_every is not None:
            threading.Thread(target=read_slowly, daemon=True).start()

    def produce(self, queue, seconds, every=0.1, body="x"):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.operator.send(queue, body)
            time.sleep(every)

    def test_no_consumer(self):
        self.produce("orders", 4)
        growth = self.says("orders", "no_consumer")
        self.assertTrue(growth["grows"])
        self.assertGreater(growth["came_per_second"], 0)
        self.assertEqual((growth["left_per_second"], growth["drain_seconds"]), (0, None))
        said = self.ctl("explain", "queue", "orders")
        self.assertRegex(said, r"Last minute: The queue grows: \S+ messages/s come in, 0 leave\. No consumer is attached\.")
        self.assertIn("To keep up: Attach a consumer to the queue.", said)

    def test_a_paused_queue(self):
        self.consume("orders")
        until("a consumer", lambda: self.operator.api("GET", "consumers")["items"])
        self.ctl("pause", "orders")
        self.produce("orders", 4)
        growth = self.says("orders", "paused")
        self.assertTrue(growth["grows"])
        self.assertIn("ctl resume orders", growth["remedy"])
        self.ctl("resume", "orders")
        until("empty", lambda: self.growth("orders")["messages"] == 0)
        self.assertEqual(self.says("orders", "steady")["remedy"], None)

    def test_a_selector_that_matches_nothing(self):
        self.consume("orders", "--selector", "colour = 'red'")
        until("a consumer", lambda: self.operator.api("GET", "consumers")["items"])
        self.produce("orders", 4)
        growth = self.says("orders", "selector")
        self.assertIn("The consumer nearest to its next message: its selector `colour = 'red'` does not match", growth["text"])
        self.assertIn("selector matches", growth["remedy"])

    def test_consumers_that_are_slower_than_producers(self):
        self.consume("slow", read_every=0.5)
        until("a consumer", lambda: self.operator.api("GET", "consumers")["items"])
        self.produce("slow", 10, every=0.05, body="x" * BODY_BYTES)
        growth = self.says("slow", "slow_consumers")
        self.assertRegex(growth["text"], r"the consumer takes \S+ messages/s, \S+ messages/s come in: \d+ would keep up\.")
        [consumer] = growth["consumers"]
        self.assertLess(consumer["settled_per_second"], growth["came_per_second"])
        self.assertGreater(consumer["held_ms"], 100)
        self.assertEqual(consumer["prefetch"], 100)
        said = self.ctl("explain", "queue", "slow")
        self.assertRegex(said, r"ID:\S+: acknowledges \S+ messages/s, each after \d+ ms, without credit \d+% of the time")

    def test_a_queue_that_becomes_shorter_says_when_it_is_empty(self):
        for _ in range(60):
            self.operator.send("backlog", "x" * BODY_BYTES)
        # The messages of the last minute came; they leave more slowly.
        self.consume("backlog", read_every=0.1)
        growth = until("none is left", lambda: (found := self.growth("backlog"))["messages"] == 0 and found)
        self.assertEqual((growth["code"], growth["grows"]), ("steady", False))
        self.assertGreater(growth["consumed_per_second"], 0)


if __name__ == "__main__":
    unittest.main()
