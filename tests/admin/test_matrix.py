"""The matrix of permissions: each action by each role in each protocol is allowed or refused as docs/features/permissions.md says, and each refusal is recorded."""

import json
import os
import socket
import struct
import sys
import unittest

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "hostile"))

import amqp_wire
import openwire
from broker import Broker
from operator_tools import Operator, add_user, until
from test_permissions import Permissions

ACTIONS = ("read", "write", "create", "manage", "admin")

# A role has the one action of its name on the queues of the test, `all` each of them, `none` nothing.
ROLES = (*ACTIONS, "all", "none")

# Of each operation: its protocol, its name, and the actions of which one is enough.
OPERATIONS = (
    ("OpenWire", "consume", {"read"}),
    ("OpenWire", "send", {"write"}),
    ("OpenWire", "remove", {"manage"}),
    ("AMQP", "receive", {"read"}),
    ("AMQP", "send", {"write"}),
    ("IronMQ", "post", {"write"}),
    ("IronMQ", "reserve", {"read"}),
    ("IronMQ", "create", {"create"}),
    ("IronMQ", "clear", {"manage"}),
    ("IronMQ", "delete queue", {"manage"}),
    ("SQS", "SendMessage", {"write"}),
    ("SQS", "ReceiveMessage", {"read"}),
    ("SQS", "CreateQueue", {"create"}),
    ("SQS", "PurgeQueue", {"manage"}),
    ("API", "send", {"write"}),
    ("API", "browse", {"read"}),
    ("API", "create", {"create"}),
    ("API", "delete", {"manage"}),
    ("API", "pause", {"manage"}),
    ("API", "show queue", {"read", "write", "create", "manage"}),
    ("API", "connections", {"admin"}),
    ("API", "tenants", {"admin"}),
    ("API", "drain", {"admin"}),
    ("ctl", "browse", {"read"}),
    ("ctl", "purge", {"manage"}),
    ("ctl", "connections", {"admin"}),
)

# Changes that the API refuses are in its audit; other refusals are lines of the log.
IN_AUDIT = {"send", "create", "delete", "pause", "tenants", "drain"}


