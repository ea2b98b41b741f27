"""`postroad ctl audit` and the filters of its API: who changed what, and who was refused."""

import json
import os
import subprocess
import time
import unittest

from operator_tools import BINARY, Operator, broker_with_users


class Audit(unittest.TestCase):
    def setUp(self):
        config = '[security]\nusers = "{users}"\n'
        self.broker = broker_with_users(config, root="secret-root", ann="secret-ann")
        self.addCleanup(self.broker.stop)
        self.root = Operator(self.broker, "root", "secret-root")
        self.ann = Operator(self.broker, "ann", "secret-ann")

    def rows(self, *words):
        said = self.root.ctl_over_http("audit", *words, "--json")
        self.assertEqual(said.returncode, 0, said.stderr)
        return [json.loads(line) for line in said.stdout.splitlines()]

    def test_rows_are_listed_and_selected(self):
        self.root.api("PUT", "queues/orders")
        self.ann.api("PUT", "queues/bills")
        between = int(time.time() * 1000) + 1
        time.sleep(0.01)
        self.ann.api("POST", "queues/orders/pause")
        self.assertEqual(self.ann.request("DELETE", "/api/v1/queues/none")[0], 404)
        self.assertEqual(Operator(self.broker, "eve", "x").request("GET", "/api/v1/broker")[0], 401)
        paths = lambda *words: [row["path"].removeprefix("/api/v1/") for row in self.rows(*words)]
        self.assertEqual(
            paths(), ["broker", "queues/none", "queues/orders/pause", "queues/bills", "queues/orders"]
        )
        for words, want in [
            (["--by", "root"], ["queues/orders"]),
            (["--failed"], ["broker", "queues/none"]),
            (["--done", "--filter", "orders"], ["queues/orders/pause", "queues/orders"]),
            (["--from-ms", str(between), "--by", "ann"], ["queues/none", "queues/orders/pause"]),
            (["--to-ms", str(between)], ["queues/bills", "queues/orders"]),
            (["--max", "1"], ["broker"]),
            (["--by", "nobody-of-them"], []),
        ]:
            self.assertEqual(paths(*words), want, words)
        table = self.root.ctl_over_http("audit").stdout
        self.assertRegex(table.splitlines()[0], r"^AT +USER +FROM +METHOD +PATH +STATUS +DETAIL$")
        self.assertIn("/api/v1/queues/orders/pause", table)
        page = self.root.api("GET", "audit?user=ann&limit=1")
        self.assertEqual((page["total"], len(page["items"])), (3, 1))
        rest = self.root.api("GET", f"audit?user=ann&cursor={page['next']}")
        self.assertEqual((len(rest["items"]), rest["next"]), (2, None))
        refused = self.ann.ctl_over_http("audit", "--failed", "--done")
        self.assertEqual(refused.returncode, 2)

    def test_a_watched_list_shows_new_rows(self):
        url = f"http://127.0.0.1:{self.broker.http}"
        command = [BINARY, "ctl", "audit", "--watch", "1", "--json", "--url", url, "--user", "root"]
        environment = {**os.environ, "POSTROAD_PASSWORD": "secret-root"}
        watch = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            self.root.api("PUT", "queues/seen")
            self.assertIn("queues/seen", watch.stdout.readline())
        finally:
            watch.kill()
            watch.communicate()

    def test_a_locked_get_has_a_row(self):
        guesser = Operator(self.broker, "ann", "guess")
        statuses = [guesser.request("GET", "/api/v1/broker")[0] for _ in range(7)]
        self.assertEqual((statuses[0], statuses[-1]), (401, 429), statuses)
        rows = self.rows("--failed", "--filter", "/api/v1/broker")
        self.assertEqual([row["status"] for row in rows], statuses[::-1])
        self.assertIn("login failed", rows[0]["detail"])

    def test_completions_and_man_pages_know_it(self):
        completions = subprocess.run([BINARY, "completions", "bash"], capture_output=True, text=True, check=True)
        for word in ("audit", "redrives"):
            self.assertIn(word, completions.stdout)


if __name__ == "__main__":
    unittest.main()
