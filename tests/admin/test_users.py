"""Users that are added, changed and removed while the broker runs, with their groups."""

import json
import os
import socket
import subprocess
import unittest

from broker import BINARY, Broker
from operator_tools import Operator, broker_with_users, until

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
        cls.broker = broker_with_users(CONFIG, root="secret-r")
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

    def test_access_keys_of_a_removed_user_do_not_come_back(self):
        users_of_keys = lambda: sorted(row["user"] for row in self.root.api("GET", "access-keys")["items"])
        for name in ("kay", "kayla"):
            self.ctl("add", name, password="secret")
        for name in ("kay", "kay", "kayla"):
            said = self.root.ctl("key", "new", "--user", name, "--json")
            self.assertEqual(said.returncode, 0, said.stderr)
        self.assertEqual(users_of_keys(), ["kay", "kay", "kayla"])
        status, said = self.root.request("DELETE", "/api/v1/users/none")
        self.assertEqual((status, len(users_of_keys())), (404, 3), said)
        self.ctl("remove", "kay")
        self.assertEqual(users_of_keys(), ["kayla"])
        self.ctl("add", "kay", password="another")
        self.assertEqual(users_of_keys(), ["kayla"])
        with open(os.path.join(self.broker.folder, "data", "access-keys")) as file:
            rows = [line.split()[2] for line in file if not line.startswith("#")]
        self.assertEqual(rows, ["kayla"])
        self.ctl("remove", "kayla")
        self.assertEqual(users_of_keys(), [])

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


class WithoutScram(unittest.TestCase):
    def plain(self, broker, response):
        """The outcome that the broker gives to PLAIN over AMQP."""
        described = lambda code, value: bytes((0, 0x53, code)) + value
        value = bytes((0xA3, 5)) + b"PLAIN" + bytes((0xA0, len(response))) + response
        body = described(0x41, bytes((0xC0, len(value) + 1, 2)) + value)
        with socket.create_connection(("127.0.0.1", broker.amqp), 10) as peer:
            peer.settimeout(10)
            peer.sendall(b"AMQP\x03\x01\x00\x00" + (len(body) + 8).to_bytes(4, "big") + bytes((2, 1, 0, 0)) + body)
            said = b""
            while b"\0\x53\x44" not in said:
                part = peer.recv(1 << 16)
                if not part:
                    break
                said += part
            return said.partition(b"\0\x53\x44")[2]

    def test_a_file_with_argon2id_alone_lets_every_client_in_and_offers_no_scram(self):
        broker = Broker("")
        users = os.path.join(broker.folder, "users")
        command = [BINARY, "user", "add", "--users", users, "--no-scram", "root"]
        subprocess.run(command, input="secret-r\n", text=True, check=True, capture_output=True)
        with open(broker.config, "w") as file:
            file.write(f'memory_bytes = {64 << 20}\n[security]\nusers = "{users}"\n')
        broker.start()
        try:
            root = Operator(broker, "root", "secret-r")
            root.api("POST", "users", {"name": "late", "password": "secret-l"})
            with open(users) as file:
                lines = [line.split() for line in file if not line.startswith("#")]
            self.assertEqual([line[0] for line in lines], ["late", "root"])
            for line in lines:
                self.assertEqual(len(line), 2, "later users follow the others of the file")
                self.assertRegex(line[1], r"^\$argon2id\$v=19\$m=7168,t=5,p=1\$")
            with socket.create_connection(("127.0.0.1", broker.amqp), 10) as peer:
                peer.settimeout(10)
                peer.sendall(b"AMQP\x03\x01\x00\x00")
                offered = b""
                while b"PLAIN" not in offered:
                    offered += peer.recv(1 << 16)
                self.assertNotIn(b"SCRAM", offered)
            for password, want in (("secret-l", 0), ("secret-r", 1)):
                command = [BINARY, "send", "a", "--body", "one", "--user", "late", "--password", password]
                command += ["--url", f"tcp://127.0.0.1:{broker.openwire}"]
                said = subprocess.run(command, capture_output=True, text=True, timeout=60)
                self.assertEqual(said.returncode, want, said.stderr)
            for password, want in ((b"secret-l", b"\x50\x00"), (b"secret-r", b"\x50\x01")):
                self.assertIn(want, self.plain(broker, b"\0late\0" + password), "AMQP with PLAIN")
            self.assertEqual(Operator(broker, "late", "secret-r").request("GET", "/api/v1/queues")[0], 401)
            self.assertTrue(broker.is_alive())
        finally:
            broker.stop()


if __name__ == "__main__":
    unittest.main()
