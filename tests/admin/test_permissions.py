"""Permissions over HTTP: the same rules for the admin API, IronMQ and SQS. The wrong user gets 403, the right one success."""

import datetime
import hashlib
import hmac
import json
import os
import signal
import subprocess
import unittest

from broker import BINARY, Broker
from operator_tools import Operator, add_user, until

PERMISSIONS = """
[security]
users = "{users}"

[[security.permission]]
users = ["ann"]
destinations = ["queue://orders.>"]
actions = ["read", "write", "create"]

[[security.permission]]
users = ["ann"]
destinations = ["queue://notes"]
actions = ["read"]

[[security.permission]]
users = ["root"]
destinations = ["queue://>", "topic://>"]
actions = ["read", "write", "create", "manage", "admin"]
"""


class Permissions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker("")
        cls.users = os.path.join(cls.broker.folder, "users")
        add_user(cls.users, "ann", "secret-a")
        add_user(cls.users, "root", "secret-r")
        cls.configure(PERMISSIONS)
        cls.broker.start()
        cls.ann = Operator(cls.broker, "ann", "secret-a")
        cls.root = Operator(cls.broker, "root", "secret-r")
        cls.nobody = Operator(cls.broker)

    @classmethod
    def configure(cls, text):
        with open(cls.broker.config, "w") as file:
            file.write(text.replace("{users}", cls.users))

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    def check(self, case, want, got):
        status, text = got
        self.assertEqual(status, want, f"{case}: {text}")
        if status == 403:
            self.assertIn("ann", text, case)

    def test_the_admin_api(self):
        message = {"body": "one"}
        for queue in ("orders.a", "bills.a"):
            self.check("root sends", 201, self.root.request("POST", f"/api/v1/queues/{queue}/messages", message))
        for method, path, body, right, wrong in [
            ("POST", "queues/orders.a/messages", message, 201, None),
            ("POST", "queues/bills.a/messages", message, None, 403),
            ("PUT", "queues/orders.new", None, 201, None),
            ("PUT", "queues/bills.new", None, None, 403),
            ("GET", "queues/orders.a", None, 200, None),
            ("GET", "queues/bills.a", None, None, 403),
            ("GET", "queues/orders.a/messages", None, 200, None),
            ("GET", "queues/bills.a/messages", None, None, 403),
            ("GET", "queues/orders.a/explain", None, 200, None),
            ("GET", "queues/bills.a/explain", None, None, 403),
            ("GET", "messages/ID:x/explain", None, None, 403),
            ("DELETE", "queues/orders.new", None, None, 403),
        ]:
            self.check(f"ann: {method} {path}", right or wrong, self.ann.request(method, f"/api/v1/{path}", body))
        for path in ("connections", "consumers", "alerts", "audit", "bridges", "ledger", "routes", "cluster"):
            self.check(f"ann: {path}", 403, self.ann.request("GET", f"/api/v1/{path}"))
            # A broker that stands alone has no cluster.
            want = 404 if path == "cluster" else 200
            self.check(f"root: {path}", want, self.root.request("GET", f"/api/v1/{path}"))
            self.check(f"nobody: {path}", 401, self.nobody.request("GET", f"/api/v1/{path}"))
        self.check("ann: overview", 200, self.ann.request("GET", "/api/v1/overview"))
        for user, want in ((self.ann, {"orders.a"}), (self.root, {"orders.a", "bills.a"})):
            names = {row["name"] for row in user.api("GET", "queues?filter=s.a")["items"]}
            self.assertEqual(names, want, user.user)
        self.check("root deletes", 204, self.root.request("DELETE", "/api/v1/queues/orders.new"))
        refused = [change for change in self.root.api("GET", "audit?limit=500")["items"] if change["status"] == 403]
        self.assertIn(("ann", "/api/v1/queues/bills.new"), [(change["user"], change["path"]) for change in refused])

    def iron(self, token, method, path, body=None):
        headers = {"Authorization": f"OAuth {token}", "Content-Type": "application/json"}
        return self.nobody.request(method, f"/3/projects/{path}", body, headers)

    def test_ironmq(self):
        ann, root = "ann:secret-a", "root:secret-r"
        post, reserve = {"messages": [{"body": "one"}]}, {"n": 1}
        for case, want, token, method, path, body in [
            ("ann posts", 201, ann, "POST", "orders/queues/iron/messages", post),
            ("ann reserves", 200, ann, "POST", "orders/queues/iron/reservations", reserve),
            ("root posts elsewhere", 201, root, "POST", "bills/queues/iron/messages", post),
            ("ann posts elsewhere", 403, ann, "POST", "bills/queues/iron/messages", post),
            ("ann reserves elsewhere", 403, ann, "POST", "bills/queues/iron/reservations", reserve),
            ("ann clears", 403, ann, "DELETE", "orders/queues/iron/messages", {}),
            ("root clears", 200, root, "DELETE", "orders/queues/iron/messages", {}),
        ]:
            self.check(case, want, self.iron(token, method, path, body))
        self.assertEqual(self.iron("ann:wrong", "POST", "orders/queues/iron/messages", post)[0], 401)

    def test_queues_that_the_broker_writes_to_for_another_one(self):
        ann, root = "ann:secret-a", "root:secret-r"
        to = lambda queue: {"subscribers": [{"name": "s", "url": f"ironmq:///{queue}"}]}
        push = lambda **settings: {"queue": {"type": "multicast", "push": settings}}
        alerts = {"alerts": [{"type": "fixed", "trigger": 1, "queue": "notes"}]}
        dead = {"dead_letter": {"queue_name": "notes", "max_reservations": 2}}
        for case, want, token, method, path, body in [
            ("ann pushes to her own queue", 200, ann, "PUT", "default/queues/orders.push", push(**to("orders.in"))),
            ("ann pushes elsewhere", 403, ann, "PUT", "default/queues/orders.other", push(**to("notes"))),
            ("ann subscribes", 403, ann, "POST", "default/queues/orders.push/subscribers", to("notes")),
            ("ann has errors", 403, ann, "PATCH", "default/queues/orders.push", push(error_queue="notes")),
            ("ann has alerts", 403, ann, "PUT", "default/queues/orders.alerts", {"queue": alerts}),
            ("ann has dead letters", 403, ann, "PUT", "default/queues/orders.dead", {"queue": dead}),
            ("ann's project has them", 200, ann, "PUT", "orders/queues/dead", {"queue": dead}),
            ("ann pushes in her project", 200, ann, "PUT", "orders/queues/moved", push(**to("notes"))),
            ("then in another one", 403, ann, "PATCH", "default/queues/orders.moved", push(retries=1)),
            ("root pushes elsewhere", 200, root, "PUT", "default/queues/orders.root", push(**to("notes"))),
            ("ann keeps that", 200, ann, "PATCH", "default/queues/orders.root", push(retries=1)),
        ]:
            self.check(case, want, self.iron(token, method, path, body))

    def key(self, user):
        """The id and secret of a new access key."""
        data = os.path.join(self.broker.folder, "data")
        command = [BINARY, "ctl", "key", "new", "--user", user, "--data", data, "--json"]
        said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        return [value for name, value in said.items() if name in ("id", "access_key_id", "secret")]

    def sqs(self, key, action, body):
        """A request with Signature Version 4."""
        text, host = json.dumps(body), f"127.0.0.1:{self.broker.http}"
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        headers = {"content-type": "application/x-amz-json-1.0", "host": host, "x-amz-date": now, "x-amz-target": f"AmazonSQS.{action}"}
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        digest = lambda data: hashlib.sha256(data.encode()).hexdigest()
        scope = f"{now[:8]}/us-east-1/sqs/aws4_request"
        to_sign = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n" + digest(f"POST\n/\n\n{lines}\n{names}\n{digest(text)}")
        signer = f"AWS4{key[1]}".encode()
        for part in scope.split("/"):
            signer = hmac.new(signer, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(signer, to_sign.encode(), hashlib.sha256).hexdigest()
        credential = f"AWS4-HMAC-SHA256 Credential={key[0]}/{scope}, SignedHeaders={names}, Signature={signature}"
        return self.nobody.request("POST", "/", body, {**headers, "Authorization": credential})

    def test_sqs(self):
        ann, root = self.key("ann"), self.key("root")
        until("the broker knows the keys", lambda: self.sqs(root, "CreateQueue", {"QueueName": "bills-sqs"})[0] == 200)
        until("both", lambda: self.sqs(ann, "ListQueues", {})[0] != 401 and "InvalidClientTokenId" not in self.sqs(ann, "ListQueues", {})[1])
        url = json.loads(self.sqs(root, "GetQueueUrl", {"QueueName": "bills-sqs"})[1])["QueueUrl"]
        sent = {"QueueUrl": url, "MessageBody": "one"}
        self.check("root sends", 200, self.sqs(root, "SendMessage", sent))
        self.check("ann sends", 403, self.sqs(ann, "SendMessage", sent))
        self.check("ann receives", 403, self.sqs(ann, "ReceiveMessage", {"QueueUrl": url}))
        self.check("root receives", 200, self.sqs(root, "ReceiveMessage", {"QueueUrl": url}))
        self.check("root makes a queue", 200, self.sqs(root, "CreateQueue", {"QueueName": "notes"}))
        target = "arn:aws:sqs:us-east-1:000000000000:notes"
        redrive = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": 1})}
        made = {"QueueName": "orders", "Attributes": redrive}
        self.check("ann has dead letters elsewhere", 403, self.sqs(ann, "CreateQueue", made))
        self.check("root has", 200, self.sqs(root, "CreateQueue", made))

    def test_ctl_from_another_machine(self):
        self.root.send("bills.ctl", "one")
        listed = self.root.ctl_over_http("queues", "--filter", "bills.ctl", "--json")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertEqual([json.loads(line)["messages"] for line in listed.stdout.splitlines()], [1])
        said = self.root.ctl_over_http("purge", "bills.ctl")
        self.assertIn("removed 1 messages from bills.ctl", said.stderr)
        for case, said, want in [
            ("a user without the permission", self.ann.ctl_over_http("connections"), "user ann has no permission"),
            ("a wrong password", self.root.ctl_over_http("queues", password="wrong"), "a user and its password"),
            ("no user", self.nobody.ctl_over_http("queues"), "a user and its password"),
            ("both places", self.root.ctl_over_http("queues", "--data", "data"), "cannot be used with"),
        ]:
            self.assertNotEqual(said.returncode, 0, case)
            self.assertIn(want, said.stderr, case)

    def test_sighup_changes_permissions(self):
        self.check("ann may not", 403, self.ann.request("GET", "/api/v1/routes"))
        more = '[[security.permission]]\nusers = ["ann"]\ndestinations = ["queue://>", "topic://>"]\nactions = ["admin"]\n'
        self.configure(PERMISSIONS + more)
        self.broker.process.send_signal(signal.SIGHUP)
        until("ann may", lambda: self.ann.request("GET", "/api/v1/routes")[0] == 200)
        self.configure(PERMISSIONS)
        self.broker.process.send_signal(signal.SIGHUP)
        until("ann may not again", lambda: self.ann.request("GET", "/api/v1/routes")[0] == 403)


if __name__ == "__main__":
    unittest.main()
