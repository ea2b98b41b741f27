"""Tokens in place of passwords: admin API, IronMQ, OpenWire; scopes, expiry, and revocation at once."""

import json
import os
import subprocess
import time
import unittest

from broker import BINARY
from operator_tools import Operator, broker_with_users, until

CONFIG = """
[security]
users = "{users}"

[[security.permission]]
users = ["ann"]
destinations = ["queue://orders.>"]
actions = ["read", "write", "create"]

[[security.permission]]
users = ["root"]
destinations = ["queue://>", "topic://>"]
actions = ["read", "write", "create", "manage", "admin"]
"""


class Bearer(Operator):
    """Requests with a token."""

    def __init__(self, broker, token):
        super().__init__(broker)
        self.bearer = {"Authorization": f"Bearer {token}"}

    def request(self, method, path, body=None, headers=None):
        return super().request(method, path, body, {**self.bearer, **(headers or {})})


class Tokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = broker_with_users(CONFIG, ann="secret-a", root="secret-r")
        cls.ann = Operator(cls.broker, "ann", "secret-a")
        cls.root = Operator(cls.broker, "root", "secret-r")

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    def new(self, user, *options):
        """The id and text of a new token, made by `postroad ctl`."""
        said = self.root.ctl("token", "new", user, "--json", *options)
        self.assertEqual(said.returncode, 0, said.stderr)
        made = json.loads(said.stdout)
        return made["id"], made["token"]

    def revoke(self, token):
        said = self.root.ctl("token", "revoke", token)
        self.assertEqual(said.returncode, 0, said.stderr)

    def status(self, token, method="GET", path="/api/v1/queues/orders.a", body=None):
        return Bearer(self.broker, token).request(method, path, body)[0]

    def iron(self, token):
        headers = {"Authorization": f"OAuth {token}", "Content-Type": "application/json"}
        body = {"messages": [{"body": "one"}]}
        path = "/3/projects/orders/queues/iron/messages"
        by_header = Operator(self.broker).request("POST", path, body, headers)[0]
        by_query = Operator(self.broker).request("POST", f"{path}?oauth={token}", body, {"Content-Type": "application/json"})[0]
        self.assertEqual(by_header, by_query)
        return by_header

    def send(self, user, password, queue="orders.a"):
        command = [BINARY, "send", queue, "--body", "one", "--user", user, "--password", password]
        command += ["--url", f"tcp://127.0.0.1:{self.broker.openwire}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def test_a_token_acts_for_its_user_until_it_is_revoked(self):
        name, token = self.new("ann")
        self.assertEqual(self.send("ann", token).returncode, 0)
        self.assertEqual(self.status(token), 200)
        self.assertEqual(self.status(token, path="/api/v1/audit"), 403, "it has the permissions of its user")
        self.assertIn("no permission", self.send("ann", token, "bills.a").stderr)
        self.assertNotEqual(self.send("root", token).returncode, 0, "it acts for its own user only")
        self.assertEqual(Operator(self.broker, "ann", token).request("GET", "/api/v1/queues/orders.a")[0], 200)
        self.assertEqual(self.iron(token), 201)
        self.revoke(name)
        self.assertEqual(self.status(token), 401)
        self.assertEqual(self.iron(token), 401)
        self.assertNotEqual(self.send("ann", token).returncode, 0)

    def test_connections_end_with_their_token(self):
        name, token = self.new("ann")
        command = [BINARY, "receive", "orders.none", "--user", "ann", "--password", token, "--count", "1"]
        command += ["--url", f"tcp://127.0.0.1:{self.broker.openwire}"]
        receiving = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            connected = lambda: any(row["user"] == "ann" for row in self.root.api("GET", "connections")["items"])
            until("it is connected", connected)
            self.revoke(name)
            until("its connection has ended", lambda: not connected(), 5)
        finally:
            receiving.kill()
            receiving.communicate()

    def test_scopes(self):
        for scope, reads, writes, sends in [
            ("messages", 403, 403, True),
            ("read", 200, 403, False),
            ("manage", 200, 201, False),
            ("read,messages", 200, 403, True),
        ]:
            _, token = self.new("ann", "--scope", scope)
            self.assertEqual(self.status(token, path="/api/v1/broker"), reads, scope)
            self.assertEqual(self.status(token, "POST", "/api/v1/queues/orders.a/messages", {"body": "x"}), writes, scope)
            self.assertEqual(self.send("ann", token).returncode == 0, sends, scope)
        said = self.root.ctl("token", "new", "ann", "--scope", "all")
        self.assertIn("use messages, read or manage", said.stderr)

    def test_a_token_is_no_password_of_a_session_or_of_another_password(self):
        stranger, path = Operator(self.broker), "/api/v1/users/ann/password"
        typed = {"Content-Type": "application/json"}
        for scope in ("messages", "read", "messages,manage"):
            name, token = self.new("ann", "--scope", scope)
            status, text = stranger.request("POST", "/api/v1/session", {"user": "ann", "password": token}, typed)
            self.assertEqual(status, 401, f"{scope}: {text}")
            self.assertIn("a token is no password here: sign in with the user's password", text)
            status, text = stranger.request("POST", "/api/v1/session", {"user": "", "password": token}, typed)
            self.assertEqual(status, 401, f"{scope}, without its user: {text}")
            status, text = self.ann.request("PUT", path, {"password": "other", "current": token})
            self.assertEqual(status, 403, f"{scope}: {text}")
            self.assertIn("current is a token: send the old password", text)
            self.revoke(name)
        _, manages = self.new("ann", "--scope", "manage")
        status, text = Bearer(self.broker, manages).request("PUT", path, {"password": "other", "current": manages})
        self.assertEqual(status, 403, text)
        self.assertEqual(self.ann.request("GET", "/api/v1/broker")[0], 200, "its password is the old one")
        status, text = stranger.request("POST", "/api/v1/session", {"user": "ann", "password": "secret-a"}, typed)
        self.assertEqual(status, 200, text)

    def test_expiry(self):
        _, token = self.new("ann", "--expires", "1s")
        self.assertEqual(self.status(token, path="/api/v1/broker"), 200)
        time.sleep(1.1)
        self.assertEqual(self.status(token, path="/api/v1/broker"), 401)
        self.assertIn("30d is right", self.root.ctl("token", "new", "ann", "--expires", "soon").stderr)

    def test_users_have_their_own_tokens_alone(self):
        path = "/api/v1/tokens"
        status, text = self.ann.request("POST", path, {"scope": "read"})
        self.assertEqual(status, 201, text)
        own = json.loads(text)
        of_root, _ = self.new("root")
        listed = self.ann.api("GET", "tokens")["items"]
        self.assertIn(own["id"], [row["id"] for row in listed])
        self.assertEqual({row["user"] for row in listed}, {"ann"})
        self.assertFalse([row for row in listed if "token" in row], "secrets are not listed")
        for case, want, got in [
            ("for another user", 403, self.ann.request("POST", path, {"user": "root"})),
            ("another user's", 404, self.ann.request("DELETE", f"{path}/{of_root}")),
            ("by a token", 403, Bearer(self.broker, self.new("root")[1]).request("POST", path, {})),
            ("for a stranger", 404, self.root.request("POST", path, {"user": "zoe"})),
            ("its own", 204, self.ann.request("DELETE", f"{path}/{own['id']}")),
            ("again", 404, self.ann.request("DELETE", f"{path}/{own['id']}")),
            ("expires at once", 400, self.root.request("POST", path, {"expires_seconds": 0})),
        ]:
            self.assertEqual(got[0], want, f"{case}: {got[1]}")
        audit = self.root.api("GET", "audit?limit=500")["items"]
        self.assertIn((204, "ann", f"token {own['id']} of ann"), [(row["status"], row["user"], row["detail"]) for row in audit])
        self.assertIn((403, "ann"), [(row["status"], row["user"]) for row in audit if row["path"] == path])
        self.assertNotIn(own["token"], json.dumps(audit))

    def test_tokens_survive_a_crash_and_are_kept_as_hashes(self):
        _, token = self.new("ann")
        self.broker.kill()
        self.broker.start()
        self.assertEqual(self.status(token, path="/api/v1/broker"), 200)
        with open(os.path.join(self.broker.folder, "data", "tokens")) as file:
            self.assertNotIn(token.split("_")[2], file.read())
        rows = self.root.ctl("token", "list", "ann").stdout
        self.assertIn(token.split("_")[1], rows)


if __name__ == "__main__":
    unittest.main()
