"""The picture in the README shows the measured table: `python3 -m unittest discover -s bench`."""

import os
import unittest

from harness import brokers, chart

DOCS = os.path.join(os.path.dirname(brokers.HERE), "docs")


def text(name):
    with open(os.path.join(DOCS, name), encoding="utf-8") as file:
        return file.read()


class Chart(unittest.TestCase):
    def test_figures_are_read_from_the_table(self):
        document = (
            "<!-- bench:begin -->\n2026-01-01, here. 1 round(s), 8 s measured; medians. More.\n\n"
            "**queue-1-1**: a queue\n\n|  | postroad | activemq | activemq / postroad |\n|---|---:|---:|---:|\n"
            "| published/s | 3,918 | - | 0.64 |\n<!-- bench:end -->\n"
        )
        figures, where = chart.measured(document)
        self.assertEqual({"queue-1-1": {"published/s": {"postroad": 3918.0, "activemq": None}}}, figures)
        self.assertEqual("2026-01-01, here. 1 round(s), 8 s measured", where)

    def test_the_picture_is_that_of_the_table(self):
        kept = text("images/benchmarks.svg")
        self.assertEqual(chart.svg(text("benchmarks.md")), kept, "run bench/chart")


if __name__ == "__main__":
    unittest.main()
