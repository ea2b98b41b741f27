"""A deep backlog: filled, the broker killed, started again, the first message awaited, and all of it drained and checked."""

import json
import os
import random
import subprocess
import time

from . import report
from .load import CLASSES, HERE, IDLE_SECONDS
from .process import memory_megabytes

# Field, title, how to write it.
MEASURES = [
    ("filled_per_s", "filled/s", "{:,.0f}"),
    ("idle_mb", "memory idle MB", "{:.0f}"),
    ("full_mb", "memory with the backlog MB", "{:.0f}"),
    ("disk_bytes_per_message", "disk bytes/message", "{:,.0f}"),
    ("first_ms", "killed, started, first message ms", "{:,.0f}"),
    ("restarted_mb", "memory then MB", "{:.0f}"),
    ("drained_per_s", "drained/s", "{:,.0f}"),
    ("peak_mb", "memory peak MB", "{:.0f}"),
]
# What the report knows it by.
NAME = "depth"


class Client:
    """The load generator: told a step by a line, answers with a line of JSON."""

    def __init__(self, broker, messages, body_bytes, run_id=None):
        command = [
            "java", "-Xms512m", "-Xmx1500m", "-XX:+UseParallelGC",
            "-cp", os.pathsep.join([CLASSES, os.path.join(HERE, "target", "lib", "*")]), "postroad.bench.Depth",
            "--messages", str(messages), "--url", broker.url, "--name", f"{broker.queue_prefix}bench.depth",
            "--producers", "4", "--consumers", "4", "--body-bytes", str(body_bytes),
            "--run-id", str(run_id or random.randrange(1, 2**31)),
        ]  # fmt: skip
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def step(self, word):
        self.child.stdin.write(word + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        if not answer:
            raise RuntimeError(f"the load generator ended at {word!r} with status {self.child.wait()}")
        return json.loads(answer)

    def end(self):
        self.child.stdin.close()
        self.child.wait()


def disk_bytes(directory):
    """What the files of a directory take on the disk, holes left out."""
    files = (os.path.join(folder, name) for folder, _, names in os.walk(directory) for name in names)
    return sum(os.stat(file).st_blocks * 512 for file in files)


def measure(broker, messages, body_bytes):
    broker.start()
    client = None
    try:
        time.sleep(IDLE_SECONDS)
        result = {"broker": broker.name, "workload": NAME, "idle_mb": memory_megabytes(broker.process.server_pid())}
        client = Client(broker, messages, body_bytes)
        result.update(client.step("fill"))
        server = broker.process.server_pid()
        result["full_mb"] = memory_megabytes(server)
        peak = memory_megabytes(server, "VmHWM")
        broker.process.kill()
        result["disk_bytes_per_message"] = disk_bytes(broker.data) / messages
        began = time.time()
        broker.launch()
        first = client.step("first")
        result["first_ms"] = first["at_ms"] - began * 1000
        server = broker.process.server_pid()
        result["restarted_mb"] = memory_megabytes(server)
        result.update(client.step("drain"), verified=True)
        result["peak_mb"] = max(peak, memory_megabytes(server, "VmHWM"))
    finally:
        if client is not None:
            client.end()
        broker.stop()
    return result


def table(results):
    """Measures by broker; ratios to the first one."""
    return "\n".join(report.table(results, [r["broker"] for r in results], NAME, MEASURES))
