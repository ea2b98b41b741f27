"""What a broker of several processes has, whichever it is: one process for each node, started and ended together."""

import os
import shutil
import time

from .process import Process


class Nodes:
    """Stands before the kind of broker in the list of bases. Nodes have numbers from 1, and `data/nNUMBER` each."""

    numbers = (1, 2, 3)

    def __init__(self, cache, scratch):
        super().__init__(cache, scratch)
        self.nodes = {}

    @property
    def title(self):
        return f"{self.name}, {len(self.numbers)} nodes"

    def directory_of(self, node):
        return os.path.join(self.data, f"n{node}")

    def command_of(self, node):
        return self.command()

    def environment_of(self, node):
        return self.environment()

    def start_node(self, node):
        log = os.path.join(os.path.dirname(self.data), f"{self.name}-n{node}.log")
        self.nodes[node] = Process(self.command_of(node), self.data, log, self.environment_of(node))

    def start_nodes(self):
        """Starts all of them."""
        for node in self.numbers:
            self.start_node(node)

    def await_nodes(self):
        """Returns once they serve together."""
        raise NotImplementedError

    def launch(self):
        begun = time.monotonic()
        try:
            self.start_nodes()
            self.await_nodes()
        except BaseException:
            self.stop()
            raise
        self.start_milliseconds = (time.monotonic() - begun) * 1000

    def require_alive(self):
        for node, process in self.nodes.items():
            process.require_alive(f"{self.name} n{node}")

    def leader(self):
        """The node that clients are served by, or that confirms the sends to the queue that was declared last."""
        raise NotImplementedError

    def declare(self, name):
        """Makes a queue, if it is not there as soon as it is used."""

    def declare_for(self, workload):
        """The queues of a workload, before its clients come."""
        for name in workload.queues():
            self.declare(name)

    def pids(self):
        return [process.server_pid() for process in self.nodes.values()]

    def stop(self):
        for process in self.nodes.values():
            process.stop()
        self.nodes = {}
        shutil.rmtree(self.data, ignore_errors=True)


def openwire_failover(urls):
    """What ActiveMQ's client takes to go on with another of these nodes."""
    return f"failover:({','.join(urls)})?maxReconnectDelay=100&timeout=60000"


def amqp_failover(urls):
    """The same for Qpid's."""
    return f"failover:({','.join(urls)})?failover.reconnectDelay=10&failover.maxReconnectDelay=100"
