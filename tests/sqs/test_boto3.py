"""The unmodified Python client of SQS: its version chooses the JSON or the query protocol."""

import json
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

from broker import BINARY, Broker
from sqs import Case, client, ctl, new_key

GONE = "AWS.SimpleQueueService.NonExistentQueue"


class Queues(Case):
    def test_a_queue_is_made_found_set_and_deleted(self):
        url = self.queue("life", VisibilityTimeout="7")
        self.assertTrue(url.endswith("/000000000000/life"), url)
        self.assertEqual(self.sqs.get_queue_url(QueueName="life")["QueueUrl"], url)
        self.assertEqual(self.queue("life", VisibilityTimeout="7"), url)
        self.code("QueueAlreadyExists", self.sqs.create_queue, QueueName="life", Attributes={"VisibilityTimeout": "8"})
        self.sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "1", "VisibilityTimeout": "9"})
        attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        self.assertEqual((attributes["DelaySeconds"], attributes["VisibilityTimeout"]), ("1", "9"))
        self.assertEqual(attributes["QueueArn"], "arn:aws:sqs:us-east-1:000000000000:life")
        self.assertAlmostEqual(int(attributes["CreatedTimestamp"]), time.time(), delta=60)
        self.code("InvalidAttributeName", self.sqs.set_queue_attributes, QueueUrl=url, Attributes={"X": "1"})
        self.code("InvalidAttributeValue", self.sqs.set_queue_attributes, QueueUrl=url, Attributes={"DelaySeconds": "901"})
        self.assertEqual(self.attribute(url, "DelaySeconds"), "1")
        self.sqs.delete_queue(QueueUrl=url)
        self.code(GONE, self.sqs.get_queue_url, QueueName="life")
        for call in [self.sqs.delete_queue, self.sqs.receive_message, self.sqs.purge_queue]:
            self.code(GONE, call, QueueUrl=url)
        self.code(GONE, self.sqs.send_message, QueueUrl=url, MessageBody="x")

    def test_queues_are_listed_in_pages(self):
        urls = [self.queue(f"page-{number}") for number in range(5)]
        self.assertEqual(self.sqs.list_queues(QueueNamePrefix="page-")["QueueUrls"], urls)
        pages = self.sqs.get_paginator("list_queues").paginate(
            QueueNamePrefix="page-", PaginationConfig={"PageSize": 2}
        )
        self.assertEqual([len(page.get("QueueUrls", [])) for page in pages], [2, 2, 1])
        self.assertNotIn("QueueUrls", self.sqs.list_queues(QueueNamePrefix="none"))

    def test_permissions_are_refused_with_the_error_of_sqs(self):
        url = self.queue("shared-with")
        unsupported = "AWS.SimpleQueueService.UnsupportedOperation"
        add = {"QueueUrl": url, "Label": "l", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]}
        self.code(unsupported, self.sqs.add_permission, **add)
        self.code(unsupported, self.sqs.remove_permission, QueueUrl=url, Label="l")

    def test_tags(self):
        url = self.sqs.create_queue(QueueName="tagged", tags={"a": "1", "b": "2"})["QueueUrl"]
        self.sqs.tag_queue(QueueUrl=url, Tags={"b": "3", "c": ""})
        self.sqs.untag_queue(QueueUrl=url, TagKeys=["a"])
        self.assertEqual(self.sqs.list_queue_tags(QueueUrl=url)["Tags"], {"b": "3", "c": ""})


