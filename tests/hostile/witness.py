"""An honest client beside the hostile ones: it sends and receives all the time, and tells how long that takes."""

import threading
import time

import openwire

# A round trip is a send, a delivery and an acknowledgement, each awaited. Shared machines have long pauses.
ROUND_TRIP_MAX_S = 3.0


class Witness(threading.Thread):
    """Two connections (which lie on different threads of the broker), one queue; every other message is durable."""

    def __init__(self, port, name="witness"):
        super().__init__(daemon=True)
        self.queue = openwire.queue(name)
        self.sender = openwire.Client(port, f"{name}-sender")
        self.receiver = openwire.Client(port, f"{name}-receiver")
        self.receiver.consume(self.queue)
        self.rounds, self.longest, self.failure, self.done = 0, 0.0, None, False
        self.begun = time.monotonic()

    def run(self):
        try:
            while not self.done:
                self.begun = time.monotonic()
                text = f"round {self.rounds}"
                self.sender.send(self.queue, text, persistent=self.rounds % 2 == 0, seconds=30)
                delivery = self.receiver.take(30)
                assert openwire.body(delivery).decode() == text, f"got {openwire.body(delivery)!r}, not {text!r}"
                assert not self.receiver.inbox, "a message came twice"
                self.receiver.answer(self.receiver.ack(delivery), 30)
                self.rounds += 1
                self.longest = max(self.longest, time.monotonic() - self.begun)
                time.sleep(0.002)
        except Exception as error:
            self.failure = error

    def check(self, since):
        """It went on since `since` rounds, each in time; forgets the longest round."""
        until = time.monotonic() + ROUND_TRIP_MAX_S
        while self.failure is None and self.rounds < since + 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert self.failure is None, f"the other client: {type(self.failure).__name__}: {self.failure}"
        waiting = time.monotonic() - self.begun
        assert self.rounds >= since + 2, f"the other client is stuck for {waiting:.1f} s"
        longest, self.longest = self.longest, 0.0
        assert longest < ROUND_TRIP_MAX_S, f"the other client waited {longest:.1f} s for one round trip"
        return longest

    def stop(self):
        self.done = True
        self.join(2)
        self.sender.close()
        self.receiver.close()
