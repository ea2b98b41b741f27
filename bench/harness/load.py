"""The load generator: built once with Maven, run once per measurement."""

import glob
import json
import os
import random
import subprocess
import time

from .brokers import HERE, maven
from .process import memory_megabytes

IDLE_SECONDS = 3
CLASSES = os.path.join(HERE, "target", "classes")
# Time for connecting, draining and checking, on top of warm-up and window.
EXTRA_SECONDS_MAX = 400


def java(main, *arguments, heap=()):
    """The command that runs a class of the load generator."""
    return ["java", *heap, "-cp", os.pathsep.join([CLASSES, os.path.join(HERE, "target", "lib", "*")]), f"postroad.bench.{main}", *arguments]


def build():
    """Compiles the load generator unless it is newer than its sources."""
    sources = glob.glob(os.path.join(HERE, "src", "**", "*.java"), recursive=True) + [os.path.join(HERE, "pom.xml")]
    built = os.path.join(CLASSES, "postroad", "bench", "Load.class")
    if not os.path.isfile(built) or os.path.getmtime(built) < max(map(os.path.getmtime, sources)):
        maven("-f", os.path.join(HERE, "pom.xml"), "clean", "process-classes")


def measure(broker, workload, warmup, duration):
    """One run on a fresh broker: what the load generator says, with the server's memory and start-up time."""
    broker.start()
    try:
        server = broker.process.server_pid()
        time.sleep(IDLE_SECONDS)
        idle = memory_megabytes(server)
        result = generate(broker, server, workload, warmup, duration)
        broker.process.require_alive(broker.name)
        result["start_ms"] = broker.start_milliseconds
        result["idle_mb"] = idle
        result["after_mb"] = memory_megabytes(server)
        result["peak_mb"] = memory_megabytes(server, "VmHWM")
    finally:
        broker.stop()
    return {"broker": broker.name, "workload": workload.name, **result}


def generate(broker, server, workload, warmup, duration):
    command = java(
        "Load",
        "--url", broker.url, "--name", f"{broker.queue_prefix}bench.{workload.name}", *workload.options(),
        "--warmup", str(warmup), "--duration", str(duration),
        "--server-pid", str(server), "--ticks", str(os.sysconf("SC_CLK_TCK")),
        "--run-id", str(random.randrange(1, 2**31)),
        heap=["-Xms512m", "-Xmx1500m", "-XX:+UseParallelGC"],
    )  # fmt: skip
    limit = warmup + duration + EXTRA_SECONDS_MAX
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"the load generator failed:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return json.loads(lines[-1])