class WithIronMq(Case):
    """Queues that clients of IronMQ set too."""

    def iron(self, method, queue, settings=None):
        body = json.dumps({"queue": settings or {}}).encode()
        url = f"http://127.0.0.1:{self.broker.http}/3/projects/default/queues/{queue}"
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)["queue"]

    def test_settings_of_either_stay(self):
        dead = self.sqs.get_queue_attributes(QueueUrl=self.queue("dead"), AttributeNames=["QueueArn"])
        policy = {"deadLetterTargetArn": dead["Attributes"]["QueueArn"], "maxReceiveCount": 3}
        url = self.queue("both", VisibilityTimeout="7", RedrivePolicy=json.dumps(policy))
        self.sqs.tag_queue(QueueUrl=url, Tags={"a": "1"})
        alert = {"type": "fixed", "direction": "asc", "trigger": 9, "queue": "pager"}
        shown = self.iron("PUT", "both", {"message_timeout": 90, "alerts": [alert]})
        self.assertEqual(shown["dead_letter"], {"queue_name": "dead", "max_reservations": 3})
        attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        self.assertEqual(attributes["VisibilityTimeout"], "7")
        self.assertEqual(json.loads(attributes["RedrivePolicy"]), policy)
        self.assertEqual(self.sqs.list_queue_tags(QueueUrl=url)["Tags"], {"a": "1"})
        self.sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "8", "RedrivePolicy": ""})
        shown = self.iron("GET", "both")
        self.assertEqual((shown["message_timeout"], shown["alerts"][0]["trigger"]), (90, 9))
        self.assertNotIn("dead_letter", shown)
        self.iron("PATCH", "both", {"dead_letter": {"queue_name": "dead", "max_reservations": 4}})
        self.assertEqual(json.loads(self.attribute(url, "RedrivePolicy"))["maxReceiveCount"], 4)
        self.assertEqual(self.attribute(url, "VisibilityTimeout"), "8")


class Routed(unittest.TestCase):
    def test_a_composite_queue_passes_messages_on(self):
        targets = '[{ destination = "queue://one" }, { destination = "queue://two" }]'
        broker = Broker(f'[[composite]]\naddress = "queue://all"\ntargets = {targets}\n').start()
        try:
            sqs = client(broker)
            urls = {name: sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("all", "one", "two")}
            entries = [{"Id": str(number), "MessageBody": f"m{number}"} for number in range(3)]
            answer = sqs.send_message_batch(QueueUrl=urls["all"], Entries=entries)
            self.assertEqual(len({sent["MessageId"] for sent in answer["Successful"]}), 3)
            for name in ("one", "two"):
                found = sqs.receive_message(QueueUrl=urls[name], MaxNumberOfMessages=10, WaitTimeSeconds=20)
                self.assertEqual([m["Body"] for m in found["Messages"]], ["m0", "m1", "m2"], name)
        finally:
            broker.stop()


