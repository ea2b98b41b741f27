"""The arithmetic of the model of scale: `python3 -m unittest discover -s bench`."""

import unittest

from harness.scale import Costs, Demand, Machine, nodes, nodes_by_resource, queue_rate_max, table

ROUND = Costs(10, 0.01, 0.5, wire_bytes=100, record_bytes=50, connection_bytes=10_000)
MACHINE = Machine(cores=10, usable=0.5, disk_megabytes=100, network_gigabits=1, memory_gigabytes=1)


class Scale(unittest.TestCase):
    def test_costs_go_through_both_measurements_and_the_ratio(self):
        costs = Costs.fitted((100, 11), (1100, 21), 2.0, wire_bytes=0, record_bytes=0, connection_bytes=0)
        self.assertAlmostEqual(0.01, costs.byte_us)
        self.assertAlmostEqual(10, costs.message_us)
        self.assertAlmostEqual(11, costs.serving_us(100))
        self.assertAlmostEqual(0.5, costs.replica_share)
        self.assertAlmostEqual(22, costs.total_us(100, 3))
        self.assertAlmostEqual(11, costs.total_us(100, 1))

    def test_each_resource_is_counted_by_hand(self):
        needed = nodes_by_resource(Demand(100_000, 1000, 3, 50_000), ROUND, MACHINE)
        # 20 µs serve it, two replicas take 10 each: 4 processors of 5.
        self.assertAlmostEqual(0.8, needed["processors"])
        # 3 times 1,100 bytes of 62.5 MB/s.
        self.assertAlmostEqual(330 / 62.5, needed["network"])
        # 3 times 1,050 bytes of 50 MB/s.
        self.assertAlmostEqual(315 / 50, needed["disk"])
        self.assertAlmostEqual(1.0, needed["memory"])

    def test_the_scarcest_resource_decides_and_replicas_are_the_least(self):
        self.assertEqual((7, "disk"), nodes(Demand(100_000, 1000), ROUND, MACHINE))
        self.assertEqual(3, nodes(Demand(1), ROUND, MACHINE)[0])
        self.assertEqual(5, nodes(Demand(1, replicas=5), ROUND, MACHINE)[0])

    def test_a_queue_is_carried_by_one_core(self):
        self.assertAlmostEqual(25_000, queue_rate_max(1000, ROUND, 0.5))

    def test_a_table_has_a_row_for_each_demand(self):
        rows = table([Demand(100_000, 1000), Demand(1)], ROUND, MACHINE).splitlines()
        self.assertEqual(4, len(rows))
        self.assertTrue(rows[2].startswith("| 100,000 | 1,000 | 3 | 7 | disk | 0.8 | 5.3 | 6.3 |"), rows[2])


if __name__ == "__main__":
    unittest.main()
