"""Processor time of a broker for each message, by the share of messages that it traces."""

import os
import shutil
import statistics
import subprocess
import tempfile
import urllib.request

from .own_ports import OwnPostroad

# Shares of the messages without a context that are traced; None is no tracing at all.
SHARES = [None, 0.01, 1.0]
# As many as the broker permits: its default would end what is measured at the first hundred of a second.
PER_SECOND = 10_000
WINDOW = 64
WARM_UP_MESSAGES = 5_000


class Traced(OwnPostroad):
    """A broker that traces this share."""

    def __init__(self, stack, binary, share):
        self.binary, self.share, self.micros = binary, share, []
        folder = tempfile.mkdtemp(prefix="postroad-tracing.")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        super().__init__(binary, folder, configuration(share))
        stack.callback(self.stop)

    def client(self, *words):
        command = [self.binary, *words, "--url", self.url]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{words[0]} ended with status {done.returncode}: {done.stderr}")

    def turn(self, messages, body_bytes, counts=True):
        before = processor_seconds(self.process.pid)
        count = str(messages)
        self.client("send", "bench.tracing", "--body", "x" * body_bytes, "--count", count, "--window", str(WINDOW))
        self.client("receive", "bench.tracing", "--count", count)
        if counts:
            self.micros.append((processor_seconds(self.process.pid) - before) * 1e6 / messages)

    def traced(self):
        """Messages that were traced."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/metrics", timeout=30) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("postroad_traces_total "):
                    return int(float(line.split(" ")[1]))
        return 0


def configuration(share):
    if share is None:
        return "[runtime.tracing]\nenabled = false\n"
    return f"[runtime.tracing]\nenabled = true\nsample = {share}\nmessages_per_second = {PER_SECOND}\n"


def processor_seconds(pid):
    """Processor time of all threads of a process so far, to the nanosecond."""
    nanoseconds = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as schedule:
            nanoseconds += int(schedule.read().split()[0])
    return nanoseconds / 1e9


def warm_up(brokers, settings):
    for broker in brokers:
        broker.turn(WARM_UP_MESSAGES, settings.body_bytes, counts=False)


def table(brokers):
    first = statistics.median(brokers[0].micros)
    rows = ["| traced | µs of processor for each message | range | ratio to off | messages traced |", "|---|---|---|---|---|"]
    for broker in brokers:
        median, name = statistics.median(broker.micros), title(broker.share)
        spread = f"{min(broker.micros):.1f} to {max(broker.micros):.1f}"
        rows.append(f"| {name} | {median:.1f} | {spread} | {median / first:.2f} | {broker.traced():,} |")
    return "\n".join(rows)


def title(share):
    return "off" if share is None else f"{share:.0%}"
