"""Sends to a composite destination that nobody reads, by Postroad's own load generator, which speaks OpenWire to any broker."""

import json
import subprocess
import time

from . import report
from .depth import disk_bytes
from .load import IDLE_SECONDS
from .process import memory_megabytes

# Field, title, how to write it.
MEASURES = [
    ("published", "published", "{:,.0f}"),
    ("published_per_s", "published/s", "{:,.0f}"),
    ("first_third_per_s", "in the first third", "{:,.0f}"),
    ("last_third_per_s", "in the last third", "{:,.0f}"),
    ("per_core_second", "for each second of one core", "{:,.0f}"),
    ("server_cpu_us", "server CPU µs/message", "{:.1f}"),
    ("idle_mb", "memory idle MB", "{:.0f}"),
    ("half_mb", "memory half-way MB", "{:.0f}"),
    ("after_mb", "memory at the end MB", "{:.0f}"),
    ("peak_mb", "memory peak MB", "{:.0f}"),
    ("disk_bytes_per_message", "disk bytes/message", "{:,.0f}"),
]
# What the report knows it by.
NAME = "composite"


def measure(broker, load, settings, seconds_max):
    """`load` is the `postroad-bench` binary, which publishes; without `seconds_max` all messages are sent."""
    broker.start()
    try:
        time.sleep(IDLE_SECONDS)
        server = broker.process.server_pid()
        idle_mb = memory_megabytes(server)
        command = [
            load, "backlog", "--json", "--url", broker.url, "--server-pid", str(server),
            "--messages", str(settings.messages), "--targets", str(settings.targets),
            "--body-bytes", str(settings.body_bytes),
        ]  # fmt: skip
        if seconds_max is not None:
            command += ["--seconds-max", str(seconds_max)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{broker.name}: the load generator ended with status {done.returncode}")
        said = json.loads(done.stdout)
        return {
            "broker": broker.name,
            "workload": NAME,
            "idle_mb": idle_mb,
            "after_mb": memory_megabytes(server),
            "peak_mb": memory_megabytes(server, "VmHWM"),
            "disk_bytes_per_message": disk_bytes(broker.data) / said["published"],
            **summary(said),
        }
    finally:
        broker.stop()


def summary(said):
    """Of what the load generator says: the whole, and whether the end is like the beginning."""
    looks = said["looks"]
    third, half = max(len(looks) // 3, 1), looks[len(looks) // 2]
    return {
        "published": said["published"],
        "published_per_s": said["published_per_second"],
        "first_third_per_s": pace({"seconds": 0, "published": 0}, looks[third - 1]),
        "last_third_per_s": pace(looks[-third - 1], looks[-1]) if third < len(looks) else None,
        "per_core_second": 1e6 / said["server_cpu_us"],
        "server_cpu_us": said["server_cpu_us"],
        "half_mb": half["resident_mib"],
    }


def pace(earlier, later):
    return (later["published"] - earlier["published"]) / (later["seconds"] - earlier["seconds"])


def table(results):
    """Measures by broker; ratios to the first one. Nothing is read, so nothing is checked here: `bench/run` does that."""
    return "\n".join(report.table(results, [r["broker"] for r in results], NAME, MEASURES)[:-1])
