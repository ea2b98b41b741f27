"""The OpenAPI document, and answers to requests that schemathesis generates from it."""

import json
import os
import subprocess
import sys
import unittest
import urllib.request

from broker import Broker

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


class OpenApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker().start()
        cls.url = f"http://127.0.0.1:{cls.broker.http}"

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    def check(self, *options, queue=None):
        """Runs schemathesis with a fixed seed; `queue`: all requests are about this queue of the project p."""
        config = os.path.join(self.broker.folder, "schemathesis.toml")
        with open(config, "w") as file:
            if queue is not None:
                file.write(f'[parameters]\n"path.project" = "p"\n"path.queue" = "{queue}"\n')
        command = [
            os.path.join(os.path.dirname(sys.executable), "schemathesis"), "--config-file", config, "run",
            f"{self.url}/3/openapi.json", "--checks", CHECKS, "--seed", "39", "--no-shrink",
            "--generation-database", "none", "--request-timeout", "60", "--suppress-health-check", "all",
            "--warnings", "off", *options,
        ]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=self.broker.folder)
        self.assertEqual(ran.returncode, 0, ran.stdout[-8000:] + ran.stderr[-2000:])
        self.assertRegex(ran.stdout, r"\d+ generated, \d+ passed")

    def post(self, queue, count):
        body = json.dumps({"messages": [{"body": "x"}] * count}).encode()
        request = urllib.request.Request(f"{self.url}/3/projects/p/queues/{queue}/messages", body)
        urllib.request.urlopen(request, timeout=30).close()

    def test_the_document_is_there(self):
        document = json.load(urllib.request.urlopen(f"{self.url}/3/openapi.json", timeout=30))
        self.assertEqual(document["openapi"], "3.1.0")
        self.assertEqual(len(document["paths"]), 12)

    def test_no_answer_about_any_queue_is_undocumented(self):
        self.check("--phases", "fuzzing", "--max-examples", "15")

    def test_no_answer_about_a_queue_with_messages_is_undocumented(self):
        self.post("q", 100)
        # A reserve of an empty queue waits for up to 30 s.
        options = ["--phases", "fuzzing", "--max-examples", "25"]
        self.check(*options, "--exclude-path-regex", "reservations$", queue="q")
        self.post("full", 1000)
        self.post("full", 1000)
        self.post("full", 1000)
        self.check(*options, "--include-path-regex", "reservations$", queue="full")


if __name__ == "__main__":
    unittest.main()
