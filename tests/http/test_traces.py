"""Traces of messages, with unmodified AMQP clients: `postroad ctl trace` and the API name the stage that took longest."""

import json
import os
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import proton
from proton.utils import BlockingConnection

from broker import BINARY, Broker
from receiver import Receiver

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"


def until(what, check, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds} s")


class WithBroker(unittest.TestCase):
    def start(self, tracing):
        self.broker = Broker(f"[runtime.tracing]\n{tracing}\n").start()
        self.addCleanup(self.broker.stop)

    def connect(self):
        connection = BlockingConnection(f"127.0.0.1:{self.broker.amqp}", timeout=60)
        self.addCleanup(connection.close)
        return connection

    def send(self, queue, *messages):
        sender = self.connect().create_sender(queue)
        for identity, properties in messages:
            sender.send(proton.Message(id=identity, body="x", durable=True, properties=properties))

    def request(self, method, path, body=None, headers=None):
        url = f"http://127.0.0.1:{self.broker.http}{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def trace(self, identity):
        status, text = self.request("GET", f"/api/v1/messages/{urllib.parse.quote(identity, safe='')}/trace")
        return json.loads(text) if status == 200 else None

    def ctl(self, *words):
        command = [BINARY, "ctl", *words, "--data", os.path.join(self.broker.folder, "data")]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def metric(self, name):
        _, text = self.request("GET", "/metrics")
        [value] = [line.split(" ")[1] for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(value)


def stages(trace):
    return [stage["stage"] for stage in trace["stages"]]


class Traces(WithBroker):
    def test_a_slow_client_is_named_and_keeps_its_context(self):
        self.start("enabled = true")
        self.send("orders", ("ID:slow", {"traceparent": SAMPLED, "tracestate": "a=1", "k": 5}))
        connection = self.connect()
        receiver = connection.create_receiver("orders")
        message = receiver.receive(timeout=30)
        self.assertEqual(message.properties, {"traceparent": SAMPLED, "tracestate": "a=1", "k": 5})
        time.sleep(1)
        trace = until("the write", lambda: (of := self.trace("ID:slow")) and "client" in stages(of) and of)
        self.assertEqual((trace["trace_id"], trace["parent_span_id"]), (TRACE, PARENT))
        self.assertEqual((trace["destination"], trace["is_gone"], trace["longest"]), ("queue://orders", False, "client"))
        self.assertTrue(trace["stages"][-1]["is_open"])
        receiver.accept()
        # A blocking connection writes with its next call.
        connection.close()
        trace = until("the end", lambda: (of := self.trace("ID:slow")) and of["is_gone"] and of)
        intake = ["socket", "inbox", "admission", "journal_wait", "sync", "apply"]
        self.assertEqual(stages(trace), [*intake, "credit", "dispatch", "client", "settle"])
        self.assertEqual(trace["longest"], "client")
        client = trace["stages"][-2]
        self.assertGreaterEqual(client["micros"], 900_000)
        self.assertEqual((client["queue"], client["note"]), ("queue://orders", "acknowledged"))
        ends = [stage["offset_micros"] + stage["micros"] for stage in trace["stages"]]
        self.assertEqual(ends[:-1], [stage["offset_micros"] for stage in trace["stages"]][1:], "no time is missing")

        said = self.ctl("trace", "ID:slow")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(f"trace        {TRACE}, parent span {PARENT}", said.stdout)
        self.assertRegex(said.stdout, r"client +\d+\.\d{3} ms +\d+\.\d{3} ms +longest +queue://orders")
        self.assertEqual(json.loads(self.ctl("trace", "ID:slow", "--json").stdout), trace)

    def test_a_message_without_credit_waits_in_its_queue(self):
        self.start("enabled = true")
        receiver = self.connect().create_receiver("orders")
        self.send("orders", ("ID:first", {}), ("ID:second", {"traceparent": SAMPLED}))
        receiver.receive(timeout=30)
        time.sleep(0.5)
        trace = self.trace("ID:second")
        self.assertEqual((trace["longest"], stages(trace)[-1]), ("credit", "credit"))
        self.assertEqual(trace["stages"][-1]["note"], "1 consumer and 1 message ahead when it came")
        self.assertIsNone(self.trace("ID:first"), "nothing asks for its trace")

    def test_the_properties_of_openwire_messages_are_contexts(self):
        self.start("enabled = true")
        url = f"tcp://127.0.0.1:{self.broker.openwire}"
        command = [BINARY, "send", "orders", "--body", "text", "--url", url, "--property", f"traceparent={SAMPLED}"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        [line] = self.ctl("browse", "orders", "--json").stdout.splitlines()
        trace = self.trace(json.loads(line)["id"])
        self.assertEqual((trace["trace_id"], trace["parent_span_id"]), (TRACE, PARENT))
        self.assertEqual((trace["longest"], trace["stages"][-1]["note"]), ("credit", "no consumer and 0 messages ahead when it came"))

    def test_the_header_of_a_post_is_the_context_of_its_message(self):
        self.start("enabled = true")
        status, text = self.request("POST", "/api/v1/queues/orders/messages", {"body": "x"}, {"traceparent": SAMPLED})
        self.assertEqual(status, 201, text)
        trace = self.trace(json.loads(text)["id"])
        self.assertEqual((trace["trace_id"], trace["parent_span_id"]), (TRACE, PARENT))
        message = self.connect().create_receiver("orders", credit=1).receive(timeout=30)
        self.assertEqual(message.properties, {"traceparent": SAMPLED})

    def iron(self, method, path, body, headers=None):
        path = f"/3/projects/default/queues/orders/{path}"
        status, text = self.request(method, path, body, {"Authorization": "OAuth t", **(headers or {})})
        self.assertIn(status, (200, 201), text)
        return json.loads(text)

    def test_headers_and_fields_of_iron_mq_posts_are_contexts(self):
        self.start("enabled = true")
        other = f"00-{TRACE[::-1]}-{PARENT[::-1]}-01"
        messages = [{"body": "of the request"}, {"body": "own", "traceparent": other, "tracestate": "b=2"}]
        headers = {"traceparent": SAMPLED, "tracestate": "a=1"}
        first, second = self.iron("POST", "messages", {"messages": messages}, headers)["ids"]
        contexts = [(trace["trace_id"], trace["parent_span_id"]) for trace in map(self.trace, (first, second))]
        self.assertEqual(contexts, [(TRACE, PARENT), (TRACE[::-1], PARENT[::-1])])
        [webhook] = self.iron("POST", "webhook", {"any": "body"}, headers).get("ids") or [None]
        if webhook:
            self.assertEqual(self.trace(webhook)["trace_id"], TRACE)
        receiver = self.connect().create_receiver("orders", credit=2)
        properties = [receiver.receive(timeout=30).properties for _ in range(2)]
        self.assertEqual(properties, [{"traceparent": SAMPLED, "tracestate": "a=1"}, {"traceparent": other, "tracestate": "b=2"}])
        said = self.ctl("trace", first)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn(f"message      {first}", said.stdout)
        self.assertIn(f"trace        {TRACE}, parent span {PARENT}", said.stdout)

    def test_an_iron_mq_message_is_found_after_it_was_consumed(self):
        self.start("enabled = true")
        [identity] = self.iron("POST", "messages", {"messages": [{"body": "x"}]}, {"traceparent": SAMPLED})["ids"]
        [taken] = self.iron("POST", "reservations", {"n": 1})["messages"]
        self.iron("DELETE", f"messages/{identity}", {"reservation_id": taken["reservation_id"]})
        trace = self.trace(identity)
        self.assertEqual((trace["is_gone"], stages(trace)[-2:]), (True, ["client", "settle"]))
        self.assertIsNone(self.trace("1" + identity))

    def test_a_field_that_is_too_long_or_no_text_is_refused(self):
        self.start("enabled = true")
        for field, why in (("0" * 513, "traceparent has at most 512 bytes"), (5, "traceparent is to be a string")):
            body = {"messages": [{"body": "x", "traceparent": field}]}
            path = "/3/projects/default/queues/orders/messages"
            status, text = self.request("POST", path, body, {"Authorization": "OAuth t"})
            self.assertEqual((status, why in text), (400, True), text)

    def sqs(self, action, **params):
        headers = {"X-Amz-Target": f"AmazonSQS.{action}", "Content-Type": "application/x-amz-json-1.0"}
        status, text = self.request("POST", "/", params, headers)
        self.assertEqual(status, 200, text)
        return json.loads(text) if text else None

    def test_attributes_of_sqs_messages_are_contexts(self):
        self.start("enabled = true")
        url = self.sqs("CreateQueue", QueueName="orders")["QueueUrl"]
        text = lambda value: {"DataType": "String", "StringValue": value}
        header = f"Root=1-{TRACE[:8]}-{TRACE[8:]};Parent={PARENT};Sampled=1"
        for attributes in (
            {"MessageAttributes": {"traceparent": text(SAMPLED)}},
            {"MessageSystemAttributes": {"AWSTraceHeader": text(header)}},
        ):
            sent = self.sqs("SendMessage", QueueUrl=url, MessageBody="x", **attributes)
            identity = f"ID:AMQP_UUID:{sent['MessageId']}"
            trace = self.trace(identity)
            self.assertEqual((trace["trace_id"], trace["parent_span_id"]), (TRACE, PARENT), attributes)
            [message] = self.sqs("ReceiveMessage", QueueUrl=url, VisibilityTimeout=60)["Messages"]
            time.sleep(0.3)
            self.assertEqual(stages(self.trace(identity))[-2:], ["credit", "client"], "the answer has it")
            self.sqs("DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            trace = self.trace(identity)
            self.assertEqual((trace["is_gone"], stages(trace)[-2:]), (True, ["client", "settle"]))

    def test_senders_decide_for_their_messages_and_the_rest_is_sampled(self):
        self.start("enabled = true\nsample = 1.0")
        contexts = {"none": {}, "not-sampled": {"traceparent": NOT_SAMPLED}, "malformed": {"traceparent": "00-x"}}
        self.send("orders", *((f"ID:{name}", properties) for name, properties in contexts.items()))
        traced = {name: self.trace(f"ID:{name}") for name in contexts}
        self.assertIsNone(traced["not-sampled"])
        for name in ("none", "malformed"):
            self.assertRegex(traced[name]["trace_id"], "^[0-9a-f]{32}$")
            self.assertIsNone(traced[name]["parent_span_id"])
        self.assertNotEqual(traced["none"]["trace_id"], traced["malformed"]["trace_id"])
        self.assertEqual(self.metric("postroad_trace_contexts_malformed_total"), 1)

    def test_traces_are_bounded_by_rate_and_number(self):
        self.start("enabled = true\nmessages_per_second = 1\nkept_messages = 1")
        self.send("orders", *((f"ID:{number}", {"traceparent": SAMPLED}) for number in range(200)))
        traced, over = self.metric("postroad_traces_total"), self.metric("postroad_traces_over_rate_total")
        self.assertEqual(traced + over, 200)
        self.assertGreater(over, 0)
        self.assertEqual(sum(self.trace(f"ID:{number}") is not None for number in range(200)), 1)
        self.assertEqual(self.metric("postroad_traces_evicted_total"), traced - 1)

    def test_without_the_section_the_answer_says_how_to_trace(self):
        self.start("enabled = false")
        self.send("orders", ("ID:m", {"traceparent": SAMPLED}))
        said = self.ctl("trace", "ID:m")
        self.assertEqual(said.returncode, 1)
        self.assertIn("messages are not traced: set enabled = true in [runtime.tracing]", said.stderr)


class Spans(WithBroker):
    def test_a_collector_gets_the_spans_of_a_message(self):
        collector = Receiver()
        self.addCleanup(collector.close)
        self.start(f'enabled = true\nendpoint = "{collector.url()}"')
        self.send("orders", ("ID:m", {"traceparent": SAMPLED, "tracestate": "a=1"}))
        connection = self.connect()
        receiver = connection.create_receiver("orders")
        receiver.receive(timeout=30)
        time.sleep(0.2)
        receiver.accept()
        connection.close()

        def spans():
            with collector.changed:
                bodies = [json.loads(request.body) for request in collector.requests]
            found = [span for body in bodies for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"]]
            return found if len(found) == 2 else None

        publish, deliver = until("the spans", spans)
        self.assertEqual({request.path for request in collector.requests}, {"/v1/traces"})
        self.assertEqual((publish["name"], deliver["name"]), ("publish orders", "deliver orders"))
        for span in (publish, deliver):
            self.assertEqual((span["traceId"], span["traceState"]), (TRACE, "a=1"))
        self.assertEqual(publish["parentSpanId"], PARENT)
        self.assertEqual(deliver["parentSpanId"], publish["spanId"])
        attributes = {of["key"]: next(iter(of["value"].values())) for of in deliver["attributes"]}
        self.assertEqual(attributes["messaging.system"], "postroad")
        self.assertEqual(attributes["messaging.destination.name"], "orders")
        self.assertEqual(attributes["messaging.message.id"], "ID:m")
        self.assertEqual(attributes["postroad.settlement"], "acknowledged")
        self.assertGreaterEqual(int(attributes["postroad.stage.client_us"]), 190_000)
        now = time.time_ns()
        self.assertLess(now - 60 * 10**9, int(publish["startTimeUnixNano"]))
        self.assertLessEqual(int(publish["endTimeUnixNano"]), int(deliver["endTimeUnixNano"]))
        self.assertLess(int(deliver["endTimeUnixNano"]), now)
        until("the count", lambda: self.metric("postroad_trace_spans_total") == 2)

    def test_a_collector_gets_its_secret_and_nothing_shows_it(self):
        refused = iter([429])
        collector = Receiver(lambda _: (next(refused, 200), {"Retry-After": "2"}))
        self.addCleanup(collector.close)
        self.broker = Broker("")
        self.addCleanup(self.broker.stop)
        secrets = os.path.join(self.broker.folder, "secrets")
        with open(secrets, "w") as file:
            file.write("Authorization=Bearer%20s3cret\nX-Scope=t1\n")
        with open(self.broker.config, "w") as file:
            file.write(f'[runtime.tracing]\nenabled = true\nendpoint = "{collector.url()}"\nheaders_file = "{secrets}"\n')
        os.chmod(secrets, 0o644)
        with self.assertRaisesRegex(AssertionError, "headers_file.*other users can access it"):
            self.broker.start()
        os.chmod(secrets, 0o600)
        self.broker.start()
        self.send("orders", ("ID:m", {"traceparent": SAMPLED}))
        first, second = collector.wait_for(2)[:2]
        self.assertGreaterEqual(second.at - first.at, 1.9, "the pause that the collector asks for")
        for request in (first, second):
            headers = (request.headers["Authorization"], request.headers["X-Scope"])
            self.assertEqual(headers, ("Bearer s3cret", "t1"))
        until("the count", lambda: self.metric("postroad_trace_spans_total") == 1)
        with open(os.path.join(self.broker.folder, "err")) as file:
            self.assertNotIn("s3cret", file.read())
        self.assertNotIn("s3cret", self.request("GET", "/api/v1/configuration")[1])

    def test_a_collector_that_refuses_gets_each_span_once(self):
        collector = Receiver(lambda _: (400, {"Retry-After": "1"}))
        self.addCleanup(collector.close)
        self.start(f'enabled = true\nendpoint = "{collector.url()}"')
        self.send("orders", ("ID:m", {"traceparent": SAMPLED}))
        until("the drop", lambda: self.metric("postroad_trace_spans_dropped_total") == 1)
        time.sleep(3)
        self.assertEqual(len(collector.requests), 1)
        with open(os.path.join(self.broker.folder, "err")) as file:
            self.assertIn("the collector of traces takes no spans", file.read())

    def test_a_collector_that_is_down_does_no_harm(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
        self.start(f'enabled = true\nendpoint = "http://127.0.0.1:{port}"')
        self.send("orders", *((f"ID:{number}", {"traceparent": SAMPLED}) for number in range(20)))
        receiver = self.connect().create_receiver("orders", credit=20)
        for _ in range(20):
            receiver.receive(timeout=30)
            receiver.accept()
        until("the drop", lambda: 0 < self.metric("postroad_trace_spans_dropped_total"), 60)
        self.assertEqual(self.metric("postroad_trace_spans_total"), 0)
        self.assertTrue(self.broker.is_alive())


if __name__ == "__main__":
    unittest.main()
