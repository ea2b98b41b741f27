"""A cluster of three Postroads on the loopback interface: its pace, and the time without confirmed sends when its leader is killed."""

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request

from . import load, report
from .brokers import POLL_SECONDS, START_SECONDS_MAX, Postroad, PostroadAmqp
from .load import CLASSES, HERE, IDLE_SECONDS
from .process import Process, memory_megabytes

NODES = (1, 2, 3)
FAILOVER = "time from kill -9 of the leader to the next confirmed send, ms"


class PostroadCluster(Postroad):
    """Three nodes, each with a directory of its own. Clients of the load generator connect to the leader."""

    name = "postroad-cluster"
    port_offset = 1000
    # Away from the ports of clients with any offset.
    peer_port = 17700

    def __init__(self, cache, scratch):
        super().__init__(cache, scratch)
        self.nodes = {}

    def offset(self, node):
        return self.port_offset + 10 * node

    def command_of(self, node):
        seeds = ",".join(f"127.0.0.1:{self.peer_port + number}" for number in NODES)
        return [
            self.binary, "serve", "--data", os.path.join(self.data, f"n{node}"), "--port-offset", str(self.offset(node)),
            "--node", f"n{node}", "--cluster-listen", f"127.0.0.1:{self.peer_port + node}", "--cluster-seeds", seeds,
        ]  # fmt: skip

    def launch(self):
        begun = time.monotonic()
        logs = os.path.dirname(self.data)
        self.nodes = {
            node: Process(self.command_of(node), self.data, os.path.join(logs, f"{self.name}-n{node}.log")) for node in NODES
        }
        try:
            self.leader()
        except BaseException:
            self.stop()
            raise
        self.start_milliseconds = (time.monotonic() - begun) * 1000

    def leader(self):
        """The node that serves clients, once one does and the others follow it."""
        end = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < end:
            said = {node: self.readiness(node) for node in self.nodes}
            leaders = [node for node, text in said.items() if text.startswith("ready")]
            if len(leaders) == 1 and all(node in leaders or f"follows n{leaders[0]}" in text for node, text in said.items()):
                return leaders[0]
            for node, process in self.nodes.items():
                process.require_alive(f"{self.name} n{node}")
            time.sleep(POLL_SECONDS)
        raise RuntimeError(f"no leader within {START_SECONDS_MAX} s")

    def readiness(self, node):
        url = f"http://127.0.0.1:{8161 + self.offset(node)}/health/ready"
        try:
            with urllib.request.urlopen(url, timeout=1) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as refusal:
            return refusal.read().decode()
        except OSError:
            return ""

    def declare(self, name):
        """Queues are there when they are used."""

    def declare_for(self, workload):
        """The same."""

    def url_of(self, node):
        return f"tcp://127.0.0.1:{61616 + self.offset(node)}"

    @property
    def url(self):
        return self.url_of(self.leader())

    @property
    def failover_url(self):
        return f"failover:({','.join(map(self.url_of, NODES))})?maxReconnectDelay=100&timeout=60000"

    def pids(self):
        return [process.server_pid() for process in self.nodes.values()]

    def stop(self):
        for process in self.nodes.values():
            process.stop()
        self.nodes = {}
        shutil.rmtree(self.data, ignore_errors=True)


class PostroadAmqpCluster(PostroadCluster):
    """The same for clients of AMQP 1.0."""

    name = "postroad-amqp-cluster"
    protocol = PostroadAmqp.protocol
    scheme = PostroadAmqp.scheme

    def url_of(self, node):
        return f"amqp://127.0.0.1:{5672 + self.offset(node)}"

    @property
    def failover_url(self):
        nodes = ",".join(map(self.url_of, NODES))
        return f"failover:({nodes})?failover.reconnectDelay=10&failover.maxReconnectDelay=100"


def measure(cluster, workload, settings):
    """One run of the load generator against an empty cluster: processor time and memory are those of all nodes."""
    cluster.start()
    try:
        cluster.declare_for(workload)
        time.sleep(IDLE_SECONDS)
        pids = cluster.pids()
        idle = sum(map(memory_megabytes, pids))
        server = ",".join(map(str, pids))
        result = load.generate(cluster, server, workload, settings.warmup, settings.duration)
        result["start_ms"] = cluster.start_milliseconds
        result["idle_mb"] = idle
        result["after_mb"] = sum(map(memory_megabytes, pids))
        result["peak_mb"] = sum(memory_megabytes(pid, "VmHWM") for pid in pids)
    finally:
        cluster.stop()
    return {"broker": cluster.name, "workload": workload.name, **result}


def outage(cluster):
    """Milliseconds without a confirmed send around kill -9 of the leader, to a client with `failover:`."""
    cluster.start()
    try:
        cluster.declare("bench.outage")
        command = [
            "java", "-cp", os.pathsep.join([CLASSES, os.path.join(HERE, "target", "lib", "*")]), "postroad.bench.Outage",
            cluster.failover_url, f"{cluster.queue_prefix}bench.outage",
        ]  # fmt: skip
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            try:
                if client.stdout.readline().strip() != "sending":
                    raise RuntimeError("the client of the failover test sends nothing")
                leader = cluster.leader()
                cluster.nodes.pop(leader).kill()
                client.stdin.write("\n")
                client.stdin.flush()
                return float(client.stdout.readline())
            finally:
                client.kill()
    finally:
        cluster.stop()


def failover_table(outages):
    """One row for each cluster: the least, the median and the longest of all rounds. `outages` are by its name."""
    lines = [f"| {FAILOVER} | least | median | longest |", "|---|---|---|---|"]
    for name, millis in outages.items():
        ranked = sorted(millis)
        values = (ranked[0], ranked[len(ranked) // 2], ranked[-1])
        lines.append(f"| {name}, {len(NODES)} nodes | " + " | ".join(f"{value:,.0f}" for value in values) + " |")
    return "\n".join(lines)


def table(results, names, workload):
    return "\n".join([f"**{workload.name}**: {workload.title}", "", *report.table(results, names, workload.name)])
