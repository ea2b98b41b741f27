"""A cluster of three RabbitMQs on the loopback interface, with quorum queues of three replicas, for clients of AMQP 1.0."""

import base64
import json
import os
import secrets
import time
import urllib.error
import urllib.request

from .brokers import START_SECONDS_MAX, RabbitMQ, await_answer
from .nodes import Nodes, amqp_failover


class RabbitCluster(Nodes, RabbitMQ):
    """Three nodes, each with a directory of its own. The leaders of the queues are on node 1, where clients connect."""

    name = "rabbitmq-cluster"
    # Away from the single node, from the default ports, and from those that the system gives to clients' ends.
    amqp_port = 15972
    distribution_port = 25962
    management_port = 25942

    def install(self):
        super().install()
        # An address that names an existing queue, of whatever type it is.
        self.queue_prefix = "/amq/queue/" if int(self.version.split(".")[0]) < 4 else "/queues/"

    @staticmethod
    def node_name(node):
        return f"postroad-bench-{node}@localhost"

    def prepare(self):
        # The one secret of all nodes. Erlang makes it first and protects it then, and a second process may come in between.
        cookie = os.open(os.path.join(self.data, ".erlang.cookie"), os.O_WRONLY | os.O_CREAT, 0o400)
        with open(cookie, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(16).upper())
        peers = [f"cluster_formation.classic_config.nodes.{node} = {self.node_name(node)}" for node in self.numbers]
        for node in self.numbers:
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
            # Where they find their secret.
            "HOME": self.data,
        }

    def start_nodes(self):
        # One after the other: the first makes the cluster.
        for node in self.numbers:
            self.start_node(node)
            await_answer(self.protocol, self.amqp_port + node, START_SECONDS_MAX, self.require_alive)

    def await_nodes(self):
        end = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                running = [node for node in self.ask("GET", "/api/nodes") if node.get("running")]
            except (urllib.error.URLError, ConnectionError):
                running = []
            if len(running) == len(self.numbers):
                return
            if end < time.monotonic():
                raise RuntimeError(f"{len(running)} of {len(self.numbers)} nodes of RabbitMQ have joined within {START_SECONDS_MAX} s")
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
        arguments = {"x-queue-type": "quorum", "x-quorum-initial-group-size": len(self.numbers)}
        self.ask("PUT", f"/api/queues/%2F/{name}", {"durable": True, "arguments": arguments})

    @property
    def url(self):
        return f"amqp://127.0.0.1:{self.amqp_port + 1}"

    @property
    def failover_url(self):
        return amqp_failover(f"amqp://127.0.0.1:{self.amqp_port + node}" for node in self.numbers)

    def leader(self):
        """The node with the leaders of the queues: where they were declared."""
        return self.numbers[0]

    def stop(self):
        was_running = bool(self.nodes)
        super().stop()
        if was_running:
            self.end_directory()
