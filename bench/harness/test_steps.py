"""Tests of the arithmetic of steps."""

import io
import unittest

from harness import steps

BEFORE = """postroad_core_step_seconds_bucket{core="0",le="0.000001"} 5
postroad_core_step_seconds_bucket{core="0",le="0.000002"} 9
postroad_core_step_seconds_bucket{core="0",le="+Inf"} 9
postroad_core_step_seconds_bucket{core="1",le="0.000001"} 1
"""
AFTER = BEFORE.replace("} 9", "} 19") + 'postroad_core_step_seconds_bucket{core="1",le="0.032768"} 3\n'


class Steps(unittest.TestCase):
    def test_buckets_of_all_cores_are_summed_and_not_cumulative(self):
        self.assertEqual(steps.parse(BEFORE), {1e-6: 6, 2e-6: 4})

    def test_the_longest_is_of_the_time_between(self):
        before, after = steps.parse(BEFORE), steps.parse(AFTER)
        self.assertEqual(steps.longest(before, after), (12, 0.032768, 2))
        self.assertEqual(steps.longest(after, after), (0, 0.0, 0))

    def test_an_answer_is_read_to_its_end(self):
        answers = io.BytesIO(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 404 Not Found\r\n\r\n")
        self.assertEqual([steps.answer(answers), steps.answer(answers)], [200, 404])


if __name__ == "__main__":
    unittest.main()
