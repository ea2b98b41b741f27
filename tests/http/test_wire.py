"""What is on the wire: headers, statuses, error bodies, bad input."""

import http.client
import json
import socket
import unittest

from broker import Broker


class Wire(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker().start()

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.broker.http, timeout=30)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer, text

    def at(self, path):
        return f"/3/projects/p/queues{path}"

    def test_answers_have_the_type_and_length_that_clients_compare(self):
        answer, text = self.ask("GET", self.at("/none"), "{}")
        self.assertEqual((answer.status, json.loads(text)), (404, {"msg": "Queue not found"}))
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        self.assertEqual(int(answer.headers["Content-Length"]), len(text))

    def test_the_java_client_overrides_the_method(self):
        self.ask("PUT", self.at("/java"), {})
        for method, status in [("PATCH", 200), ("DELETE", 200), ("DELETE", 404)]:
            answer, _ = self.ask("POST", self.at("/java"), {}, {"X-HTTP-Method-Override": method})
            self.assertEqual(answer.status, status, method)

    def test_names_are_percent_encoded_and_listed_in_order(self):
        for name in ["list%20b", "list%2Fa", "listc"]:
            answer, _ = self.ask("POST", self.at(f"/{name}/messages"), {"messages": [{"body": "x"}]})
            self.assertEqual(answer.status, 201)
        _, text = self.ask("GET", self.at("?prefix=list&per_page=2"))
        self.assertEqual(json.loads(text), {"queues": [{"name": "list b"}, {"name": "list/a"}]})
        _, text = self.ask("GET", self.at("?prefix=list&previous=list%2Fa"))
        self.assertEqual(json.loads(text), {"queues": [{"name": "listc"}]})

    def test_a_webhook_is_a_message(self):
        answer, _ = self.ask("POST", self.at("/hook/webhook"), "any body")
        self.assertEqual(answer.status, 201)
        _, text = self.ask("POST", self.at("/hook/reservations"), {"delete": True})
        self.assertEqual(json.loads(text)["messages"][0]["body"], "any body")

    def test_pipelined_requests_are_answered_in_order(self):
        one = b"GET " + self.at("/none").encode() + b" HTTP/1.1\r\nHost: h\r\n\r\n"
        two = b"GET /health/live HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.broker.http), 30) as wire:
            wire.sendall(one + two)
            text = b""
            while part := wire.recv(65536):
                text += part
        self.assertLess(text.index(b"Queue not found"), text.index(b"live\n"))

    def test_bad_input_is_refused_and_changes_nothing(self):
        self.ask("POST", self.at("/bad/messages"), {"messages": [{"body": "m"}]})
        for case, method, path, body, status in [
            ("no JSON", "POST", "/bad/messages", "{", 400),
            ("not UTF-8", "POST", "/bad/messages", b'{"messages":[{"body":"\xff"}]}', 400),
            ("a body that is no text", "POST", "/bad/messages", {"messages": [{"body": 1}]}, 400),
            ("one good, one bad", "POST", "/bad/messages", {"messages": [{"body": "x"}, {}]}, 400),
            ("too many", "POST", "/bad/reservations", {"n": 101}, 400),
            ("a foreign id", "DELETE", "/bad/messages/7", {}, 404),
            ("an id of another queue", "DELETE", "/bad/messages/18446744073709551616000", {}, 404),
            ("a foreign reservation", "POST", "/bad/messages/18446744073709551616/touch", {"reservation_id": "x"}, 403),
            ("a method", "PUT", "/bad/messages", {}, 405),
            ("a path", "GET", "/bad/letters", None, 404),
            ("a wildcard", "POST", "/a.%3E/messages", {"messages": [{"body": "x"}]}, 400),
            ("too large", "POST", "/bad/messages", b" " * (17 << 20), 413),
        ]:
            try:
                answer, text = self.ask(method, self.at(path), body)
            except (BrokenPipeError, ConnectionResetError):
                self.assertEqual(status, 413, case)
                continue
            self.assertEqual(answer.status, status, f"{case}: {text}")
            self.assertTrue(json.loads(text)["msg"], case)
        _, text = self.ask("GET", self.at("/bad"))
        self.assertEqual(json.loads(text)["queue"]["size"], 1)

    def test_operators_are_answered_at_the_same_port(self):
        answer, text = self.ask("GET", "/metrics")
        self.assertEqual(answer.status, 200)
        self.assertIn(b"postroad_", text)
