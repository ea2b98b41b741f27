"""What is on the wire: headers, statuses, error bodies, bad input."""

import gzip
import http.client
import json
import os
import resource
import socket
import subprocess
import time
import unittest

from broker import Broker


class Wire(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker('[http]\norigins = ["https://app.example"]\n').start()

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

    def test_bodies_are_compressed_both_ways(self):
        body = gzip.compress(json.dumps({"messages": [{"body": "z" * 5000}]}).encode())
        answer, _ = self.ask("POST", self.at("/zipped/messages"), body, {"Content-Encoding": "gzip"})
        self.assertEqual(answer.status, 201)
        answer, text = self.ask("GET", self.at("/zipped/messages"), None, {"Accept-Encoding": "gzip"})
        self.assertEqual((answer.headers["Content-Encoding"], len(text) < 1000), ("gzip", True))
        self.assertEqual(json.loads(gzip.decompress(text))["messages"][0]["body"], "z" * 5000)
        answer, text = self.ask("GET", self.at("/zipped/messages"), None, {"Accept-Encoding": "gzip/deflate"})
        self.assertEqual((answer.headers["Content-Encoding"], len(text) > 5000), (None, True))
        bomb = gzip.compress(b" " * (17 << 20))
        for case, encoding, data, status in [
            ("too large once it is decompressed", "gzip", bomb, 413),
            ("damaged", "gzip", b"plain", 400),
            ("another encoding", "br", b"x", 415),
        ]:
            answer, _ = self.ask("POST", self.at("/zipped/messages"), data, {"Content-Encoding": encoding})
            self.assertEqual(answer.status, status, case)

    def test_pages_of_allowed_origins_may_use_the_queues(self):
        for origin, want in [("https://app.example", "https://app.example"), ("https://other.example", None)]:
            headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
            answer, text = self.ask("OPTIONS", self.at("/page/messages"), None, headers)
            self.assertEqual((answer.status, text), (204, b""))
            self.assertEqual(answer.headers["Access-Control-Allow-Origin"], want)
            self.assertEqual(answer.headers["Access-Control-Allow-Methods"] is None, want is None)
            answer, _ = self.ask("GET", self.at("/page"), None, {"Origin": origin})
            self.assertEqual((answer.status, answer.headers["Access-Control-Allow-Origin"]), (404, want))

    def test_http_2_in_clear_text(self):
        url = f"http://127.0.0.1:{self.broker.http}{self.at('/two/messages')}"
        command = ["curl", "-sS", "--http2-prior-knowledge", "-w", " %{http_version} %{http_code}", "-d"]
        answered = subprocess.run([*command, '{"messages":[{"body":"x"}]}', url], capture_output=True, timeout=30)
        self.assertTrue(answered.stdout.endswith(b" 2 201"), answered)

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


class SlowClients(unittest.TestCase):
    COUNT = 100

    def test_requests_that_do_not_end_delay_no_others_and_are_ended(self):
        broker = Broker().start()
        self.addCleanup(broker.stop)
        head = b"POST /3/projects/p/queues/q/messages HTTP/1.1\r\nHost: h\r\n"
        starts = {"head": head, "body": head + b'Content-Length: 50\r\n\r\n{"messages":'}
        slow = {name: [] for name in starts}
        for name, start in starts.items():
            for _ in range(self.COUNT):
                wire = socket.create_connection(("127.0.0.1", broker.http), 90)
                self.addCleanup(wire.close)
                wire.sendall(start)
                slow[name].append(wire)
        began = time.monotonic()
        for _ in range(20):
            connection = http.client.HTTPConnection("127.0.0.1", broker.http, timeout=30)
            connection.request("POST", "/3/projects/p/queues/q/messages", '{"messages":[{"body":"x"}]}')
            self.assertEqual(connection.getresponse().status, 201)
            connection.close()
        self.assertLess(time.monotonic() - began, 10)
        if "NIGHTLY" not in os.environ:
            return
        for wire in slow["body"]:
            self.assertIn(b" 408 ", wire.recv(4096), "after 30 s")
        for wire in slow["head"]:
            self.assertNotIn(b" 20", wire.recv(4096), "after 60 s")
        self.assertLess(time.monotonic() - began, 80)


class LongPolls(unittest.TestCase):
    COUNT = 1000
    MEMORY_BYTES_MAX = 50 << 20

    def test_a_thousand_long_polls_cost_little(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
        broker = Broker().start()
        polls = []
        try:
            def used():
                with open(f"/proc/{broker.process.pid}/stat") as file:
                    fields = file.read().rsplit(") ", 1)[1].split()
                ticks = int(fields[11]) + int(fields[12])
                return ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")

            def ask(path, body):
                text = json.dumps(body).encode()
                head = f"POST /3/projects/p/queues{path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(text)}\r\n\r\n"
                wire = socket.create_connection(("127.0.0.1", broker.http), 30)
                wire.sendall(head.encode() + text)
                return wire

            def answer(wire):
                text = b""
                while b"\r\n\r\n" not in text or not text.endswith(b"}"):
                    part = wire.recv(65536)
                    assert part, text
                    text += part
                return text

            first = ask("/polled/messages", {"messages": [{"body": "make the queue"}]})
            polls.append(first)
            self.assertIn(b"201 Created", answer(first))
            reserved = ask("/polled/reservations", {"delete": True})
            polls.append(reserved)
            self.assertIn(b"make the queue", answer(reserved))
            _, memory_before = used()
            waiting = [ask("/polled/reservations", {"wait": 30, "delete": True}) for _ in range(self.COUNT)]
            polls += waiting
            # Until the broker has read the last one.
            end = time.monotonic() + 20
            settled, _ = used()
            while time.monotonic() < end:
                time.sleep(0.5)
                before, (settled, memory) = settled, used()
                if settled == before:
                    break
            time.sleep(2)
            later, memory = used()
            self.assertLess(later - settled, 0.2, "seconds of processor time in 2 s of waiting")
            self.assertLess(memory - memory_before, self.MEMORY_BYTES_MAX)
            messages = [{"body": f"m{number}"} for number in range(self.COUNT)]
            posted = ask("/polled/messages", {"messages": messages})
            polls.append(posted)
            self.assertIn(b"201 Created", answer(posted))
            bodies = {json.loads(answer(wire).split(b"\r\n\r\n", 1)[1])["messages"][0]["body"] for wire in waiting}
            self.assertEqual(len(bodies), self.COUNT, "each got one of its own")
        finally:
            for wire in polls:
                wire.close()
            broker.stop()
