"""Unmodified clients of other languages, each in a process of its own; and users with passwords."""

import os
import shutil
import subprocess
import unittest

import iron_mq
import requests

from broker import BINARY, Broker
from receiver import Receiver

HERE = os.path.dirname(os.path.abspath(__file__))
INSTALLED = os.path.join(HERE, "installed")


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker('[push]\nallow = ["127.0.0.1"]\n').start()

    @classmethod
    def tearDownClass(cls):
        cls.broker.stop()

    def run_client(self, command, word, folder=HERE, **environment):
        receiver = Receiver()
        self.addCleanup(receiver.close)
        environment = {**os.environ, "PORT": str(self.broker.http), "ENDPOINT": receiver.url("/in"), **environment}
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertEqual([request.body for request in receiver.wait_for(1)], [word])

    def test_node(self):
        modules = os.path.join(INSTALLED, "node_modules")
        self.run_client(["node", os.path.join(HERE, "clients", "iron_mq.js")], "pushed to node", NODE_PATH=modules)

    def test_java(self):
        path = os.path.join(INSTALLED, "java", "*")
        self.run_client(["java", "-cp", path, os.path.join(HERE, "clients", "IronMqJava.java")], "pushed to java")

    @unittest.skipUnless(shutil.which("go"), "there is no go")
    def test_the_requests_of_iron_go3(self):
        self.run_client(["go", "run", "."], "pushed to go", folder=os.path.join(HERE, "clients", "iron_go3"))


class Users(unittest.TestCase):
    def test_a_token_is_a_user_with_a_password(self):
        broker = Broker("")
        users = os.path.join(broker.folder, "users")
        subprocess.run(
            [BINARY, "user", "add", "anna", "--users", users], input="secret\n", text=True, check=True, timeout=30
        )
        with open(broker.config, "w") as file:
            file.write(f'[security]\nusers = "{users}"\n')
        broker.start()
        try:
            def client(token):
                return iron_mq.IronMQ(
                    host="127.0.0.1", port=broker.http, protocol="http", project_id="p", token=token
                )

            self.assertEqual(len(client("anna:secret").queue("q").post("m")["ids"]), 1)
            for token in ("anna:wrong", "anna", "secret", "other:secret"):
                with self.assertRaises(requests.exceptions.HTTPError) as raised:
                    client(token).queue("q").post("m")
                self.assertEqual(raised.exception.response.status_code, 401, token)
            url = f"http://127.0.0.1:{broker.http}/3/projects/p/queues/q"
            self.assertEqual(requests.get(url + "?oauth=anna:secret", timeout=30).json()["queue"]["size"], 1)
            self.assertEqual(requests.get(url, timeout=30).status_code, 401)
        finally:
            broker.stop()
            shutil.rmtree(broker.folder, ignore_errors=True)
