"""A cluster of three RabbitMQs on the loopback interface, with quorum queues of three replicas, for clients of AMQP 1.0."""

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request

from .brokers import START_SECONDS_MAX, RabbitMQ, await_answer
from .process import Process

NODES = (1, 2, 3)


class RabbitCluster(RabbitMQ):
    """Three nodes, each with a directory of its own. The leaders of the queues are on node 1, where clients connect."""

    name = "rabbitmq-cluster"
    # Away from the single node and from the default ports.
    amqp_port = 15972
    distribution_port = 35972
    management_port = 45972

    def __init__(self, cache, scratch):
        super().__init__(cache, scratch)
        self.nodes = {}
        self.start_milliseconds = 0.0

    def install(self):
        super().install()
        # An address that names an existing queue, of whatever type it is.
        self.queue_prefix = "/amq/queue/" if int(self.version.split(".")[0]) < 4 else "/queues/"

    @staticmethod
    def node_name(node):
        return f"postroad-bench-{node}@localhost"

    def directory_of(self, node):
        return os.path.join(self.data, f"n{node}")

    def prepare(self):
        peers = [f"cluster_formation.classic_config.nodes.{node} = {self.node_name(node)}" for node in NODES]
        for node in NODES:
            directory = self.directory_of(node)
            os.makedirs(directory)
            with open(os.path.join(directory, "enabled_plugins"), "w", encoding="utf-8") as file:
                file.write("[rabbitmq_amqp1_0,rabbitmq_management].\n")
            lines = [
                f"listeners.tcp.local = 127.0.0.1:{self.amqp_port + node}",
                "management.tcp.ip = 127.0.0.1",
                f"management.tcp.port = {self.management_port + node}",
                "amqp1_0.default_user = guest",
                "cluster_formation.peer_discovery_backend = classic_config",
                *peers,
            ]
            with open(os.path.join(directory, "rabbitmq.conf"), "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")

    def environment_of(self, node):
        directory = self.directory_of(node)
        return {
            **self.environment(),
            "RABBITMQ_NODENAME": self.node_name(node),
            "RABBITMQ_MNESIA_BASE": os.path.join(directory, "mnesia"),
            "RABBITMQ_LOG_BASE": os.path.join(directory, "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": os.path.join(directory, "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": os.path.join(directory, "rabbitmq"),
            "RABBITMQ_DIST_PORT": str(self.distribution_port + node),
            # One secret of all nodes, which the first one makes.
            "HOME": self.data,
        }

    def start(self):
        self.found_directory = subprocess.run(["epmd", "-names"], capture_output=True, check=False).returncode == 0
        shutil.rmtree(self.data, ignore_errors=True)
        os.makedirs(self.data)
        self.prepare()
        begun = time.monotonic()
        logs = os.path.dirname(self.data)
        try:
            # One after the other: the first makes the secret and the cluster.
            for node in NODES:
                log = os.path.join(logs, f"{self.name}-n{node}.log")
                process = Process(self.command(), self.data, log, self.environment_of(node))
                self.nodes[node] = process
                await_answer(
                    self.protocol,
                    self.amqp_port + node,
                    START_SECONDS_MAX,
                    lambda process=process, node=node: process.require_alive(f"{self.name} n{node}"),
                )
            self.await_members()
        except BaseException:
            self.stop()
            raise
        self.start_milliseconds = (time.monotonic() - begun) * 1000

    def await_members(self):
        end = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                running = [node for node in self.ask("GET", "/api/nodes") if node.get("running")]
            except (urllib.error.URLError, ConnectionError):
                running = []
            if len(running) == len(NODES):
                return
            if end < time.monotonic():
                raise RuntimeError(f"{len(running)} of {len(NODES)} nodes of RabbitMQ have joined within {START_SECONDS_MAX} s")
            time.sleep(0.1)

    def ask(self, method, path, body=None):
        """A request to the management API of node 1."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.management_port + 1}{path}", method=method)
        request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
        request.add_header("Content-Type", "application/json")
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, data=data, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def declare(self, name):
        arguments = {"x-queue-type": "quorum", "x-quorum-initial-group-size": len(NODES)}
        self.ask("PUT", f"/api/queues/%2F/{name}", {"durable": True, "arguments": arguments})

    def declare_for(self, workload):
        """The queues of a workload, before its clients come."""
        name = f"bench.{workload.name}"
        names = [name] if workload.destinations == 1 else [f"{name}.{index}" for index in range(workload.destinations)]
        for each in names:
            self.declare(each)

    @property
    def url(self):
        return f"amqp://127.0.0.1:{self.amqp_port + 1}"

    @property
    def failover_url(self):
        nodes = ",".join(f"amqp://127.0.0.1:{self.amqp_port + node}" for node in NODES)
        return f"failover:({nodes})?failover.reconnectDelay=10&failover.maxReconnectDelay=100"

    def leader(self):
        """The node with the leaders of the queues: where they were declared."""
        return NODES[0]

    def pids(self):
        return [process.server_pid() for process in self.nodes.values()]

    def stop(self):
        was_running = bool(self.nodes)
        for process in self.nodes.values():
            process.stop()
        self.nodes = {}
        if was_running and not self.found_directory:
            subprocess.run(["epmd", "-kill"], capture_output=True, check=False)
        shutil.rmtree(self.data, ignore_errors=True)
