"""A cluster of three Postroads on the loopback interface: its pace, and the time without confirmed sends when its leader is killed."""

import subprocess
import time
import urllib.error
import urllib.request

from . import load, report
from .brokers import POLL_SECONDS, START_SECONDS_MAX, Postroad, PostroadAmqp
from .nodes import Nodes, amqp_failover, openwire_failover
from .process import memory_megabytes
from .rabbit import RabbitCluster

# Fields of a result, the columns of its table.
MEASURES = (
    "published_per_s", "delivered_per_s", "publish_p50_ms", "publish_p99_ms", "publish_p999_ms",
    "server_cpu_us_per_message", "peak_mb", "other_cores",
)  # fmt: skip
# The cluster that ours are measured by: field, title, aim as a multiple of the peer's, whether more is better.
PEER = RabbitCluster.name
AIMS = (
    ("published_per_s", "rate", 3, True),
    ("server_cpu_us_per_message", "processor time", 0.33, False),
    ("publish_p999_ms", "p99.9", 0.33, False),
)
FAILOVER = "time from kill -9 of the leader to the next confirmed send, ms"


class PostroadCluster(Nodes, Postroad):
    """Three nodes, each with a directory of its own. Clients of the load generator connect to the leader."""

    name = "postroad-cluster"
    port_offset = 1000
    # Away from the ports of clients with any offset.
    peer_port = 17700

    def offset(self, node):
        return self.port_offset + 10 * node

    def command_of(self, node):
        seeds = ",".join(f"127.0.0.1:{self.peer_port + number}" for number in self.numbers)
        return [
            self.binary, "serve", "--data", self.directory_of(node), "--port-offset", str(self.offset(node)),
            "--node", f"n{node}", "--cluster-listen", f"127.0.0.1:{self.peer_port + node}", "--cluster-seeds", seeds,
        ]  # fmt: skip

    def await_nodes(self):
        self.leader()

    def leader(self):
        """The node that serves clients, once one does and the others follow it."""
        end = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < end:
            said = {node: self.readiness(node) for node in self.nodes}
            leaders = [node for node, text in said.items() if text.startswith("ready")]
            if len(leaders) == 1 and all(node in leaders or f"follows n{leaders[0]}" in text for node, text in said.items()):
                return leaders[0]
            self.require_alive()
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

    def url_of(self, node):
        return f"tcp://127.0.0.1:{61616 + self.offset(node)}"

    @property
    def url(self):
        return self.url_of(self.leader())

    @property
    def failover_url(self):
        return openwire_failover(map(self.url_of, self.numbers))


class PostroadAmqpCluster(PostroadCluster):
    """The same for clients of AMQP 1.0."""

    name = "postroad-amqp-cluster"
    protocol = PostroadAmqp.protocol
    scheme = PostroadAmqp.scheme

    def url_of(self, node):
        return f"amqp://127.0.0.1:{5672 + self.offset(node)}"

    @property
    def failover_url(self):
        return amqp_failover(map(self.url_of, self.numbers))


def measure(cluster, workload, warmup, duration):
    """One run of the load generator against an empty cluster: processor time and memory are those of all nodes."""
    cluster.start()
    try:
        cluster.declare_for(workload)
        pids = cluster.pids()
        server = ",".join(map(str, pids))
        result = load.generate(cluster, server, workload, warmup, duration)
        result["start_ms"] = cluster.start_milliseconds
        result["peak_mb"] = sum(memory_megabytes(pid, "VmHWM") for pid in pids)
    finally:
        cluster.stop()
    return {"broker": cluster.name, "workload": workload.name, **result}


def outage(cluster):
    """Milliseconds without a confirmed send around kill -9 of the leader, to a client with `failover:`."""
    cluster.start()
    try:
        cluster.declare("bench.outage")
        command = load.java("Outage", cluster.failover_url, f"{cluster.queue_prefix}bench.outage")
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
    """One row for each cluster: the least, the median and the longest of all rounds. `outages` are by its title."""
    lines = [f"| {FAILOVER} | least | median | longest |", "|---|---:|---:|---:|"]
    for title, millis in outages.items():
        ranked = sorted(millis)
        values = (ranked[0], ranked[len(ranked) // 2], ranked[-1]) if ranked else ()
        lines.append(f"| {title} | " + (" | ".join(f"{value:,.0f}" for value in values) or "failed | |") + " |")
    return "\n".join(lines)


def markdown(results, brokers, outages, settings, note):
    """All tables; `brokers` are [(name, version)]."""
    names = [name for name, _ in brokers]
    parts = [report.heading(brokers, settings, note), ""]
    for workload in settings.workloads:
        parts += [table(results, names, workload), "", *report.unclean(results, workload.name)]
    aims = [table_of_aims(results, names, settings.workloads), ""] if PEER in names else []
    return "\n".join([*parts, *aims, failover_table(outages)]) + "\n"


def table_of_aims(results, names, workloads):
    """Each Postroad's measures as a multiple of the peer's; those that reach their aims stand out."""
    ours = [name for name in names if name in (PostroadCluster.name, PostroadAmqpCluster.name)]
    cells = [f"{title}: {'at least' if is_floor else 'at most'} {aim}" for _, title, aim, is_floor in AIMS]
    rows = [f"| {' | '.join([f'to {PEER}', *cells])} |", "|---" + "|---:" * len(AIMS) + "|"]
    for workload in workloads:
        for name in ours:
            cells = [cell_of_aim(results, name, workload.name, aim) for aim in AIMS]
            rows.append(f"| {' | '.join([f'{workload.name}, {name}', *cells])} |")
    return "\n".join(rows)


def cell_of_aim(results, name, workload, aim):
    field, _, bound, is_floor = aim
    ours, theirs = (report.median(results, each, workload, field) for each in (name, PEER))
    text = report.ratio(ours, theirs)
    if text == "-":
        return text
    is_reached = ours / theirs >= bound if is_floor else ours / theirs <= bound
    return f"**{text}**" if is_reached else text


def table(results, names, workload):
    rows = report.table_by_broker(results, names, workload.name, MEASURES)
    return "\n".join([f"**{workload.name}**: {workload.title}", "", *rows])
