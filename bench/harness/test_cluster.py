"""The tables of a cluster say what was measured: `python3 -m unittest discover -s bench`."""

import os
import unittest

from harness import cluster, rabbit


class Cluster(unittest.TestCase):
    def test_failovers_are_ranked(self):
        rows = cluster.failover_table({"one": [900.4, 700.0, 1234.5], "other": [5.0]}).splitlines()
        self.assertEqual(["| one, 3 nodes | 700 | 900 | 1,234 |", "| other, 3 nodes | 5 | 5 | 5 |"], rows[2:])

    def test_rabbits_have_their_own_ports_and_one_secret(self):
        rabbits = rabbit.RabbitCluster("cache", "scratch")
        environments = [rabbits.environment_of(node) for node in rabbit.NODES]
        for variable in ("RABBITMQ_NODENAME", "RABBITMQ_MNESIA_BASE", "RABBITMQ_DIST_PORT", "RABBITMQ_CONFIG_FILE"):
            self.assertEqual(3, len({environment[variable] for environment in environments}), variable)
        self.assertEqual(1, len({environment["HOME"] for environment in environments}))

    def test_nodes_share_nothing_but_their_seeds(self):
        nodes = cluster.PostroadCluster("cache", "scratch")
        commands = [nodes.command_of(node) for node in cluster.NODES]
        seeds = {command[command.index("--cluster-seeds") + 1] for command in commands}
        self.assertEqual({"127.0.0.1:17701,127.0.0.1:17702,127.0.0.1:17703"}, seeds)
        for option in ("--data", "--port-offset", "--node", "--cluster-listen"):
            self.assertEqual(3, len({command[command.index(option) + 1] for command in commands}), option)
        self.assertIn(os.path.join("scratch", "postroad-cluster", "n2"), commands[1])


if __name__ == "__main__":
    unittest.main()
