"""A broker and an unmodified boto3 client of it."""

import json
import subprocess
import unittest

import boto3
import botocore.config
import botocore.exceptions

from broker import BINARY, Broker


def client(broker, key_id="any", secret="any", **options):
    """A client that does not try again by itself: each answer is seen."""
    config = botocore.config.Config(retries={"total_max_attempts": 1}, read_timeout=60, **options)
    return boto3.client(
        "sqs",
        endpoint_url=f"http://127.0.0.1:{broker.http}",
        region_name="eu-west-1",
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
        config=config,
    )


def ctl(broker, *arguments):
    """`postroad ctl key …`; its output."""
    command = [BINARY, "ctl", "key", *arguments, "--data", f"{broker.folder}/data"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


def new_key(broker, user):
    """An access key of the user: its id and its secret."""
    key = json.loads(ctl(broker, "new", "--user", user, "--json"))
    return key["id"], key["secret"]


class Case(unittest.TestCase):
    """Cases that share a broker."""

    @classmethod
    def setUpClass(cls):
        cls.broker = Broker().start()
        cls.sqs = client(cls.broker)

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    def queue(self, name, **attributes):
        return self.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    def code(self, expected, call, status=400, **parameters):
        with self.assertRaises(botocore.exceptions.ClientError) as raised:
            call(**parameters)
        answer = raised.exception.response
        got = (answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"])
        self.assertEqual(got, (expected, status), answer["Error"]["Message"])
        return answer["Error"]["Message"]

    def receive(self, url, **parameters):
        return self.sqs.receive_message(QueueUrl=url, **parameters).get("Messages", [])

    def attribute(self, url, name):
        answer = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])
        return answer["Attributes"][name]
