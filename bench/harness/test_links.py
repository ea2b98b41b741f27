"""The table of links: rates beside those of the shortest round trip."""

import unittest

from . import links


def row(brokers, round_trip_ms, rate):
    return {
        "brokers": brokers,
        "version": "1",
        "round_trip_ms": round_trip_ms,
        "drained_per_s": rate,
        "source_cpu_us": 10.0,
        "target_cpu_us": 20.0,
        **dict.fromkeys(links.FAULTS, 0),
    }


class Table(unittest.TestCase):
    def test_each_rate_stands_beside_that_of_the_shortest_round_trip_of_the_same_brokers(self):
        results = [row("postroad", 0.0, 1000.0), row("postroad", 40.0, 950.0), row("activemq", 0.0, 200.0), row("activemq", 40.0, 100.0)]
        cells = [[cell.strip() for cell in line.split("|")] for line in links.table(results).splitlines()[2:]]
        self.assertEqual([line[2:5] for line in cells], [["0", "1,000", "1.00"], ["40", "950", "0.95"], ["0", "200", "1.00"], ["40", "100", "0.50"]])
        self.assertEqual(cells[0][5:9], ["10", "20", "30", "none"])

    def test_a_rate_of_nothing_is_no_division(self):
        self.assertEqual(links.share_of_shortest(row("postroad", 0.0, 0.0), [row("postroad", 0.0, 0.0)]), 0.0)


if __name__ == "__main__":
    unittest.main()