class Messages(Case):
    def test_send_receive_delete(self):
        url = self.queue("basics")
        sent = self.sqs.send_message(
            QueueUrl=url,
            MessageBody="größe <&>",
            MessageAttributes={
                "n": {"DataType": "Number.euro", "StringValue": "1.50"},
                "s": {"DataType": "String", "StringValue": "text"},
                "b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
            },
            MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-2"}},
        )
        # The client has checked the digests of the answer by itself.
        [message] = self.receive(url, MessageAttributeNames=["All"], AttributeNames=["All"])
        self.assertEqual((message["MessageId"], message["Body"]), (sent["MessageId"], "größe <&>"))
        attributes = message["MessageAttributes"]
        self.assertEqual(attributes["n"], {"DataType": "Number.euro", "StringValue": "1.50"})
        self.assertEqual(attributes["b"], {"DataType": "Binary", "BinaryValue": b"\x00\xff"})
        self.assertEqual(message["MD5OfMessageAttributes"], sent["MD5OfMessageAttributes"])
        system = message["Attributes"]
        self.assertEqual((system["ApproximateReceiveCount"], system["AWSTraceHeader"]), ("1", "Root=1-2"))
        self.assertAlmostEqual(int(system["SentTimestamp"]) / 1000, time.time(), delta=60)
        self.assertEqual(self.receive(url), [], "it is in flight")
        counts = [self.attribute(url, f"ApproximateNumberOfMessages{which}") for which in ("", "NotVisible")]
        self.assertEqual(counts, ["0", "1"])
        self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        self.assertEqual(self.attribute(url, "ApproximateNumberOfMessagesNotVisible"), "0")

    def test_visibility_and_stale_receipt_handles(self):
        url = self.queue("visible")
        self.sqs.send_message(QueueUrl=url, MessageBody="m")
        change = self.sqs.change_message_visibility
        [first] = self.receive(url)
        change(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
        self.code("AWS.SimpleQueueService.MessageNotInflight", change, QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=9)
        [second] = self.receive(url, VisibilityTimeout=1, AttributeNames=["ApproximateReceiveCount"])
        self.assertEqual(second["Attributes"]["ApproximateReceiveCount"], "2")
        self.sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        [third] = self.receive(url, WaitTimeSeconds=20)
        self.assertEqual(third["MessageId"], first["MessageId"], "an old handle deletes nothing")
        change(QueueUrl=url, ReceiptHandle=third["ReceiptHandle"], VisibilityTimeout=600)
        self.code("InvalidParameterValue", change, QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=9)
        self.code("InvalidParameterValue", change, QueueUrl=url, ReceiptHandle=third["ReceiptHandle"], VisibilityTimeout=43201)
        self.code("ReceiptHandleIsInvalid", self.sqs.delete_message, QueueUrl=url, ReceiptHandle="x")
        other = self.queue("other")
        self.code("ReceiptHandleIsInvalid", self.sqs.delete_message, QueueUrl=other, ReceiptHandle=third["ReceiptHandle"])
        self.sqs.delete_message(QueueUrl=url, ReceiptHandle=third["ReceiptHandle"])
        self.code("InvalidParameterValue", change, QueueUrl=url, ReceiptHandle=third["ReceiptHandle"], VisibilityTimeout=9)

    def test_long_poll_delay_and_purge(self):
        url = self.queue("polled")
        began = time.monotonic()
        self.assertEqual(self.receive(url, WaitTimeSeconds=1), [])
        self.assertGreater(time.monotonic() - began, 0.9)
        got = []
        waiting = threading.Thread(target=lambda: got.extend(client(self.broker).receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]))
        waiting.start()
        self.sqs.send_message(QueueUrl=url, MessageBody="ping")
        waiting.join(30)
        self.assertEqual([message["Body"] for message in got], ["ping"])
        began = time.monotonic()
        self.sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=1)
        self.assertEqual(self.attribute(url, "ApproximateNumberOfMessagesDelayed"), "1")
        [later] = self.receive(url, WaitTimeSeconds=20)
        self.assertEqual(later["Body"], "later")
        self.assertGreater(time.monotonic() - began, 0.9)
        self.sqs.send_message(QueueUrl=url, MessageBody="purged")
        self.sqs.purge_queue(QueueUrl=url)
        self.assertEqual(self.receive(url, WaitTimeSeconds=0), [])

    def test_batches(self):
        url = self.queue("batches")
        entries = [{"Id": str(number), "MessageBody": f"m{number}"} for number in range(10)]
        entries[3]["DelaySeconds"] = 901
        answer = self.sqs.send_message_batch(QueueUrl=url, Entries=entries)
        self.assertEqual([entry["Id"] for entry in answer["Failed"]], ["3"])
        self.assertEqual((answer["Failed"][0]["Code"], answer["Failed"][0]["SenderFault"]), ("InvalidParameterValue", True))
        messages = self.receive(url, MaxNumberOfMessages=10)
        self.assertEqual([message["Body"] for message in messages], [f"m{n}" for n in range(10) if n != 3])
        handles = [{"Id": message["Body"], "ReceiptHandle": message["ReceiptHandle"]} for message in messages]
        changes = [dict(handle, VisibilityTimeout=0) for handle in handles[:2]]
        changed = self.sqs.change_message_visibility_batch(QueueUrl=url, Entries=changes)
        self.assertEqual([entry["Id"] for entry in changed["Successful"]], ["m0", "m1"])
        handles.append({"Id": "wrong", "ReceiptHandle": "x"})
        deleted = self.sqs.delete_message_batch(QueueUrl=url, Entries=handles[2:])
        self.assertEqual(len(deleted["Successful"]), 7)
        self.assertEqual(deleted["Failed"][0]["Code"], "ReceiptHandleIsInvalid")
        self.assertEqual([message["Body"] for message in self.receive(url, MaxNumberOfMessages=10)], ["m0", "m1"])
        batch = self.sqs.send_message_batch
        self.code("AWS.SimpleQueueService.EmptyBatchRequest", batch, QueueUrl=url, Entries=[])
        same = [{"Id": "a", "MessageBody": "x"}] * 2
        self.code("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", batch, QueueUrl=url, Entries=same)

    def test_bad_input_changes_nothing(self):
        url = self.queue("bad", MaximumMessageSize="1024")
        send = self.sqs.send_message
        self.code("InvalidMessageContents", send, QueueUrl=url, MessageBody="\x01")
        self.code("InvalidParameterValue", send, QueueUrl=url, MessageBody="x" * 1025)
        self.code("InvalidParameterValue", send, QueueUrl=url, MessageBody="x", DelaySeconds=901)
        self.code("InvalidParameterValue", self.sqs.receive_message, QueueUrl=url, MaxNumberOfMessages=11)
        self.code("InvalidAttributeName", self.sqs.receive_message, QueueUrl=url, AttributeNames=["X"])
        unknown = urllib.request.Request(url, b"{}", {"X-Amz-Target": "AmazonSQS.Nonsense"})
        with self.assertRaises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(unknown, timeout=30)
        self.assertIn(b"UnknownOperationException", raised.exception.read())
        raised.exception.close()
        self.assertEqual(self.attribute(url, "ApproximateNumberOfMessages"), "0")

    def test_messages_are_shared_with_openwire_clients(self):
        url = self.queue("shared")
        self.sqs.send_message(QueueUrl=url, MessageBody="from SQS")
        broker = f"tcp://127.0.0.1:{self.broker.openwire}"
        command = [BINARY, "receive", "shared", "--url", broker, "--count", "1"]
        received = subprocess.run(command, capture_output=True, text=True, timeout=30)
        self.assertIn("from SQS", received.stdout, received.stderr)
        subprocess.run([BINARY, "send", "shared", "--body", "from JMS", "--url", broker], check=True, timeout=30)
        [message] = self.receive(url, WaitTimeSeconds=20, AttributeNames=["All"])
        self.assertEqual(message["Body"], "from JMS")
        self.assertEqual(message["Attributes"]["ApproximateReceiveCount"], "1")

    def test_large_bodies_are_received_up_to_1_mib(self):
        url = self.queue("large")
        broker = f"tcp://127.0.0.1:{self.broker.openwire}"
        for body in ("ä" * (512 << 10), "x" * ((1 << 20) + 1), "last"):
            command = [BINARY, "send", "large", "--file", "-", "--url", broker]
            subprocess.run(command, input=body, text=True, check=True, timeout=60, stdout=subprocess.DEVNULL)
        messages = self.receive(url, MaxNumberOfMessages=10, VisibilityTimeout=600)
        self.assertEqual([message["Body"] for message in messages], ["ä" * (512 << 10), "last"])
        for message in messages:
            self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        self.assertEqual(self.attribute(url, "ApproximateNumberOfMessagesNotVisible"), "1")


