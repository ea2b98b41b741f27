"""Failed logins: one bad token locks no other one, and the audit has those of every protocol."""

import os
import socket
import struct
import subprocess
import unittest

from operator_tools import BINARY, Operator, broker_with_users

WRONG = "user name or password are wrong"


def plain_of_amqp(port, user, password):
    """Opens AMQP with SASL PLAIN; the code of the outcome."""
    response = f"\0{user}\0{password}".encode()
    fields = b"\xa3\x05PLAIN" + bytes([0xA0, len(response)]) + response
    body = b"\x00\x53\x41\xc0" + bytes([len(fields) + 1, 2]) + fields
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"AMQP\x03\x01\x00\x00" + struct.pack(">IBBH", len(body) + 8, 2, 1, 0) + body)
        data = b""
        while b"\x00\x53\x44" not in data:
            received = client.recv(4096)
            assert received, f"the broker ended the connection: {data!r}"
            data += received
    outcome = data[data.index(b"\x00\x53\x44") + 3 :]
    return outcome[outcome.index(b"\x50") + 1]


class FailedLogins(unittest.TestCase):
    def setUp(self):
        config = '[security]\nusers = "{users}"\n'
        self.broker = broker_with_users(config, root="secret-root", ann="secret-ann")
        self.root = Operator(self.broker, "root", "secret-root")

    def tearDown(self):
        self.broker.stop()

    def failures(self):
        rows = self.root.api("GET", "audit?limit=500")["items"]
        return [row for row in rows if row["status"] in (401, 429)]

    def bearer(self, token, path="/api/v1/broker", scheme="Bearer"):
        return Operator(self.broker).request("GET", path, None, {"Authorization": f"{scheme} {token}"})

    def test_a_bad_token_locks_no_other_token_of_its_address(self):
        good = self.root.api("POST", "tokens", {"user": "ann"})["token"]
        bad = f"prt_{'a' * 16}_{'b' * 52}"
        statuses = [self.bearer(bad)[0] for _ in range(7)]
        self.assertEqual(statuses, [401] * 5 + [429] * 2)
        self.assertEqual(self.bearer(good)[0], 200)
        iron = "/3/projects/p/queues"
        self.assertEqual(self.bearer(bad, iron, "OAuth")[0], 429, "it is locked in every protocol")
        self.assertEqual(self.bearer(good, iron, "OAuth")[0], 200)

    def test_failures_of_every_protocol_are_in_the_audit(self):
        url = f"tcp://127.0.0.1:{self.broker.openwire}"
        command = [BINARY, "send", "q", "--body", "one", "--url", url, "--user", "ann", "--password", "guess"]
        self.assertNotEqual(subprocess.run(command, capture_output=True, timeout=60).returncode, 0)
        self.assertEqual(plain_of_amqp(self.broker.amqp, "eve", "guess"), 1)
        self.assertEqual(self.bearer("ann:guess", "/3/projects/p/queues", "OAuth")[0], 401)
        self.assertEqual(Operator(self.broker, "ann", "guess").request("GET", "/api/v1/broker")[0], 401)
        aws = {
            "Authorization": "AWS4-HMAC-SHA256 Credential=AKIDX/20260101/us-east-1/sqs/aws4_request, "
            "SignedHeaders=host;x-amz-date, Signature=" + "0" * 64,
            "X-Amz-Date": "20260101T000000Z",
            "X-Amz-Target": "AmazonSQS.ListQueues",
            "Content-Type": "application/x-amz-json-1.0",
        }
        self.assertIn(Operator(self.broker).request("POST", "/", {}, aws)[0], (400, 403))
        rows = {(row["method"], row["path"]): row for row in self.failures()}
        for protocol, user, reason in [
            ("OpenWire", "ann", WRONG),
            ("AMQP", "eve", WRONG),
            ("IronMQ", "ann", WRONG),
            ("SQS", "AKIDX", "access key"),
        ]:
            row = rows[("LOGIN", protocol)]
            self.assertEqual((row["user"], row["peer"]), (user, "127.0.0.1"), protocol)
            self.assertIn(reason, row["detail"], protocol)
        self.assertIn("login failed", rows[("GET", "/api/v1/broker")]["detail"])
        with open(os.path.join(self.broker.folder, "err")) as file:
            log = file.read()
        self.assertIn("login failed", log)
        self.assertNotIn("guess", log)

    def test_a_flood_is_some_rows_and_a_count(self):
        self.root.api("PUT", "queues/kept")
        for _ in range(200):
            status, _ = self.bearer(f"prt_{'c' * 16}_x", "/3/projects/p/queues", "OAuth")
            self.assertIn(status, (401, 429))
        rows = self.failures()
        self.assertLessEqual(len(rows), 31)
        self.assertGreaterEqual(len(rows), 25)
        with open(os.path.join(self.broker.folder, "err")) as file:
            self.assertLess(len([line for line in file if "login failed" in line]), 40)
        self.assertIn("/api/v1/queues/kept", [row["path"] for row in self.root.api("GET", "audit?limit=500")["items"]])


if __name__ == "__main__":
    unittest.main()
