"""Tokens of an identity provider: admin API, IronMQ, OpenWire, the console's sign-in; bad ones, other keys, expiry."""

import hashlib
import hmac
import json
import os
import subprocess
import tempfile
import time
import unittest

from broker import BINARY
from issuer import Issuer, Key
from operator_tools import Operator, WithBroker, broker_with_users, until

CONFIG = """
[security]
users = "{users}"

[[security.group]]
name = "orders"

[[security.group]]
name = "operators"

[[security.permission]]
groups = ["orders"]
destinations = ["queue://orders.>"]
actions = ["read", "write", "create"]

[[security.permission]]
groups = ["operators"]
destinations = ["queue://>", "topic://>"]
actions = ["read", "write", "create", "manage", "admin"]

[security.oidc]
issuer = "{issuer}"
audience = ["postroad"]
leeway_seconds = 0
"""


class Oidc(WithBroker):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.issuer = Issuer(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.issuer.close()
        cls.folder.cleanup()

    def setUp(self):
        self.broker = broker_with_users(CONFIG.replace("{issuer}", self.issuer.url), root="secret-r")

    def get(self, token, path="/api/v1/broker"):
        return Operator(self.broker).request("GET", path, headers={"Authorization": f"Bearer {token}"})

    def iron(self, token):
        headers = {"Authorization": f"OAuth {token}", "Content-Type": "application/json"}
        path = "/3/projects/orders/queues/iron/messages"
        return Operator(self.broker).request("POST", path, {"messages": [{"body": "one"}]}, headers)

    def send(self, user, token, queue="orders.a"):
        command = [BINARY, "send", queue, "--body", "one", "--user", user, "--password", token]
        command += ["--url", f"tcp://127.0.0.1:{self.broker.openwire}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def operator(self):
        """What the API answers an operator."""
        return lambda path: json.loads(self.get(self.issuer.token("olga", ["operators"]), f"/api/v1/{path}")[1])

    def log(self):
        with open(os.path.join(self.broker.folder, "err")) as file:
            return file.read()

    def test_a_token_stands_for_its_user_with_the_groups_that_it_names(self):
        orders, other = self.issuer.token("ann", ["orders", "x"]), self.issuer.token("zoe", ["x"])
        self.assertEqual(self.get(orders)[0], 200)
        self.assertEqual(self.get(orders, "/api/v1/audit")[0], 403)
        self.assertEqual(self.iron(orders)[0], 201)
        self.assertEqual(self.send("whoever", orders).returncode, 0)
        self.assertIn("no permission", self.send("ann", orders, "bills.a").stderr)
        self.assertIn("no permission", self.send("zoe", other).stderr)
        self.assertEqual(self.iron(other)[0], 403)
        self.assertEqual(self.send("root", "secret-r").stderr.count("wrong"), 0, "users with passwords log in as before")
        rows = self.operator()("queues?limit=50")["items"]
        self.assertIn("orders.a", [row["name"] for row in rows])
        self.assertIn("/.well-known/openid-configuration", self.issuer.requests)

    def test_bad_tokens_are_refused_with_the_reason_and_audited(self):
        stranger, now = Key(self.folder.name, "stranger"), int(time.time())
        with_public_key = lambda message: hmac.new(self.issuer.keys[0].pem, message, hashlib.sha256).digest()
        lies = stranger.sign
        for user, change, reason in [
            ("expired", {"exp": now - 60}, "the token has expired"),
            ("early", {"nbf": now + 600}, "not valid yet"),
            ("audience", {"aud": "billing"}, "for another audience; postroad is right"),
            ("issuer", {"iss": "https://evil.example"}, f"not from the issuer {self.issuer.url}"),
            ("key", {"sign": lies}, "signature is wrong"),
            ("unknown", {"key": stranger}, "is not among the keys of the issuer"),
            ("none", {"header": {"alg": "none"}, "sign": lambda _: b""}, "algorithm is not allowed; RS256, ES256 or EdDSA are"),
            ("secret", {"header": {"alg": "HS256"}, "sign": with_public_key}, "algorithm is not allowed"),
        ]:
            token = self.issuer.token(user, ["operators"], **change)
            status, body = self.get(token)
            self.assertEqual(status, 401, user)
            self.assertIn(reason, json.loads(body)["error"], user)
            status, body = self.iron(token)
            self.assertEqual(status, 401, user)
            self.assertIn(reason, body, user)
            said = self.send("root", token)
            self.assertNotEqual(said.returncode, 0, user)
            self.assertNotIn(reason, said.stderr, "a client of OpenWire hears the reason from the log alone")
            until(f"{user} in the log", lambda: [line for line in self.log().splitlines() if "login failed" in line and reason in line])
            audit = [row["detail"] or "" for row in self.operator()("audit?limit=100")["items"] if row["status"] == 401]
            self.assertTrue([detail for detail in audit if reason in detail], user)
        self.assertNotIn("eyJ", self.log(), "tokens are not logged")

    def test_failures_count_as_those_of_passwords_do(self):
        bad = lambda user: self.issuer.token(user, ["operators"], aud="billing")
        good = self.issuer.token("ann", ["operators"])
        statuses = [self.get(bad("ann"))[0] for _ in range(5)]
        self.assertEqual(statuses[:4], [401] * 4)
        self.assertEqual(self.get(good)[0], 429, "a good token is refused as well")
        self.assertEqual(self.iron(good)[0], 429)
        self.assertNotEqual(self.send("ann", good).returncode, 0)
        self.assertEqual(self.get(self.issuer.token("bob", ["operators"]))[0], 200, "other users are not")

    def test_a_new_key_is_fetched_when_a_token_names_it(self):
        self.assertEqual(self.get(self.issuer.token("ann"))[0], 200)
        key = Key(self.folder.name, "second")
        before = self.issuer.keys
        self.issuer.keys = [key]
        try:
            fetches = self.issuer.requests.count("/keys")
            # Until then each failure counts, so there are few, each of another user.
            for attempt in range(20):
                status = self.get(self.issuer.token(f"ann{attempt}", key=key))[0]
                if status == 200:
                    break
                time.sleep(0.5)
            self.assertEqual(status, 200, "the new key is known")
            self.assertEqual(self.issuer.requests.count("/keys"), fetches + 1)
            self.assertEqual(self.get(self.issuer.token("bob", key=before[0]))[0], 401, "a withdrawn key")
            self.assertEqual(self.get(self.issuer.token("bob", key=before[0]))[0], 401)
            self.assertLessEqual(self.issuer.requests.count("/keys"), fetches + 2, "made-up tokens cause no flood")
        finally:
            self.issuer.keys = before

    def test_keys_are_fetched_on_after_a_new_provider_could_not_be_written(self):
        self.assertEqual(self.get(self.issuer.token("ann"))[0], 200)
        with open(self.broker.config) as file:
            other = file.read().replace(self.issuer.url, "http://127.0.0.1:9/other")
        # The broker writes the new file beside the old one first.
        obstacle = f"{self.broker.config}.new"
        os.mkdir(obstacle)
        new = os.path.join(self.broker.folder, "other.toml")
        with open(new, "w") as file:
            file.write(other)
        said = Operator(self.broker).ctl("config", "apply", new)
        self.assertNotEqual(said.returncode, 0, said.stdout)
        os.rmdir(obstacle)
        before, key = self.issuer.keys, Key(self.folder.name, "later")
        self.issuer.keys = [key]
        try:
            status = lambda user: self.get(self.issuer.token(user, key=key))[0]
            users = iter(range(20))
            until("the new key is fetched", lambda: time.sleep(0.5) or status(f"ann{next(users)}") == 200)
        finally:
            self.issuer.keys = before

    def test_a_connection_and_a_session_end_with_their_token(self):
        token = self.issuer.token("ann", ["orders"], exp=int(time.time()) + 6)
        command = [BINARY, "receive", "orders.none", "--user", "ann", "--password", token, "--count", "1"]
        command += ["--url", f"tcp://127.0.0.1:{self.broker.openwire}"]
        body = {"user": "", "password": token}
        status, text = Operator(self.broker).request("POST", "/api/v1/session", body, {"Content-Type": "application/json"})
        self.assertEqual((status, json.loads(text)["user"]), (200, "oidc:ann"))
        receiving = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            connected = lambda: any(row["user"] == "oidc:ann" for row in self.operator()("connections")["items"])
            until("it is connected", connected)
            until("its connection has ended", lambda: not connected())
            self.assertEqual(self.get(token)[0], 401)
            self.assertIn("its token has expired", self.log())
        finally:
            receiving.kill()
            receiving.communicate()


if __name__ == "__main__":
    unittest.main()