class Matrix(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker("")
        users = os.path.join(cls.broker.folder, "users")
        config = f'[security]\nusers = "{users}"\n'
        for role in (*ROLES, "root"):
            add_user(users, role, f"secret-{role}")
            actions = [role] if role in ACTIONS else ACTIONS if role in ("all", "root") else []
            everywhere = role in ("all", "root", "admin")
            names = ["queue://>", "topic://>"] if everywhere else ["queue://m.>", "queue://mq", f"queue://mq-{role}"]
            if actions:
                config += f"[[security.permission]]\nusers = ['{role}']\ndestinations = {names}\nactions = {list(actions)}\n"
        with open(cls.broker.config, "w") as file:
            file.write(config)
        cls.broker.start()
        cls.root, cls.nobody = Operator(cls.broker, "root", "secret-root"), Operator(cls.broker)
        cls.keys = {}
        for role in (*ROLES, "root"):
            said = cls.root.ctl("key", "new", "--user", role, "--json")
            key = json.loads(said.stdout)
            cls.keys[role] = (key["id"], key["secret"])
        cls.root.send("m.q", "one")
        sent = lambda: Permissions.sqs(cls, cls.keys["root"], "CreateQueue", {"QueueName": "mq"})[0] == 200
        until("the keys are known", sent)

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    # Each does one operation, and returns None, or the text of the refusal.

    def over_openwire(self, role, operation):
        client = openwire.Client(self.broker.openwire, connect=False)
        try:
            client.peer.sendall(openwire.wire_format())
            client.call(openwire.CONNECTION_INFO, connection_id=(120, {"value": client.name}), client_id=client.name,
                        user_name=role, password=f"secret-{role}")
            if operation == "consume":
                client.consume(openwire.queue("m.q"))
            elif operation == "send":
                client.send(openwire.queue("m.q"), "one")
            else:
                client.call(8, connection_id=(120, {"value": client.name}), destination=openwire.queue("m.gone"), operation=1)
            return None
        except openwire.Refused as refused:
            return str(refused)
        finally:
            client.close()

    def over_amqp(self, role, operation):
        plain = amqp_wire.described(0x41, amqp_wire.symbol("PLAIN"), amqp_wire.binary(f"\0{role}\0secret-{role}".encode()))
        attach = amqp_wire.receiver if operation == "receive" else amqp_wire.sender
        with socket.create_connection(("127.0.0.1", self.broker.amqp), 10) as peer:
            peer.settimeout(10)
            peer.sendall(amqp_wire.SASL_HEADER + amqp_wire.frame(plain, kind=1))
            data = b""
            while b"\0\x53\x44" not in data:
                data += peer.recv(1 << 16)
            peer.sendall(amqp_wire.HEADER + amqp_wire.opened() + amqp_wire.begun() + attach("link", 0, "m.q"))
            data = b""
            # A refused link is detached with the error, an accepted sender gets credit, and a receiver the message.
            while True:
                data += peer.recv(1 << 16)
                if b"unauthorized-access" in data:
                    return data.decode("latin-1")
                if operation == "receive" and data.count(b"\0\x53\x12"):
                    peer.sendall(amqp_wire.said(0x18, amqp_wire.NULL))
                    return None if b"\0\x53\x16" not in self.rest_of(peer, data) else "detached"
                if operation == "send" and b"\0\x53\x13" in data:
                    peer.sendall(amqp_wire.transfer(0, 0, amqp_wire.message(b"x"), settled=amqp_wire.FALSE))
                    said = b""
                    while b"\0\x53\x15" not in said and b"unauthorized-access" not in said:
                        said += peer.recv(1 << 16)
                    return said.decode("latin-1") if b"unauthorized-access" in said else None

    def rest_of(self, peer, data):
        while part := peer.recv(1 << 16):
            data += part
        return data

    def over_ironmq(self, role, operation):
        headers = {"Authorization": f"OAuth {role}:secret-{role}", "Content-Type": "application/json"}
        method, path, body = {
            "post": ("POST", "q/messages", {"messages": [{"body": "one"}]}),
            "reserve": ("POST", "q/reservations", {"n": 1, "timeout": 30}),
            "create": ("PUT", f"new-{role}", {"queue": {"message_timeout": 60}}),
            "clear": ("DELETE", "q/messages", {}),
            "delete queue": ("DELETE", f"old-{role}", {}),
        }[operation]
        if operation == "delete queue":
            self.root.api("PUT", f"queues/m.old-{role}")
        return self.refusal(self.nobody.request(method, f"/3/projects/m/queues/{path}", body, headers))

    def over_sqs(self, role, operation):
        url = f"http://127.0.0.1:{self.broker.http}/000000000000/mq"
        body = {"CreateQueue": {"QueueName": f"mq-{role}"}, "SendMessage": {"QueueUrl": url, "MessageBody": "one"}}
        return self.refusal(Permissions.sqs(self, self.keys[role], operation, body.get(operation, {"QueueUrl": url})))

    def over_api(self, role, operation):
        method, path, body = {
            "send": ("POST", "queues/m.q/messages", {"body": "one"}),
            "browse": ("GET", "queues/m.q/messages", None),
            "create": ("PUT", f"queues/m.api-{role}", None),
            "delete": ("DELETE", f"queues/m.del-{role}", None),
            "pause": ("POST", "queues/m.paused/pause", None),
            "show queue": ("GET", "queues/m.q", None),
            "connections": ("GET", "connections", None),
            "tenants": ("POST", "tenants", {"name": f"t-{role}"}),
            "drain": ("POST", "broker/resume", None),
        }[operation]
        if operation in ("delete", "pause"):
            self.root.api("PUT", f"queues/{path.split('/')[1]}")
        return self.refusal(Operator(self.broker, role, f"secret-{role}").request(method, f"/api/v1/{path}", body))

    def over_ctl(self, role, operation):
        arguments = ["connections"] if operation == "connections" else [operation, "m.q"]
        said = Operator(self.broker, role, f"secret-{role}").ctl_over_http(*arguments)
        return None if said.returncode == 0 else said.stderr

    def refusal(self, answer):
        status, text = answer
        if status == 403:
            return text
        self.assertLess(status, 300, text)
        return None

    def test_each_action_of_each_role_in_each_protocol(self):
        by = {"OpenWire": self.over_openwire, "AMQP": self.over_amqp, "IronMQ": self.over_ironmq, "SQS": self.over_sqs,
              "API": self.over_api, "ctl": self.over_ctl}
        wrong, refused = [], []
        for protocol, operation, enough in OPERATIONS:
            for role in ROLES:
                self.root.send("m.q", "one")
                self.root.api("PUT", "queues/m.gone")
                refusal = by[protocol](role, operation)
                is_allowed = role == "all" or role in enough
                if is_allowed != (refusal is None):
                    wrong.append(f"{protocol} {operation} by {role}: {refusal or 'allowed'}")
                if refusal is not None:
                    refused.append((protocol, operation, role))
                    if protocol not in ("AMQP",) and f"user {role} has no permission" not in refusal:
                        wrong.append(f"{protocol} {operation} by {role}: {refusal}")
        self.assertEqual(wrong, [])
        changes = self.root.api("GET", "audit?limit=500")["items"]
        audit = {change["user"] for change in changes if change["status"] == 403}
        with open(os.path.join(self.broker.folder, "err")) as log:
            lines = [line for line in log if "has no permission" in line or "an operator's request" in line]
        for protocol, operation, role in refused:
            if protocol == "API" and operation in IN_AUDIT:
                self.assertIn(role, audit, operation)
            self.assertTrue(any(role in line for line in lines), f"{protocol} {operation} by {role} is not in the log")


if __name__ == "__main__":
    unittest.main()