class DeadLetters(Case):
    def test_messages_received_too_often_go_to_the_dead_letters_and_back(self):
        dead = self.queue("dead")
        policy = '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":"2"}'
        self.code("InvalidParameterValue", self.sqs.create_queue, QueueName="x", Attributes={"RedrivePolicy": policy.replace(":dead", ":none")})
        url = self.queue("mortal", RedrivePolicy=policy)
        self.assertEqual(self.sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"], [url])
        sent = self.sqs.send_message(QueueUrl=url, MessageBody="m", MessageAttributes={"a": {"DataType": "String", "StringValue": "v"}})
        for _ in range(2):
            [message] = self.receive(url, WaitTimeSeconds=20)
            self.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
        self.assertEqual(self.receive(url), [])
        [message] = self.receive(dead, WaitTimeSeconds=20, VisibilityTimeout=0, AttributeNames=["All"], MessageAttributeNames=["a"])
        self.assertEqual((message["MessageId"], message["Body"]), (sent["MessageId"], "m"))
        self.assertEqual(message["MessageAttributes"]["a"]["StringValue"], "v")
        self.assertEqual(message["Attributes"]["DeadLetterQueueSourceArn"], self.attribute(url, "QueueArn"))
        arn = self.attribute(dead, "QueueArn")
        self.sqs.start_message_move_task(SourceArn=arn)
        [back] = self.receive(url, WaitTimeSeconds=20)
        self.assertEqual((back["MessageId"], back["Body"]), (sent["MessageId"], "m"))
        self.assertEqual(self.task(arn, "COMPLETED")["ApproximateNumberOfMessagesMoved"], 1)

    def task(self, arn, status):
        until = time.monotonic() + 30
        while True:
            [task] = self.sqs.list_message_move_tasks(SourceArn=arn)["Results"]
            if task["Status"] == status or time.monotonic() > until:
                self.assertEqual(task["Status"], status, task)
                return task
            time.sleep(0.05)

    def test_a_move_task_is_cancelled(self):
        slow, target = self.queue("slow"), self.queue("target")
        arn = self.attribute(slow, "QueueArn")
        policy = f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":1}}'
        start, cancel = self.sqs.start_message_move_task, self.sqs.cancel_message_move_task
        self.code("InvalidParameterValue", start, SourceArn=arn)
        self.queue("source-of-slow", RedrivePolicy=policy)
        for _ in range(3):
            entries = [{"Id": str(number), "MessageBody": "m"} for number in range(10)]
            self.sqs.send_message_batch(QueueUrl=slow, Entries=entries)
        destination = self.attribute(target, "QueueArn")
        handle = start(SourceArn=arn, DestinationArn=destination, MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
        self.code("AWS.SimpleQueueService.UnsupportedOperation", start, SourceArn=arn, DestinationArn=destination)
        self.assertEqual(len(self.receive(target, WaitTimeSeconds=20)), 1)
        cancel(TaskHandle=handle)
        self.task(arn, "CANCELLED")
        self.code("ResourceNotFoundException", cancel, status=404, TaskHandle=handle)


class Fifo(Case):
    def fifo(self, name, **attributes):
        return self.queue(f"{name}.fifo", FifoQueue="true", **attributes)

    def send(self, url, body, group, deduplication):
        return self.sqs.send_message(
            QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=deduplication
        )

    def test_groups_are_in_order_and_one_waits_for_its_first_message(self):
        url = self.fifo("groups")
        sequences = []
        for number, group in enumerate("aabba"):
            sequences.append(self.send(url, f"{group}{number}", group, str(number))["SequenceNumber"])
        self.assertEqual(sequences, sorted(set(sequences)))
        names = ["MessageGroupId", "SequenceNumber", "MessageDeduplicationId"]
        [first] = self.receive(url, AttributeNames=names)
        self.assertEqual(first["Body"], "a0")
        self.assertEqual([first["Attributes"][name] for name in names], ["a", sequences[0], "0"])
        others = self.receive(url, MaxNumberOfMessages=10)
        self.assertEqual([message["Body"] for message in others], ["b2", "b3"])
        self.assertEqual(self.receive(url), [])
        self.sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        rest = self.receive(url, MaxNumberOfMessages=10)
        self.assertEqual([message["Body"] for message in rest], ["a1", "a4"])
        self.sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=rest[0]["ReceiptHandle"], VisibilityTimeout=0)
        self.code("InvalidParameterValue", self.sqs.delete_message, QueueUrl=url, ReceiptHandle=rest[0]["ReceiptHandle"])

    def test_duplicates_are_answered_with_the_first_message(self):
        url = self.fifo("once")
        first = self.send(url, "first", "g", "d")
        again = self.send(url, "second", "g", "d")
        self.assertEqual((again["MessageId"], again["SequenceNumber"]), (first["MessageId"], first["SequenceNumber"]))
        entries = [
            {"Id": str(number), "MessageBody": "m", "MessageGroupId": "g", "MessageDeduplicationId": key}
            for number, key in enumerate(["d", "e", "e", "f"])
        ]
        sent = self.sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
        ids = [entry["MessageId"] for entry in sent]
        self.assertEqual((ids[0], ids[1]), (first["MessageId"], ids[2]))
        self.assertEqual(len(set(ids)), 3)
        messages = self.receive(url, MaxNumberOfMessages=10)
        self.assertEqual([message["MessageId"] for message in messages], [ids[0], ids[1], ids[3]])
        for message in messages:
            self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        self.send(url, "third", "g", "d")
        self.assertEqual(self.receive(url), [], "a deleted message is remembered")

    def test_many_senders_at_once_are_one(self):
        url = self.fifo("race", ContentBasedDeduplication="true")
        answers = []

        def send():
            sqs = client(self.broker)
            answers.append(sqs.send_message(QueueUrl=url, MessageBody="m", MessageGroupId="g")["MessageId"])

        senders = [threading.Thread(target=send) for _ in range(8)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(60)
        self.assertEqual((len(answers), len(set(answers))), (8, 1))
        self.assertEqual(self.attribute(url, "ApproximateNumberOfMessages"), "1")

    def test_wrong_requests(self):
        create = self.sqs.create_queue
        self.code("InvalidParameterValue", create, QueueName="x.fifo")
        self.code("InvalidAttributeValue", create, QueueName="x", Attributes={"FifoQueue": "true"})
        url = self.fifo("strict")
        send = self.sqs.send_message
        self.code("MissingParameter", send, QueueUrl=url, MessageBody="m", MessageDeduplicationId="d")
        self.code("InvalidParameterValue", send, QueueUrl=url, MessageBody="m", MessageGroupId="g")
        policy = '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:0:groups.fifo","maxReceiveCount":"2"}'
        self.code("InvalidParameterValue", create, QueueName="y", Attributes={"RedrivePolicy": policy})

    def test_duplicates_are_known_after_a_kill(self):
        broker = Broker().start()
        try:
            sqs = client(broker)
            attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
            url = sqs.create_queue(QueueName="q.fifo", Attributes=attributes)["QueueUrl"]
            sent = sqs.send_message(QueueUrl=url, MessageBody="m", MessageGroupId="g")
            [message] = sqs.receive_message(QueueUrl=url)["Messages"]
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            broker.kill()
            broker.start()
            again = sqs.send_message(QueueUrl=url, MessageBody="m", MessageGroupId="g")
            self.assertEqual(again["MessageId"], sent["MessageId"])
            self.assertNotIn("Messages", sqs.receive_message(QueueUrl=url))
        finally:
            broker.stop()


class Bounded(unittest.TestCase):
    code = Case.code

    def test_messages_in_flight_of_a_tenant_have_a_maximum_over_all_its_queues(self):
        broker = Broker()
        broker.config = f"{broker.folder}/postroad.toml"
        owns = '["queue://first", "queue://second"]'
        with open(broker.config, "w") as file:
            file.write(f'[[tenant]]\nname = "acme"\ndestinations = {owns}\nleases_max = 2\n')
        broker.start()
        try:
            sqs = client(broker)
            urls = [sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("first", "second", "other")]
            for url in urls:
                for body in ("m", "n"):
                    sqs.send_message(QueueUrl=url, MessageBody=body)
            first, second, other = urls
            [held] = sqs.receive_message(QueueUrl=first)["Messages"]
            self.assertEqual(len(sqs.receive_message(QueueUrl=second, MaxNumberOfMessages=10)["Messages"]), 1)
            for url in (first, second):
                self.code("OverLimit", sqs.receive_message, status=403, QueueUrl=url)
            reserve = urllib.request.Request(
                f"http://127.0.0.1:{broker.http}/3/projects/default/queues/first/reservations",
                b'{"n": 1}',
                {"Content-Type": "application/json"},
            )
            with self.assertRaises(urllib.error.HTTPError) as raised:
                urllib.request.urlopen(reserve, timeout=30)
            refused = json.load(raised.exception)
            self.assertEqual(raised.exception.code, 503)
            self.assertIn("the tenant acme has the maximum of 2 messages in flight", refused["msg"])
            raised.exception.close()
            with urllib.request.urlopen(f"http://127.0.0.1:{broker.http}/metrics", timeout=30) as answer:
                self.assertIn('postroad_tenant_leases{tenant="acme"} 2', answer.read().decode())
            self.assertEqual(len(sqs.receive_message(QueueUrl=other, MaxNumberOfMessages=10)["Messages"]), 2)
            sqs.delete_message(QueueUrl=first, ReceiptHandle=held["ReceiptHandle"])
            self.assertEqual(len(sqs.receive_message(QueueUrl=second)["Messages"]), 1)
        finally:
            broker.stop()


class Signatures(Case):
    def test_keys_are_made_listed_and_deleted(self):
        key_id, secret = new_key(self.broker, "alice")
        self.assertIn(f"{key_id}  alice", ctl(self.broker, "list"))
        signed = client(self.broker, key_id, secret)
        url = signed.create_queue(QueueName="signed")["QueueUrl"]
        signed.send_message(QueueUrl=url, MessageBody="m")
        [message] = signed.receive_message(QueueUrl=url, AttributeNames=["SenderId"])["Messages"]
        self.assertEqual(message["Attributes"]["SenderId"], "alice")
        last = "y" if secret.endswith("x") else "x"
        wrong = client(self.broker, key_id, secret[:-1] + last)
        self.code("SignatureDoesNotMatch", wrong.list_queues, status=403)
        ctl(self.broker, "delete", key_id)
        self.assertNotIn(key_id, ctl(self.broker, "list"))


class Secured(unittest.TestCase):
    def test_a_broker_with_users_wants_a_key_of_one(self):
        broker = Broker()
        users = f"{broker.folder}/users"
        for name in ("alice", "bob"):
            subprocess.run([BINARY, "user", "add", name, "--users", users], input="secret\n", text=True, check=True)
        config = f"{broker.folder}/postroad.toml"
        with open(config, "w") as file:
            file.write(f'[security]\nusers = "{users}"\n')
        broker.config = config
        broker.start()
        try:
            (good, secret), (stranger, _) = new_key(broker, "alice"), new_key(broker, "mallory")
            client(broker, good, secret).list_queues()
            for key_id, key, code in [
                (good, "wrong", "SignatureDoesNotMatch"),
                (stranger, secret, "InvalidClientTokenId"),
                ("AKIAUNKNOWN", secret, "InvalidClientTokenId"),
            ]:
                Case.code(self, code, client(broker, key_id, key).list_queues, status=403)
            target = {"X-Amz-Target": "AmazonSQS.ListQueues"}
            unsigned = urllib.request.Request(f"http://127.0.0.1:{broker.http}/", b"{}", target)
            with self.assertRaises(urllib.error.HTTPError) as raised:
                urllib.request.urlopen(unsigned, timeout=30)
            self.assertIn(b"MissingAuthenticationToken", raised.exception.read())
            raised.exception.close()
        finally:
            broker.stop()


class Killed(unittest.TestCase):
    ROUNDS = 3

    def test_what_was_received_stays_so_and_a_delete_is_final(self):
        broker = Broker().start()
        try:
            sqs = client(broker)
            url = sqs.create_queue(QueueName="q", Attributes={"VisibilityTimeout": "600"})["QueueUrl"]
            for number in range(self.ROUNDS):
                for body in (f"deleted {number}", f"received {number}"):
                    sqs.send_message(QueueUrl=url, MessageBody=body)
                messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
                self.assertEqual([m["Body"] for m in messages], [f"deleted {number}", f"received {number}"])
                deleted, received = (message["ReceiptHandle"] for message in messages)
                sqs.delete_message(QueueUrl=url, ReceiptHandle=deleted)
                broker.kill()
                broker.start()
                answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
                self.assertEqual(answer.get("Messages", []), [], "what was received stays invisible")
                sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=received, VisibilityTimeout=0)
                [again] = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
                self.assertEqual(again["Body"], f"received {number}")
                sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
            attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
            self.assertEqual(attributes["ApproximateNumberOfMessagesNotVisible"], "0")
            self.assertEqual(attributes["VisibilityTimeout"], "600")
        finally:
            broker.stop()
