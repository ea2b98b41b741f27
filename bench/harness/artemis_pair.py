"""Two Artemises on the loopback interface: a primary, and a backup that it replicates to."""

import os
import time

from .brokers import POLL_SECONDS, START_SECONDS_MAX, Artemis, await_answer
from .nodes import Nodes, openwire_failover

PRIMARY, BACKUP = 1, 2
# In the log of the backup, once it has all that the primary has.
SYNCHRONIZED = "AMQ221024"


class ArtemisPair(Nodes, Artemis):
    """As `artemis create --replicated` makes them: each send is on the disk of the primary, and has reached the backup."""

    name = "artemis-pair"
    numbers = (PRIMARY, BACKUP)

    def __init__(self, cache, scratch):
        super().__init__(cache, scratch)
        self.cache = os.path.join(cache, f"{Artemis.name}-{self.version}")

    def port_of(self, node):
        return Artemis.port + 10 * node

    def options_of(self, node):
        """Of `artemis create`, besides those of a single one."""
        other = PRIMARY + BACKUP - node
        return [
            "--clustered", "--cluster-user", "bench", "--cluster-password", "bench",
            "--static-cluster", f"tcp://127.0.0.1:{self.port_of(other)}",
            "--replicated", *(["--backup"] if node == BACKUP else []),
        ]  # fmt: skip

    def prepare(self):
        for node in self.numbers:
            self.create(self.directory_of(node), self.port_of(node), self.options_of(node))

    def command_of(self, node):
        return [os.path.join(self.directory_of(node), "bin", "artemis"), "run"]

    def await_nodes(self):
        await_answer(self.protocol, self.port_of(PRIMARY), START_SECONDS_MAX, self.require_alive)
        end = time.monotonic() + START_SECONDS_MAX
        while not self.is_synchronized():
            self.require_alive()
            if end < time.monotonic():
                raise RuntimeError(f"the backup has no copy of the primary within {START_SECONDS_MAX} s")
            time.sleep(POLL_SECONDS)

    def is_synchronized(self):
        with open(self.nodes[BACKUP].log_path, encoding="utf-8", errors="replace") as log:
            return SYNCHRONIZED in log.read()

    def leader(self):
        return PRIMARY

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port_of(PRIMARY)}"

    @property
    def failover_url(self):
        return openwire_failover(f"tcp://127.0.0.1:{self.port_of(node)}" for node in self.numbers)
