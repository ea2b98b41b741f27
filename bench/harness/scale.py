"""How many nodes a rate needs: measured costs of one message, multiplied. docs/scale.md explains the model."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """What one durable message costs that is sent, stored, delivered and acknowledged."""

    # Processor time on the node that serves it: per message, and per byte of its body.
    message_us: float
    byte_us: float
    # Processor time of each further replica, as a share of that.
    replica_share: float
    # Bytes beside the body: on the network and in the journal of each replica, its acknowledgement included.
    wire_bytes: int
    record_bytes: int
    # Memory of an idle connection.
    connection_bytes: int

    @staticmethod
    def fitted(small, large, cluster_ratio, replicas=3, **others):
        """From two measurements of one node, (bytes, µs), and the processor time of all nodes of a cluster as a multiple of it."""
        (small_bytes, small_us), (large_bytes, large_us) = small, large
        byte_us = (large_us - small_us) / (large_bytes - small_bytes)
        message_us = small_us - byte_us * small_bytes
        return Costs(message_us, byte_us, (cluster_ratio - 1) / (replicas - 1), **others)

    def serving_us(self, body_bytes):
        return self.message_us + self.byte_us * body_bytes

    def total_us(self, body_bytes, replicas):
        return self.serving_us(body_bytes) * (1 + self.replica_share * (replicas - 1))


@dataclass(frozen=True)
class Machine:
    """One node, and how much of it may be used: the rest is for peaks, and for the part of a node that fails."""

    cores: int = 16
    usable: float = 0.7
    disk_megabytes: float = 1000
    network_gigabits: float = 10
    memory_gigabytes: float = 64


@dataclass(frozen=True)
class Demand:
    rate: float
    body_bytes: int = 128
    replicas: int = 3
    connections: int = 0


# docs/benchmarks.md, small-20-20 and queue-20-20; docs/scale.md says where the others come from.
MEASURED = Costs.fitted(
    (128, 31.7), (1024, 37.4), 2.87, wire_bytes=300, record_bytes=160, connection_bytes=9_654
)  # fmt: skip


def nodes_by_resource(demand, costs=MEASURED, machine=None):
    """How many nodes each resource asks for, as fractions."""
    machine = machine or Machine()
    copies = demand.rate * demand.replicas
    processor_seconds = demand.rate * costs.total_us(demand.body_bytes, demand.replicas) / 1e6
    # The body reaches the serving node once, each further replica once, and the consumer once. A node sends as much as it receives.
    network_bytes = copies * (demand.body_bytes + costs.wire_bytes)
    journal_bytes = copies * (demand.body_bytes + costs.record_bytes)
    return {
        "processors": processor_seconds / (machine.cores * machine.usable),
        "network": network_bytes * 8 / (machine.network_gigabits * 1e9 * machine.usable),
        "disk": journal_bytes / (machine.disk_megabytes * 1e6 * machine.usable),
        "memory": demand.connections * costs.connection_bytes / (machine.memory_gigabytes * 1e9 * machine.usable),
    }


def nodes(demand, costs=MEASURED, machine=None):
    """The least number of nodes, and the resource that asks for it. One more lets a node fail without loss of rate."""
    needed = nodes_by_resource(demand, costs, machine)
    limit = max(needed, key=needed.get)
    return max(math.ceil(needed[limit]), demand.replicas), limit


def queue_rate_max(body_bytes, costs=MEASURED, usable=0.7):
    """Messages a second of one queue: one core carries it on the node that serves it."""
    return usable * 1e6 / costs.serving_us(body_bytes)


def table(demands, costs=MEASURED, machine=None):
    lines = ["| messages/s | bytes | replicas | nodes | limit | processors | network | disk | queues at least |", "|" + "---:|" * 9]
    for demand in demands:
        count, limit = nodes(demand, costs, machine)
        needed = nodes_by_resource(demand, costs, machine)
        shares = " | ".join(f"{needed[name]:,.1f}" for name in ("processors", "network", "disk"))
        queues = math.ceil(demand.rate / queue_rate_max(demand.body_bytes, costs))
        lines.append(
            f"| {demand.rate:,.0f} | {demand.body_bytes:,} | {demand.replicas} | {count:,} | {limit} | {shares} | {queues:,} |"
        )
    return "\n".join(lines)
