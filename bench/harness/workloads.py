"""The workloads, as options of the load generator."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    kind: str
    destinations: int
    producers: int
    consumers: int
    body_bytes: int
    drain_consumers: int = 0
    persistent: bool = True
    # Sends per second of all producers together; 0: each sends as soon as the last send returned.
    rate: float = 0

    def paced(self, rate):
        """The same at a rate that does not depend on how fast the broker answers."""
        return replace(self, name=f"{self.name}-paced", title=f"{self.title}; {rate:,.0f} sends/s", rate=rate)

    def queues(self):
        """The names of its destinations, as the load generator makes them of its name."""
        name = f"bench.{self.name}"
        return [name] if self.destinations == 1 else [f"{name}.{index}" for index in range(self.destinations)]

    def options(self):
        return [
            "--kind", self.kind,
            "--destinations", str(self.destinations),
            "--producers", str(self.producers),
            "--consumers", str(self.consumers),
            "--body-bytes", str(self.body_bytes),
            "--drain-consumers", str(self.drain_consumers),
            "--persistent", str(self.persistent).lower(),
            "--rate", str(self.rate),
        ]  # fmt: skip


WORKLOADS = [
    Workload("queue-1-1", "durable queue, 1 KiB, 1 producer, 1 consumer", "queue", 1, 1, 1, 1024),
    Workload("queue-20-20", "durable queue, 1 KiB, 20 producers, 20 consumers", "queue", 1, 20, 20, 1024),
    Workload(
        "backlog-100", "5 durable queues, 5000 B, 100 producers, no consumer; drained after", "queue", 5, 100, 0, 5000, 2
    ),
    Workload(
        "backlog-600", "5 durable queues, 5000 B, 600 producers, no consumer; drained after", "queue", 5, 600, 0, 5000, 2
    ),
    Workload("small-20-20", "10 durable queues, 128 B, 20 producers, 20 consumers", "queue", 10, 20, 20, 128),
    Workload("topic-20-1", "topic, 128 B, 20 producers, 1 subscriber", "topic", 1, 20, 1, 128),
    Workload("topic-20-10", "topic, 128 B, 20 producers, 10 subscribers", "topic", 1, 20, 10, 128),
]

# What AMQP is measured by: one pair and many, small messages and larger ones, durable and not.
AMQP = [
    Workload(
        f"amqp-{kind}-{pairs}-{pairs}-{size}",
        f"AMQP 1.0, {title} queue, {size} B, {pairs} producers, {pairs} consumers",
        "queue", 1, pairs, pairs, size, persistent=persistent,
    )
    for kind, title, persistent in (("durable", "durable", True), ("volatile", "non-persistent", False))
    for pairs in (1, 20)
    for size in (128, 1024)
]  # fmt: skip

# What clusters are measured by: the same with small messages, and one pair.
CLUSTER = [
    *(workload for workload in WORKLOADS if workload.name in ("queue-1-1", "queue-20-20")),
    Workload("small-1-1", "durable queue, 128 B, 1 producer, 1 consumer", "queue", 1, 1, 1, 128),
    *(workload for workload in WORKLOADS if workload.name == "small-20-20"),
]

BY_NAME = {workload.name: workload for workload in WORKLOADS + CLUSTER + AMQP}
