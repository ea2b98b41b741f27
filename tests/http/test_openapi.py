"""The OpenAPI document, and answers to requests that schemathesis generates from it."""

import json
import os
import subprocess
import sys
import unittest
import urllib.request

from broker import Broker

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def check(case, document, parameters, *options):
    """Runs schemathesis with a fixed seed over a document; `parameters` have these values in all requests."""
    config = os.path.join(case.broker.folder, "schemathesis.toml")
    with open(config, "w") as file:
        if parameters:
            file.write("[parameters]\n")
        file.writelines(f'"{name}" = "{value}"\n' for name, value in parameters.items())
    command = [
        os.path.join(os.path.dirname(sys.executable), "schemathesis"), "--config-file", config, "run",
        f"{case.url}{document}", "--checks", CHECKS, "--seed", "39", "--no-shrink",
        "--generation-database", "none", "--request-timeout", "60", "--suppress-health-check", "all",
        "--warnings", "off", *options,
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=case.broker.folder)
    case.assertEqual(ran.returncode, 0, ran.stdout[-8000:] + ran.stderr[-2000:])
    case.assertRegex(ran.stdout, r"\d+ generated, \d+ passed")


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
        """`queue`: all requests are about this queue of the project p."""
        parameters = {} if queue is None else {"path.project": "p", "path.queue": queue}
        check(self, "/3/openapi.json", parameters, *options)

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


class AdminOpenApi(unittest.TestCase):
    """The admin API: no request makes it fail, and each answer is documented."""

    @classmethod
    def setUpClass(cls):
        cls.broker = Broker("").start()
        cls.url = f"http://127.0.0.1:{cls.broker.http}"

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    def test_no_answer_is_undocumented(self):
        check(self, "/api/v1/openapi.json", {}, "--phases", "fuzzing", "--max-examples", "6")

    def test_no_answer_about_a_queue_with_messages_is_undocumented(self):
        for number in range(20):
            message = json.dumps({"body": f"message {number}"}).encode()
            request = urllib.request.Request(f"{self.url}/api/v1/queues/q/messages", message)
            urllib.request.urlopen(request, timeout=30).close()
        options = ["--phases", "fuzzing", "--max-examples", "10", "--include-path-regex", "queues/"]
        check(self, "/api/v1/openapi.json", {"path.queue": "q"}, *options)


if __name__ == "__main__":
    unittest.main()
