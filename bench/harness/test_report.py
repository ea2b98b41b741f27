"""The report says what the results say: `python3 -m unittest discover -s bench`."""

import types
import unittest

from harness import report, workloads

SETTINGS = types.SimpleNamespace(rounds=3, warmup=1.0, duration=2.0)
CLEAN = {"verified": True, **{fault: 0 for fault in report.FAULTS}}


def result(broker, number, rate, **more):
    return {"broker": broker, "workload": "queue-1-1", "round": number, "published_per_s": rate, **CLEAN, **more}


class Report(unittest.TestCase):
    def rows(self, results):
        text = report.markdown(results, [("a", "1"), ("b", "2")], [workloads.BY_NAME["queue-1-1"]], SETTINGS)
        return text.splitlines()

    def test_medians_and_ratios(self):
        rows = self.rows([result("a", n, r) for n, r in ((1, 100), (2, 900), (3, 200))] + [result("b", 1, 50)])
        self.assertIn("| published/s | 200 | 50 | 0.25 |", rows)
        self.assertIn("| lost, doubled, reordered, wrong | 0, 0, 0, 0 | 0, 0, 0, 0 |  |", rows)
        self.assertFalse([row for row in rows if row.startswith("Not clean")])

    def test_the_common_rate_is_that_of_the_slowest(self):
        results = [result("a", n, r) for n, r in ((1, 100), (2, 900), (3, 200))] + [result("b", 1, 150)]
        self.assertEqual(150, report.slowest(results, ["a", "b"], "queue-1-1"))
        self.assertIsNone(report.slowest(results, ["a", "c"], "queue-1-1"))
        paced = workloads.BY_NAME["queue-1-1"].paced(75.0)
        self.assertEqual("queue-1-1-paced", paced.name)
        self.assertEqual(["--rate", "75.0"], paced.options()[-2:])

    def test_faults_and_failures_are_not_hidden(self):
        lost = result("a", 1, 100, lost=3, first_errors="broken pipe")
        failed = {"broker": "b", "workload": "queue-1-1", "round": 2, "failure": "no answer\nlog"}
        rows = self.rows([lost, failed])
        self.assertIn("| published/s | 100 | - | - |", rows)
        self.assertIn("| lost, doubled, reordered, wrong | 3, 0, 0, 0 | not checked |  |", rows)
        self.assertIn("Not clean: a, round 1: lost 3 (broken pipe)", rows)
        self.assertIn("Not clean: b, round 2: no answer", rows)


if __name__ == "__main__":
    unittest.main()
