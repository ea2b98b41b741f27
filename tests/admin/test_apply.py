"""`postroad ctl apply`: the declaration of a tenant is planned, refused with the line, applied, and the same twice is no change."""

import json
import os
import subprocess
import unittest

from broker import BINARY
from operator_tools import Operator, broker_with_users, until

GOOD = """tenant = "acme"

[[queue]]
name = "acme.orders"

[[queue]]
name = "acme.audit"

[[user]]
name = "acme.app"
password_env = "ACME_APP"

[[user]]
name = "acme.second"

[[route]]
name = "acme.tap"
from = "queue://acme.orders"
mode = "copy"
to = [{ destination = "queue://acme.audit" }]

[[alert]]
name = "acme.deep"
on = "depth"
above = 1
destinations = ["queue://acme.orders"]
to = ["queue://acme.alerts"]
"""


class Apply(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = broker_with_users('[security]\nusers = "{users}"\n', root="secret-r")
        cls.root = Operator(cls.broker, "root", "secret-r")

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    def tenant(self, name, *quotas):
        made = json.loads(self.root.ctl("tenant", "add", name, "--json", *quotas).stdout)
        return Operator(self.broker, made["administrator"], made["password"])

    def apply(self, operator, text, *options, password="wonder"):
        file = os.path.join(self.broker.folder, "declared.toml")
        with open(file, "w") as out:
            out.write(text)
        os.environ["ACME_APP"] = password
        return operator.ctl_over_http("apply", file, *options)

    def applied(self, operator, text, *options, **more):
        said = self.apply(operator, text, *options, **more)
        self.assertEqual(said.returncode, 0, said.stderr)
        return said.stdout

    def send(self, user, password, queue):
        command = [BINARY, "send", queue, "--body", "one", "--user", user, "--password", password]
        command += ["--url", f"tcp://127.0.0.1:{self.broker.openwire}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def test_a_tenants_administrator_plans_applies_and_changes(self):
        acme = self.tenant("acme")
        messages = lambda queue: self.root.api("GET", f"queues/{queue}")["messages"]
        planned = self.applied(acme, GOOD, "--dry-run")
        for line in ("+ queue acme.orders", "+ user  acme.app", "+ route acme.tap", "+ alert acme.deep"):
            self.assertIn(line, planned)
        self.assertIn("tenant acme: 6 to create, 0 to change, 0 to delete, 0 unchanged", planned)
        self.assertEqual(acme.api("GET", "queues")["items"], [], "a plan makes nothing")
        self.assertEqual(len(acme.api("GET", "users")["items"]), 1)

        said = self.applied(acme, GOOD)
        self.assertIn("6 created", said)
        made_up = said.split("password ")[1].split(" ")[0]
        self.assertEqual(self.send("acme.app", "wonder", "acme.orders").returncode, 0)
        self.assertEqual(self.send("acme.second", made_up, "acme.orders").returncode, 0)
        self.assertEqual(messages("acme.audit"), 2, "the route copies at once")
        until("the alert comes as a message", lambda: self.root.request("GET", "/api/v1/queues/acme.alerts")[0] == 200 and messages("acme.alerts"))
        self.assertIn("tenant acme: 0 created, 0 changed, 0 deleted, 6 unchanged", self.applied(acme, GOOD))

        changed = GOOD.replace("above = 1", "above = 5").replace('name = "acme.second"', 'name = "acme.second"\nadministrator = true')
        said = self.applied(acme, changed, password="land")
        for line in ("~ user  acme.app", "another password", "~ user  acme.second", "tenant:acme:admin", "~ alert acme.deep", '"above":5'):
            self.assertIn(line, said)
        self.assertIn("0 created, 3 changed, 0 deleted, 3 unchanged", said)
        self.assertNotEqual(self.send("acme.app", "wonder", "acme.orders").returncode, 0)
        self.assertEqual(self.send("acme.app", "land", "acme.orders").returncode, 0)

        less = changed.split("[[route]]")[0]
        self.assertIn("0 deleted", self.applied(acme, less, password="land"))
        self.assertEqual(messages("acme.audit"), 3)
        said = self.applied(acme, less, "--prune", password="land")
        self.assertIn("- route acme.tap", said)
        self.assertIn("2 deleted", said)
        self.assertEqual(self.send("acme.app", "land", "acme.orders").returncode, 0)
        self.assertEqual(messages("acme.audit"), 3, "the route is gone")

        audit = [change for change in self.root.api("GET", "audit?limit=100")["items"] if change["path"].endswith("/apply")]
        self.assertTrue(all(change["user"] == "acme.admin" for change in audit), audit)
        details = [change["detail"] for change in audit]
        self.assertIn("delete route acme.tap, delete alert acme.deep", details)
        self.assertTrue(any(detail.startswith("dry run: create queue acme.orders, create queue acme.audit") for detail in details), details)

    def test_faults_have_their_line_and_nothing_is_changed(self):
        lab = self.tenant("lab", "--queues-max", "2")
        cases = [
            ('tenant = "lab"\n[[queue]]\nname = "lab.a"\n[[queue]]\nname = "orders"\n', "line 5: [[queue]]: name \"orders\" is not that of a queue of the tenant, which has queue://lab.>"),
            ('[[queue]]\nname = "lab.a"\n[[queue]]\nnam = "lab.b"\n', "line 4: [[queue]]: unknown field `nam`, expected `name`"),
            ('[[queue]]\nname = "lab.a"\n[[quue]]\n', "unknown field `quue`, expected one of `tenant`, `queue`"),
            ('[[queue]]\nname = "lab.a"\n[[queue]]\nname = \n', "at line 4"),
            ("".join(f'[[queue]]\nname = "lab.{n}"\n' for n in range(3)), "line 5: [[queue]]: the tenant lab has its maximum of 2 queues"),
            ('[[user]]\nname = "root"\n', "line 2: [[user]]: \"root\" is not such a name; a user of the tenant lab has a name such as lab.app"),
            ('[[user]]\nname = "lab.a"\npassword = "x"\n', "line 1: password does not belong into the file"),
            ('[[user]]\nname = "lab.admin"\n', "you cannot change your own groups"),
            ('[[queue]]\nname = "lab.a"\n[[route]]\nname = "lab.r"\nfrom = "queue://lab.a"\nto = [{ destination = "queue://acme.orders" }]\n', "line 6: [[route]]: to queue://acme.orders is outside of the tenant"),
            ('[[route]]\nname = "lab.r"\nfrom = "queue://>"\nto = [{ destination = "queue://lab.a" }]\n', "line 3: [[route]]: from queue://> is outside of the tenant"),
            ('[[route]]\nname = "lab.r"\nfrom = "queue://lab.a"\nto = [{ destination = "queue://lab.a" }]\n', "routes form a cycle"),
            ('[[alert]]\nname = "lab.d"\non = "length"\n', "line 3: [[alert]]: on is \"length\"; right is one of depth"),
            ('[[alert]]\nname = "lab.d"\non = "depth"\nabove = 1\ndestinations = ["queue://lab.>"]\nto = ["http://127.0.0.1/"]\n', "line 6: [[alert]]: to must have queues and topics of the tenant"),
            ('tenant = "acme2"\n', "no permission"),
        ]
        for text, want in cases:
            for options in (["--dry-run"], []):
                said = self.apply(lab, text, *options)
                self.assertEqual(said.returncode, 1, text)
                self.assertIn(want, said.stderr, text)
        self.assertEqual(lab.api("GET", "queues")["items"], [])
        self.assertEqual(len(lab.api("GET", "users")["items"]), 1)
        said = self.apply(self.root, "[[queue]]\nname = 'lab.a'\n")
        self.assertIn('begin the file with tenant = "NAME"', said.stderr)
        status, text = lab.request("POST", "/api/v1/tenants/lab/apply", {"routes": [{"name": "lab.r"}]})
        self.assertEqual(status, 400)
        self.assertIn("route 1: ", text)

    def test_rules_last_over_a_restart_and_go_with_their_tenant(self):
        kept = self.tenant("kept")
        text = GOOD.replace("acme", "kept").replace('[[user]]\nname = "kept.second"\n', "")
        self.applied(kept, text)
        self.broker.kill()
        self.broker.start()
        self.assertIn("0 created, 0 changed, 0 deleted, 5 unchanged", self.applied(kept, text))
        self.assertEqual(self.send("kept.app", "wonder", "kept.orders").returncode, 0)
        self.assertEqual(self.root.api("GET", "queues/kept.audit")["messages"], 1)
        for queue in ("kept.orders", "kept.audit"):
            self.root.api("DELETE", f"queues/{queue}")
        self.assertEqual(self.root.ctl("tenant", "delete", "kept").returncode, 0)
        routes = [route["name"] for route in self.root.api("GET", "routes")["items"]]
        self.assertNotIn("kept.tap", routes)
        again = self.tenant("kept")
        self.assertIn("+ route kept.tap", self.applied(again, text, "--dry-run"), "another tenant of this name has none")


if __name__ == "__main__":
    unittest.main()
