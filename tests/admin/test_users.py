"""Users that are added, changed and removed while the broker runs, with their groups."""

import json
import os
import subprocess
import unittest

from broker import BINARY, Broker
from operator_tools import Operator, add_user, until

CONFIG = """
[security]
users = "{users}"

[[security.group]]
name = "billing"

[[security.permission]]
groups = ["billing"]
destinations = ["queue://bills.>"]
actions = ["read", "write"]

[[security.permission]]
users = ["root"]
destinations = ["queue://>", "topic://>"]
actions = ["read", "write", "create", "manage", "admin"]
"""


class Users(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker("")
        users = os.path.join(cls.broker.folder, "users")
        add_user(users, "root", "secret-r")
        with open(cls.broker.config, "w") as file:
            file.write(CONFIG.replace("{users}", users))
        cls.broker.start()
        cls.root = Operator(cls.broker, "root", "secret-r")

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    def ctl(self, *arguments, password=None):
        """What `postroad ctl user` prints, which must succeed; `password` is its standard input."""
        data = os.path.join(self.broker.folder, "data")
        command = [BINARY, "ctl", "user", *arguments, "--data", data]
        said = subprocess.run(command, input=f"{password}\n", capture_output=True, text=True, timeout=60)
        self.assertEqual(said.returncode, 0, said.stderr)
        return said.stdout

    def send(self, user, password, queue="bills.a"):
        command = [BINARY, "send", queue, "--body", "one", "--user", user, "--password", password]
        command += ["--url", f"tcp://127.0.0.1:{self.broker.openwire}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def works(self, user, password, queue="bills.a"):
        return self.send(user, password, queue).returncode == 0

    def test_a_user_comes_gets_groups_and_goes_without_a_reload(self):
        self.ctl("add", "bob", "--groups", "billing", password="first")
        self.assertTrue(self.works("bob", "first"))
        self.assertIn("no permission", self.send("bob", "first", "orders.a").stderr)
        self.ctl("password", "bob", password="second")
        self.assertFalse(self.works("bob", "first"))
        self.assertTrue(self.works("bob", "second"), "another password keeps the groups")
        self.ctl("groups", "bob")
        self.assertIn("no permission", self.send("bob", "second").stderr)
        self.ctl("groups", "bob", "billing", "other")
        listed = {row["name"]: row["groups"] for row in map(json.loads, self.ctl("list", "--json").splitlines())}
        self.assertEqual(listed["bob"], ["billing", "other"])
        self.broker.kill()
        self.broker.start()
        self.assertTrue(self.works("bob", "second"), "all of it is durable")
        token = json.loads(self.root.ctl("token", "new", "bob", "--json").stdout)["token"]
        receiving = [BINARY, "receive", "bills.none", "--user", "bob", "--password", "second"]
        receiving += ["--url", f"tcp://127.0.0.1:{self.broker.openwire}"]
        receiving = subprocess.Popen(receiving, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            connected = lambda: any(row["user"] == "bob" for row in self.root.api("GET", "connections")["items"])
            until("it is connected", connected)
            self.ctl("remove", "bob")
            until("its connection has ended", lambda: not connected(), 5)
        finally:
            receiving.kill()
            receiving.wait()
        self.assertFalse(self.works("bob", "second"))
        self.ctl("add", "bob", "--groups", "billing", password="third")
        self.assertFalse(self.works("bob", token), "the tokens of a removed user do not come back")

    def test_a_password_can_be_made_up(self):
        password = self.ctl("add", "eve", "--groups", "billing", "--generate").strip()
        self.assertGreaterEqual(len(password), 40)
        self.assertTrue(self.works("eve", password))

    def test_who_may_and_what_is_refused(self):
        self.ctl("add", "zoe", password="old")
        zoe, path = Operator(self.broker, "zoe", "old"), "/api/v1/users"
        for case, want, got in [
            ("zoe lists", 403, zoe.request("GET", path)),
            ("zoe adds", 403, zoe.request("POST", path, {"name": "x", "password": "x"})),
            ("zoe makes herself a member", 403, zoe.request("PUT", f"{path}/zoe/groups", {"groups": ["billing"]})),
            ("another's password", 403, zoe.request("PUT", f"{path}/root/password", {"password": "x"})),
            ("her own without the old one", 403, zoe.request("PUT", f"{path}/zoe/password", {"password": "new"})),
            ("with a wrong one", 403, zoe.request("PUT", f"{path}/zoe/password", {"password": "new", "current": "x"})),
            ("with the old one", 204, zoe.request("PUT", f"{path}/zoe/password", {"password": "new", "current": "old"})),
            ("twice", 409, self.root.request("POST", path, {"name": "zoe", "password": "x"})),
            ("a bad name", 400, self.root.request("POST", path, {"name": "a b", "password": "x"})),
            ("a bad group", 400, self.root.request("PUT", f"{path}/zoe/groups", {"groups": ["a,b"]})),
            ("a stranger", 404, self.root.request("PUT", f"{path}/none/groups", {"groups": []})),
            ("oneself", 409, self.root.request("DELETE", f"{path}/root")),
            ("a stranger again", 404, self.root.request("DELETE", f"{path}/none")),
        ]:
            self.assertEqual(got[0], want, f"{case}: {got[1]}")
        self.assertTrue(Operator(self.broker, "zoe", "new").request("GET", "/api/v1/broker")[0] == 200)
        audit = [(row["user"], row["method"], row["path"], row["status"]) for row in self.root.api("GET", "audit?limit=500")["items"]]
        self.assertIn(("zoe", "PUT", f"{path}/zoe/groups", 403), audit)
        self.assertIn(("zoe", "PUT", f"{path}/zoe/password", 204), audit)
        self.assertNotIn("secret", json.dumps(audit))


if __name__ == "__main__":
    unittest.main()
