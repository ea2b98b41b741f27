"""Three Kafkas on the loopback interface, each both controller and broker, which flush each record to disk before they confirm it."""

import os
import subprocess
import uuid

from . import load
from .brokers import HERE, START_SECONDS_MAX, Broker, copy_jars
from .nodes import Nodes


class KafkaCluster(Nodes, Broker):
    """Queues are topics of one partition with three replicas, and a share group each, for Kafka's own client."""

    name = "kafka-cluster"
    version = "4.4.0"
    scheme = "kafka"
    broker_port = 19292
    controller_port = 19392
    # As the scripts of its distribution start it.
    java = ["java", "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"]

    def __init__(self, cache, scratch):
        super().__init__(cache, scratch)
        self.queue = None

    def install(self):
        copy_jars(os.path.join(HERE, "peers", "kafka-pom.xml"), self.cache)

    def properties_of(self, node):
        voters = ",".join(f"{number}@127.0.0.1:{self.controller_port + number}" for number in self.numbers)
        majority = len(self.numbers) // 2 + 1
        return {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.broker_port + node},CONTROLLER://127.0.0.1:{self.controller_port + node}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.broker_port + node}",
            "log.dirs": os.path.join(self.directory_of(node), "log"),
            "default.replication.factor": len(self.numbers),
            "min.insync.replicas": majority,
            # Otherwise a record is confirmed when it is in the memory of all replicas.
            "log.flush.interval.messages": 1,
            "offsets.topic.replication.factor": len(self.numbers),
            "transaction.state.log.replication.factor": len(self.numbers),
            "transaction.state.log.min.isr": majority,
            "share.coordinator.state.topic.replication.factor": len(self.numbers),
            "share.coordinator.state.topic.min.isr": majority,
            # 50 of each by default, whose making would still go on while sends are measured.
            "offsets.topic.num.partitions": len(self.numbers),
            "share.coordinator.state.topic.num.partitions": len(self.numbers),
        }

    def properties_file(self, node):
        return os.path.join(self.directory_of(node), "server.properties")

    def command_with(self, main, *arguments):
        return [*self.java, "-cp", os.path.join(self.cache, "lib", "*"), main, *arguments]

    def prepare(self):
        cluster = str(uuid.uuid4())
        formats = []
        for node in self.numbers:
            os.makedirs(self.directory_of(node))
            with open(self.properties_file(node), "w", encoding="utf-8") as file:
                file.writelines(f"{key}={value}\n" for key, value in self.properties_of(node).items())
            form = self.command_with("kafka.tools.StorageTool", "format", "-t", cluster, "-c", self.properties_file(node))
            form += ["--feature", "share.version=1"]
            formats.append(subprocess.Popen(form, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        for form in formats:
            said, _ = form.communicate()
            if form.returncode != 0:
                raise RuntimeError(f"kafka.tools.StorageTool failed:\n{said}")

    def command_of(self, node):
        return self.command_with("kafka.Kafka", self.properties_file(node))

    def await_nodes(self):
        self.ask()

    def ask(self, *queues):
        """Makes the queues, if they are missing, once all nodes have joined; the leader of each."""
        command = load.java("KafkaQueues", self.url, str(len(self.numbers)), *queues)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * START_SECONDS_MAX)
        self.require_alive()
        if done.returncode != 0:
            raise RuntimeError(f"Kafka takes no orders:\n{done.stderr[-3000:]}")
        return [int(line) for line in done.stdout.split()]

    def declare(self, name):
        self.queue = name
        self.ask(name)

    def declare_for(self, workload):
        self.ask(*workload.queues())

    def leader(self):
        return self.ask(self.queue)[0]

    @property
    def url(self):
        return f"{self.scheme}://" + ",".join(f"127.0.0.1:{self.broker_port + node}" for node in self.numbers)

    @property
    def failover_url(self):
        """The client goes on by itself."""
        return self.url
