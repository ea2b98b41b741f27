"""Unmodified SDKs of other languages, each a program of its own, with an access key of a user."""

import os
import shutil
import subprocess
import unittest

from broker import Broker
from sqs import new_key

FOLDER = os.path.dirname(os.path.abspath(__file__))


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker().start()
        key_id, secret = new_key(cls.broker, "alice")
        cls.environment = dict(
            os.environ,
            SQS_ENDPOINT=f"http://127.0.0.1:{cls.broker.http}",
            SQS_KEY_ID=key_id,
            SQS_SECRET=secret,
            INSTALLED=f"{FOLDER}/installed",
        )

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    def succeeds(self, *command, folder=FOLDER):
        ended = subprocess.run(
            command, cwd=folder, env=self.environment, capture_output=True, text=True, timeout=180
        )
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    def test_javascript(self):
        self.succeeds("node", "test_node.js")

    def test_java(self):
        path = os.path.join(FOLDER, "installed", "java", "*")
        self.succeeds("java", "-cp", path, os.path.join(FOLDER, "java", "AwsSqs.java"))

    @unittest.skipUnless(shutil.which("go"), "there is no go")
    def test_go(self):
        self.succeeds("go", "run", ".", folder=f"{FOLDER}/go")
