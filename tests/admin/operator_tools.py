"""What operators use: the API over HTTP, and `postroad ctl`."""

import base64
import json
import os
import subprocess
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from broker import Broker

BINARY = os.environ["POSTROAD_BINARY"]


def until(what, check, seconds=30):
    """Waits for `check` to give something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds} s")


def add_user(file, name, password):
    """Adds a user to the file, or changes a password."""
    command = [BINARY, "user", "add", "--users", file, name]
    subprocess.run(command, input=f"{password}\n", text=True, check=True, capture_output=True)


class Operator:
    """Requests of one user, or of none, to one broker."""

    def __init__(self, broker, user=None, password=None):
        self.broker, self.user, self.password = broker, user, password

    def request(self, method, path, body=None, headers=None):
        """The status, and the body as text."""
        url = f"http://127.0.0.1:{self.broker.http}{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers or {}, method=method)
        if self.user is not None:
            secret = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            request.add_header("Authorization", f"Basic {secret}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def api(self, method, path, body=None):
        """The answer of the admin API, which must be a success."""
        status, text = self.request(method, f"/api/v1/{path}", body)
        assert status < 300, f"{method} {path}: {status} {text}"
        return json.loads(text) if text else None

    def send(self, queue, text):
        return self.api("POST", f"queues/{urllib.parse.quote(queue, safe='')}/messages", {"body": text})

    def metric(self, name):
        """The values of a metric, by their labels as text."""
        _, text = self.request("GET", "/metrics")
        lines = [line for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
        return {line.rsplit(" ", 1)[0][len(name) :]: float(line.rsplit(" ", 1)[1]) for line in lines}

    def ctl_over_http(self, *arguments, password=None):
        """Runs `postroad ctl` as this user, from a directory without a broker."""
        url = f"http://127.0.0.1:{self.broker.http}"
        environment = {**os.environ, "POSTROAD_PASSWORD": password or self.password or ""}
        command = [BINARY, "ctl", *arguments, "--url", url]
        if self.user is not None:
            command += ["--user", self.user]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd="/")

    def ctl(self, *arguments):
        """Runs `postroad ctl` over the control socket."""
        data = os.path.join(self.broker.folder, "data")
        command = [BINARY, "ctl", *arguments, "--data", data]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)


def broker_with_users(config, **passwords):
    """A broker with these users; {users} in the configuration is their file."""
    broker = Broker("")
    users = os.path.join(broker.folder, "users")
    for name, password in passwords.items():
        add_user(users, name, password)
    with open(broker.config, "w") as file:
        file.write(config.replace("{users}", users))
    return broker.start()


class WithBroker(unittest.TestCase):
    """Each test has a broker with this configuration, and an operator of it."""

    config = ""

    def setUp(self):
        self.broker = Broker(self.config).start()
        self.operator = Operator(self.broker)

    def tearDown(self):
        alive = self.broker.is_alive()
        self.broker.stop()
        self.assertTrue(alive, "the broker died")

    def ctl(self, *words, code=0):
        said = self.operator.ctl(*words)
        self.assertEqual(said.returncode, code, said.stdout + said.stderr)
        return said.stdout if code == 0 else said.stderr

    def rows(self, *words):
        return [json.loads(line) for line in self.ctl(*words, "--json").splitlines()]
