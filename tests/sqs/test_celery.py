"""Celery over kombu's transport for SQS: tasks are sent, carried out, retried and acknowledged."""

import threading
import time
import unittest

import celery
import celery.contrib.testing.worker as testing

from broker import Broker
from sqs import client


class Tasks(unittest.TestCase):
    def test_tasks_are_carried_out_and_retried(self):
        broker = Broker().start()
        try:
            app = celery.Celery("tasks", broker=f"sqs://any:any@127.0.0.1:{broker.http}//", backend="cache+memory://")
            app.conf.update(
                broker_transport_options={"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1},
                task_default_queue="celery",
                task_acks_late=True,
                broker_connection_retry_on_startup=True,
            )
            done, tries = threading.Event(), []

            @app.task(name="add", bind=True, max_retries=3)
            def add(task, a, b):
                tries.append((a, b))
                if len(tries) < 2:
                    raise task.retry(countdown=0)
                done.set()
                return a + b

            add.delay(3, 4)
            with testing.start_worker(app, perform_ping_check=False, pool="solo", loglevel="error"):
                self.assertTrue(done.wait(60))
                url = client(broker).get_queue_url(QueueName="celery")["QueueUrl"]
                self.assertTrue(self.is_empty(client(broker), url), "acknowledged tasks are deleted")
            self.assertEqual(tries, [(3, 4), (3, 4)])
        finally:
            broker.stop()

    def is_empty(self, sqs, url):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
            attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
            if set(attributes.values()) == {"0"}:
                return True
            time.sleep(0.1)
        return False
