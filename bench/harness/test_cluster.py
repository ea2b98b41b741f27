"""The tables of a cluster say what was measured: `python3 -m unittest discover -s bench`."""

import os
import unittest

from harness import cluster


class Cluster(unittest.TestCase):
    def test_failovers_are_ranked(self):
        row = cluster.failover_table([900.4, 700.0, 1234.5]).splitlines()[-1]
        self.assertTrue(row.endswith("| 700 | 900 | 1,234 |"), row)

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
