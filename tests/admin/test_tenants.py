"""Tenants: made while the broker runs, confined to their own names, held to their quotas in every protocol; sample code that works."""

import json
import os
import subprocess
import sys
import time
import unittest

from broker import BINARY
from operator_tools import Operator, broker_with_users, until

POST = {"messages": [{"body": "one"}]}


class Tenants(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = broker_with_users('[security]\nusers = "{users}"\n[[tenant]]\nname = "fixed"\nqueues_max = 3\n', root="secret-r")
        cls.root = Operator(cls.broker, "root", "secret-r")
        cls.nobody = Operator(cls.broker)

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    def ctl(self, *arguments):
        said = self.root.ctl("tenant", *arguments)
        self.assertEqual(said.returncode, 0, said.stderr)
        return said.stdout

    def tenant(self, name, *quotas):
        """A new tenant: its administrator, and all that was printed."""
        made = json.loads(self.ctl("add", name, "--json", *quotas))
        return Operator(self.broker, made["administrator"], made["password"]), made

    def send(self, operator, queue, *options, body="one"):
        command = [BINARY, "send", queue, "--body", body, "--user", operator.user, "--password", operator.password]
        command += ["--url", f"tcp://127.0.0.1:{self.broker.openwire}", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def iron(self, operator, project, queue, body=POST, verb="messages"):
        headers = {"Authorization": f"OAuth {operator.user}:{operator.password}", "Content-Type": "application/json"}
        return self.nobody.request("POST", f"/3/projects/{project}/queues/{queue}/{verb}", body, headers)

    def test_the_samples_work_and_the_rest_is_valid(self):
        _, made = self.tenant("acme")
        environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
        for command, language in ((["bash", "-e"], "curl"), ([sys.executable, "-"], "python")):
            said = subprocess.run(command, input=made["samples"][language], capture_output=True, text=True, timeout=60, env=environment)
            self.assertEqual(said.returncode, 0, f"{language}: {said.stderr}")
            self.assertIn("hello", said.stdout, language)
        for language in ("node", "go", "java"):
            self.assertNotRegex(made["samples"][language], r"\{(tenant|user|password|http|amqp|openwire)\}", language)
            self.assertIn(made["password"], made["samples"][language])
        self.assertIn(f":{self.broker.openwire}", made["samples"]["java"])
        shown = self.ctl("add", "printed")
        for text in ("printed.admin", "--- java ---", f"127.0.0.1:{self.broker.amqp}"):
            self.assertIn(text, shown)

    def test_a_tenant_has_its_own_names_alone(self):
        ann, _ = self.tenant("ann")
        bob, _ = self.tenant("bob")
        self.assertEqual(self.send(ann, "ann.orders").returncode, 0)
        self.assertIn("no permission", self.send(ann, "bob.orders").stderr)
        self.assertEqual(self.iron(bob, "bob", "orders")[0], 201)
        self.assertEqual(self.iron(bob, "ann", "orders")[0], 403)
        self.assertEqual([row["name"] for row in ann.api("GET", "queues")["items"]], ["ann.orders"])
        self.assertEqual([row["name"] for row in ann.api("GET", "tenants")["items"]], ["ann"])
        for method, path, body in [
            ("GET", "tenants/bob", None),
            ("PUT", "tenants/ann", {"queues_max": 0}),
            ("POST", "tenants", {"name": "more"}),
            ("DELETE", "tenants/ann", None),
            ("GET", "queues/bob.orders", None),
            ("GET", "audit", None),
            ("POST", "broker/drain", None),
        ]:
            self.assertEqual(ann.request(method, f"/api/v1/{path}", body)[0], 403, f"{method} {path}")
        self.assertEqual(self.root.request("GET", "/api/v1/queues/bob.orders")[0], 200, "other users as before")

    def test_its_administrator_manages_its_users_alone(self):
        owner, _ = self.tenant("own")
        app = owner.api("POST", "users", {"name": "own.app"})
        self.assertEqual(app["groups"], ["tenant:own"])
        app = Operator(self.broker, "own.app", app["password"])
        self.assertEqual(self.send(app, "own.a").returncode, 0)
        self.assertEqual({row["name"] for row in owner.api("GET", "users")["items"]}, {"own.admin", "own.app"})
        token = owner.api("POST", "tokens", None)["token"]
        self.assertTrue(token.startswith("prt_"))
        owner.api("POST", "tokens", {"user": "own.app", "scope": "messages"})
        for who, method, path, body, want in [
            (owner, "POST", "users", {"name": "root2"}, 403),
            (owner, "POST", "users", {"name": "own.b", "groups": ["admins"]}, 403),
            (owner, "POST", "users", {"name": "own.b", "groups": ["tenant:acme"]}, 403),
            (owner, "DELETE", "users/root", None, 404),
            (owner, "PUT", "users/root/password", {"password": "x"}, 404),
            (owner, "PUT", "users/own.app/groups", {"groups": ["tenant:acme:admin"]}, 403),
            (owner, "POST", "tokens", {"user": "root"}, 403),
            (owner, "PUT", "queues/own.made", None, 201),
            (owner, "DELETE", "queues/own.made", None, 204),
            (app, "DELETE", "queues/own.a", None, 403),
            (app, "POST", "users", {"name": "own.c"}, 403),
            (app, "GET", "users", None, 403),
        ]:
            self.assertEqual(who.request(method, f"/api/v1/{path}", body)[0], want, f"{who.user} {method} {path} {body}")
        owner.api("DELETE", "users/own.app")
        self.assertNotEqual(self.send(app, "own.a").returncode, 0)

    def test_queues(self):
        full, _ = self.tenant("queues", "--queues-max", "2")
        for queue in ("queues.a", "queues.b", "queues.a"):
            self.assertEqual(self.send(full, queue).returncode, 0, queue)
        text = "the tenant queues has its maximum of 2 queues"
        self.assertIn(text, self.send(full, "queues.c").stderr)
        for answer, want in ((self.iron(full, "queues", "c"), 403), (full.request("PUT", "/api/v1/queues/queues.c"), 507)):
            self.assertEqual(answer[0], want, answer)
            self.assertIn(text, answer[1])
        until("metrics", lambda: self.root.metric("postroad_tenant_queues").get('{tenant="queues"}') == 2)
        self.ctl("set", "queues", "--queues-max", "3")
        self.assertEqual(self.send(full, "queues.c").returncode, 0)
        self.assertEqual(full.api("GET", "tenants/queues")["usage"]["queues"], 3)

    def test_share(self):
        _, made = self.tenant("heavy", "--share", "3")
        self.assertEqual(made["quotas"]["share"], 3)
        status, said = self.root.request("PUT", "/api/v1/tenants/heavy", {"share": 1001})
        self.assertEqual(status, 400, said)
        self.assertIn("share is 1001; the maximum is 1000", said)
        self.ctl("set", "heavy", "--share", "0")
        self.assertIsNone(self.root.api("GET", "tenants/heavy")["quotas"]["share"])

    def test_messages_and_bytes(self):
        full, _ = self.tenant("full", "--messages-max", "2")
        for _ in range(2):
            self.assertEqual(self.send(full, "full.a").returncode, 0)
        text = "the tenant full is at the limit (messages_max = 2)"
        self.assertIn(text, self.send(full, "full.b").stderr)
        for answer, want in ((self.iron(full, "full", "c"), 503), (full.request("POST", "/api/v1/queues/full.a/messages", {"body": "x"}), 507)):
            self.assertEqual(answer[0], want, answer)
            self.assertIn(text, answer[1])
        self.ctl("set", "full", "--messages-max", "0", "--bytes-max", "1000")
        self.assertIn("bytes_max = 1000", self.send(full, "full.a", body="x" * 2000).stderr)

    def test_connections(self):
        busy, _ = self.tenant("busy", "--connections-max", "1")
        url = f"tcp://127.0.0.1:{self.broker.openwire}"
        command = [BINARY, "receive", "busy.a", "--user", busy.user, "--password", busy.password, "--url", url, "--follow"]
        reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            open_now = lambda: self.root.api("GET", "tenants/busy")["usage"]["connections"]
            until("the connection counts", lambda: open_now() == 1)
            text = "the tenant busy has its maximum of 1 connections"
            self.assertIn(text, self.send(busy, "busy.a").stderr)
            status, said = self.iron(busy, "busy", "a")
            self.assertEqual(status, 503)
            self.assertIn(text, said)
            self.assertEqual(busy.request("GET", "/api/v1/tenants")[0], 200, "its administrator still sees why")
        finally:
            reader.kill()
            reader.communicate()
        until("the connection is gone", lambda: open_now() == 0)
        self.assertEqual(self.send(busy, "busy.a").returncode, 0)

    def test_rate(self):
        fast, _ = self.tenant("fast", "--messages-per-second-max", "10")
        begun = time.monotonic()
        self.assertEqual(self.send(fast, "fast.a", "--count", "30").returncode, 0)
        self.assertGreater(time.monotonic() - begun, 1.5, "ten at once, and ten in each second")
        # A batch may be ahead; the next one waits no longer than a few seconds.
        self.assertEqual(self.iron(fast, "fast", "a", {"messages": [{"body": "x"}] * 100})[0], 201)
        status, said = self.iron(fast, "fast", "a")
        self.assertEqual(status, 503, said)
        self.assertIn("sends more than 10 messages in a second", said)

    def test_bad_input_and_the_end(self):
        for arguments, want in [
            (["add", "a.b"], "not a valid tenant name"),
            (["add", "fixed"], "exists already"),
            (["set", "fixed", "--queues-max", "1"], "is in the configuration file"),
            (["show", "nobody"], "there is no tenant"),
        ]:
            said = self.root.ctl("tenant", *arguments)
            self.assertNotEqual(said.returncode, 0, arguments)
            self.assertIn(want, said.stderr, arguments)
        status, said = self.root.request("POST", "/api/v1/tenants", {"name": "x", "queue_max": 1})
        self.assertEqual(status, 400)
        self.assertIn("connections_max, queues_max", said)
        status, said = self.root.request("POST", "/api/v1/tenants", {"name": "x", "queues_max": -1})
        self.assertEqual((status, "use a number" in said), (400, True))
        gone, _ = self.tenant("gone")
        self.send(gone, "gone.a")
        said = self.root.ctl("tenant", "delete", "gone")
        self.assertIn("has 1 queues; delete them first", said.stderr)
        gone.api("DELETE", "queues/gone.a")
        gone.api("POST", "access-keys", {})
        gone.api("POST", "tokens", None)
        owned = lambda what: [row for row in self.root.api("GET", what)["items"] if row["user"] == gone.user]
        self.assertEqual([len(owned(what)) for what in ("access-keys", "tokens")], [1, 1])
        self.ctl("delete", "gone")
        self.assertEqual(gone.request("GET", "/api/v1/queues")[0], 401, "its users are gone with it")
        self.assertEqual(self.root.request("GET", "/api/v1/tenants/gone")[0], 404)
        again, _ = self.tenant("gone")
        self.assertEqual(again.user, gone.user)
        self.assertEqual([len(owned(what)) for what in ("access-keys", "tokens")], [0, 0], "they do not come back")

    def test_tenants_are_there_after_a_restart(self):
        kept, _ = self.tenant("kept", "--queues-max", "1")
        self.send(kept, "kept.a")
        self.broker.kill()
        self.broker.start()
        self.assertIn("its maximum of 1 queues", self.send(kept, "kept.b").stderr)
        self.assertEqual(self.root.api("GET", "tenants/kept")["quotas"]["queues_max"], 1)


if __name__ == "__main__":
    unittest.main()
