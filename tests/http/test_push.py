"""Push queues: set by the unmodified Python client, received by an endpoint of this process."""

import json
import os
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

import iron_mq
import requests

from broker import Broker
from receiver import Receiver

CONFIG = '[push]\nallow = ["127.0.0.1"]\n'


def until(check, seconds=30):
    """Waits for `check` to give something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s")


class Push(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = Broker(CONFIG).start()
        cls.mq = cls.client()

    @classmethod
    def tearDownClass(cls):
        alive = cls.broker.is_alive()
        cls.broker.stop()
        assert alive, "the broker died"

    @classmethod
    def client(cls):
        return iron_mq.IronMQ(
            host="127.0.0.1", port=cls.broker.http, protocol="http", project_id="p1", token="any"
        )

    def receiver(self, *arguments):
        receiver = Receiver(*arguments)
        self.addCleanup(receiver.close)
        return receiver

    def make(self, name, *receivers, kind="multicast", **settings):
        subscribers = [{"name": f"s{number}", "url": url} for number, url in enumerate(receivers)]
        self.mq.create_queue(name, {"type": kind, "push": {"subscribers": subscribers, **settings}})
        return self.mq.queue(name)

    def ask(self, method, path, **options):
        return requests.request(
            method, f"http://127.0.0.1:{self.broker.http}/3/projects/p1/queues{path}", timeout=30, **options
        )

    def is_empty(self, queue):
        until(lambda: queue.size() == 0)

    def test_each_subscriber_of_a_multicast_queue_gets_the_body_and_headers(self):
        one, two = self.receiver(), self.receiver()
        queue = self.make("cast", one.url("/in?x=1"))
        queue.add_subscribers({"name": "two", "url": two.url(), "headers": {"X-Own": "mine", "Content-Type": "text/x"}})
        body = {"messages": [{"body": "größe", "push_headers": {"X-Message": "m"}}]}
        [posted] = self.ask("POST", "/cast/messages", json=body).json()["ids"]
        [first], [second] = one.wait_for(1), two.wait_for(1)
        self.assertEqual((first.path, first.body, second.body), ("/in?x=1", "größe", "größe"))
        self.assertEqual(first.headers["User-Agent"], "IronMQ Pusherd")
        self.assertEqual(first.headers["Content-Type"], "text/plain; encoding=utf-8")
        self.assertEqual(second.headers["Content-Type"], "text/x")
        self.assertEqual((first.headers["X-Message"], second.headers["X-Own"]), ("m", "mine"))
        self.assertEqual((first.headers["Iron-Message-Id"], second.headers["Iron-Subscriber-Name"]), (posted, "two"))
        self.assertTrue(first.headers["Iron-Reservation-Id"].isdigit())
        self.assertTrue(first.headers["Iron-Subscriber-Message-Url"].endswith(f"/p1/queues/cast/messages/{posted}"))
        self.is_empty(queue)

    def test_subscribers_are_added_replaced_and_removed(self):
        one, two = self.receiver(), self.receiver()
        queue = self.make("changes", one.url())
        queue.add_subscribers({"name": "two", "url": "http://127.0.0.1:1/"})
        queue.add_subscribers({"name": "two", "url": two.url()})
        names = lambda: [s["name"] for s in queue.info()["push"]["subscribers"]]
        self.assertEqual(names(), ["s0", "two"])
        queue.remove_subscribers("s0")
        self.assertEqual(names(), ["two"])
        queue.post("only for two")
        two.wait_for(1)
        queue.replace_subscribers({"name": "three", "url": one.url()})
        self.assertEqual(names(), ["three"])
        queue.post("only for three")
        self.assertEqual([request.body for request in one.wait_for(1)], ["only for three"])
        self.assertEqual(len(two.requests), 1)

    def test_an_endpoint_that_fails_is_asked_again_later_each_time(self):
        statuses = iter([500, 404, 200])
        failing = self.receiver(lambda request: next(statuses))
        well = self.receiver()
        queue = self.make("retried", failing.url(), well.url(), retries=3, retries_delay=1)
        posted = queue.post("again")["ids"][0]
        failing.wait_for(1)
        status = until(lambda: [
            s for s in queue.get_message_push_statuses(posted)["subscribers"] if s["name"] == "s0" and s["status_code"] == 500
        ])[0]
        self.assertEqual((status["tries"], status["retries_remaining"]), (1, 3))
        self.assertLess(abs(status["last_try_at"] - time.time()), 60)
        first, second, third = failing.wait_for(3)
        self.assertGreater(second.at - first.at, 0.9)
        self.assertGreater(third.at - second.at, 1.8)
        self.is_empty(queue)
        self.assertEqual(len(well.requests), 1, "an endpoint that has it does not get it again")
        self.assertEqual(self.ask("GET", f"/retried/messages/{posted}/subscribers").status_code, 404)

    def test_retry_after_is_followed(self):
        answers = iter([(503, {"Retry-After": "3"}), 200])
        receiver = self.receiver(lambda request: next(answers))
        self.make("patient", receiver.url(), retries_delay=1).post("m")
        first, second = receiver.wait_for(2)
        self.assertGreater(second.at - first.at, 2.9)

    def test_what_no_retry_delivers_goes_to_the_error_queue(self):
        failing = self.receiver(lambda request: 500)
        well = self.receiver()
        queue = self.make("failed", failing.url(), well.url(), retries=1, retries_delay=1, error_queue="failed-errors")
        posted = queue.post("lost?")["ids"][0]
        failing.wait_for(2)
        errors = self.mq.queue("failed-errors")
        until(lambda: self.ask("GET", "/failed-errors").status_code == 200)
        [error] = errors.reserve(wait=20, delete=True)["messages"]
        report = json.loads(error["body"])
        self.assertEqual((report["source_msg_id"], report["body"]), (posted, "lost?"))
        self.assertEqual(
            report["subscribers"], [{"name": "s0", "url": failing.url(), "code": 500, "msg": "no: 500"}]
        )
        self.is_empty(queue)

    def test_unicast_goes_to_one_endpoint_that_takes_it(self):
        failing, well = self.receiver(lambda request: 500), self.receiver()
        queue = self.make("uni", failing.url(), well.url(), kind="unicast", retries_delay=60)
        for number in range(4):
            queue.post(str(number))
        self.assertEqual(sorted(r.body for r in well.wait_for(4)), ["0", "1", "2", "3"])
        self.is_empty(queue)
        self.assertEqual(len(well.requests), 4)

    def test_202_means_that_the_endpoint_deletes_it_or_gets_it_again(self):
        accepting = self.receiver(lambda request: 202)
        queue = self.make("later", accepting.url(), retries_delay=2, retries=5)
        queue.post("job")
        first, again = accepting.wait_for(2)
        self.assertGreater(again.at - first.at, 1.9)
        headers = again.headers
        handle = {"reservation_id": headers["Iron-Reservation-Id"], "subscriber_name": headers["Iron-Subscriber-Name"]}
        url = headers["Iron-Subscriber-Message-Url"]
        self.assertEqual(requests.delete(url, json={**handle, "reservation_id": "1"}, timeout=30).status_code, 403)
        self.assertEqual(requests.delete(url, json={**handle, "subscriber_name": "x"}, timeout=30).status_code, 400)
        self.assertEqual(requests.delete(url, json=handle, timeout=30).json(), {"msg": "Deleted"})
        self.assertEqual(queue.size(), 0, "the answer came after the message was deleted")
        self.assertEqual(requests.delete(url, json=handle, timeout=30).status_code, 404)

    def test_an_endpoint_that_hangs_ends_in_time_and_delays_no_other_queue(self):
        release = threading.Event()
        self.addCleanup(release.set)
        hanging = self.receiver(lambda request: release.wait(60) and 200 or 200)
        well = self.receiver()
        slow = self.make("hangs", hanging.url(), retries=0, timeout=2, concurrency=4, error_queue="hang-errors")
        slow.post(*[str(n) for n in range(20)])
        hanging.wait_for(4)
        self.assertEqual(len(hanging.requests), 4, "no more than its concurrency at a time")
        quick = self.make("quick", well.url())
        began = time.monotonic()
        quick.post(*[str(n) for n in range(50)])
        well.wait_for(50)
        self.assertLess(time.monotonic() - began, 20)
        until(lambda: self.ask("GET", "/hang-errors").status_code == 200)
        [error] = self.mq.queue("hang-errors").reserve(wait=20)["messages"]
        self.assertIn("did not answer within 2 seconds", json.loads(error["body"])["subscribers"][0]["msg"])

    def test_the_rate_of_requests_has_a_limit(self):
        receiver = self.receiver()
        self.make("slowly", receiver.url(), rate_limit=10).post(*[str(n) for n in range(25)])
        got = receiver.wait_for(25)
        self.assertGreater(got[-1].at - got[0].at, 2.0)

    def test_private_addresses_are_refused_by_name_by_number_and_by_redirect(self):
        private = "http://127.0.0.2:9/"
        redirecting = self.receiver(lambda request: (307, {"Location": private}))
        moved = self.receiver()
        following = self.receiver(lambda request: (308, {"Location": moved.url("/moved")}))
        for name, url in [
            ("by-number", private), ("mapped", "http://[::ffff:127.0.0.2]:9/"), ("by-redirect", redirecting.url()),
        ]:
            queue = self.make(name, url, retries=0, error_queue=f"{name}-errors")
            queue.post("secret")
            until(lambda: self.ask("GET", f"/{name}-errors").status_code == 200)
            [error] = self.mq.queue(f"{name}-errors").reserve(wait=20)["messages"]
            self.assertIn("private address", json.loads(error["body"])["subscribers"][0]["msg"], name)
        self.make("moved", following.url(), retries=0).post("follows")
        self.assertEqual([(r.path, r.body) for r in moved.wait_for(1)], [("/moved", "follows")])

    def test_an_endpoint_shows_a_certificate_that_is_trusted(self):
        receiver = self.receiver()
        with tempfile.TemporaryDirectory() as folder:
            key, certificate = f"{folder}/key.pem", f"{folder}/certificate.pem"
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                 "-keyout", key, "-out", certificate, "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
                check=True, capture_output=True, timeout=30,
            )
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
        receiver.server.socket = context.wrap_socket(receiver.server.socket, server_side=True)
        url = receiver.url().replace("http:", "https:")
        self.make("untrusted", url, retries=0, error_queue="untrusted-errors").post("secret")
        until(lambda: self.ask("GET", "/untrusted-errors").status_code == 200)
        [error] = self.mq.queue("untrusted-errors").reserve(wait=20)["messages"]
        self.assertIn("certificate", json.loads(error["body"])["subscribers"][0]["msg"])
        self.assertEqual(receiver.requests, [])

    def test_a_subscriber_may_be_a_queue(self):
        self.make("chain", "ironmq:///chained").post("through")
        until(lambda: self.ask("GET", "/chained").status_code == 200)
        [message] = self.mq.queue("chained").reserve(wait=20)["messages"]
        self.assertEqual(message["body"], "through")

    def test_a_webhook_passes_headers_on(self):
        receiver = self.receiver()
        self.make("hooked", receiver.url())
        self.ask("POST", "/hooked/webhook", data="raw", headers={"X-Subscribers-X-Event": "push", "X-Other": "no"})
        [got] = receiver.wait_for(1)
        self.assertEqual((got.body, got.headers["X-Event"], got.headers["X-Other"]), ("raw", "push", None))

    def test_bad_settings_are_refused(self):
        self.mq.create_queue("pulled")
        self.make("pushed", "http://127.0.0.1:9/")
        subscribers = {"subscribers": [{"name": "a", "url": "http://h/"}]}
        for case, method, path, body, words in [
            ("subscribers on pull", "POST", "/pulled/subscribers", subscribers, "pull queue"),
            ("push on pull", "PATCH", "/pulled", {"queue": {"push": subscribers}}, "pull queue"),
            ("another type", "PATCH", "/pushed", {"queue": {"type": "pull"}}, "cannot be changed"),
            ("a scheme", "PUT", "/x", {"queue": {"push": {"subscribers": [{"url": "ftp://h"}]}}}, "https://"),
            ("retries", "PUT", "/x", {"queue": {"type": "unicast", "push": {"retries": 101}}}, "0 to 100"),
            ("dead letters", "PATCH", "/pushed", {"queue": {"dead_letter": {"queue_name": "d"}}}, "error_queue"),
            ("status on pull", "GET", "/pulled/messages/18446744073709551616/subscribers", None, "pull queue"),
        ]:
            answer = self.ask(method, path, json=body)
            self.assertEqual(answer.status_code, 400, f"{case}: {answer.text}")
            self.assertIn(words, answer.json()["msg"], case)
        self.assertEqual(self.ask("GET", "/x").status_code, 404)


class Trusted(unittest.TestCase):
    def make(self, folder, *options):
        """A key and a certificate."""
        name = os.path.join(folder, options[0])
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={options[0]}"]
        subprocess.run([*command, *files, *options[1:]], check=True, capture_output=True, timeout=30)
        return f"{name}.pem", f"{name}.key"

    def test_an_endpoint_with_a_good_certificate_gets_messages_and_one_of_another_name_does_not(self):
        broker = Broker(CONFIG)
        self.addCleanup(broker.stop)
        authority, its_key = self.make(broker.folder, "authority")
        signed = ["-CA", authority, "-CAkey", its_key, "-addext", "basicConstraints=critical,CA:FALSE"]
        broker.environment = {"SSL_CERT_FILE": authority}
        broker.start()
        mq = iron_mq.IronMQ(host="127.0.0.1", port=broker.http, protocol="http", project_id="p1", token="any")
        receivers = {}
        for name, alternative in [("good", "IP:127.0.0.1"), ("other", "DNS:other.example")]:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.make(broker.folder, name, *signed, "-addext", f"subjectAltName={alternative}"))
            receivers[name] = Receiver()
            self.addCleanup(receivers[name].close)
            receivers[name].server.socket = context.wrap_socket(receivers[name].server.socket, server_side=True)
            subscribers = [{"name": "s", "url": receivers[name].url().replace("http:", "https:")}]
            push = {"subscribers": subscribers, "retries": 0, "error_queue": "errors"}
            mq.create_queue("errors")
            mq.create_queue(name, {"type": "unicast", "push": push})
            mq.queue(name).post("secret")
        self.assertEqual([request.body for request in receivers["good"].wait_for(1)], ["secret"])
        [error] = mq.queue("errors").reserve(wait=20)["messages"]
        self.assertIn("certificate", json.loads(error["body"])["subscribers"][0]["msg"])
        self.assertEqual(receivers["other"].requests, [])


class ByDefault(unittest.TestCase):
    def test_a_name_that_leads_to_this_machine_is_refused(self):
        receiver = Receiver()
        broker = Broker().start()
        try:
            mq = iron_mq.IronMQ(
                host="127.0.0.1", port=broker.http, protocol="http", project_id="p1", token="any"
            )
            url = receiver.url().replace("127.0.0.1", "localhost")
            push = {"subscribers": [{"name": "s", "url": url}], "retries": 0, "error_queue": "errors"}
            mq.create_queue("inside", {"type": "multicast", "push": push})
            mq.create_queue("errors")
            mq.queue("inside").post("secret")
            [error] = mq.queue("errors").reserve(wait=30)["messages"]
            self.assertIn("localhost is a private address", json.loads(error["body"])["subscribers"][0]["msg"])
            self.assertEqual(receiver.requests, [])
        finally:
            broker.stop()
            receiver.close()


class Restarted(unittest.TestCase):
    def test_queues_push_on_after_a_kill(self):
        takes = threading.Event()
        receiver = Receiver(lambda request: 200 if takes.is_set() else 500)
        broker = Broker(CONFIG).start()
        try:
            mq = iron_mq.IronMQ(
                host="127.0.0.1", port=broker.http, protocol="http", project_id="p1", token="any"
            )
            push = {"subscribers": [{"name": "s", "url": receiver.url()}], "retries_delay": 1, "retries": 100}
            mq.create_queue("lasting", {"type": "unicast", "push": push})
            before = mq.queue("lasting").info()
            broker.kill()
            broker.start()
            self.assertEqual(mq.queue("lasting").info(), before)
            takes.set()
            mq.queue("lasting").post("after")
            self.assertEqual([request.body for request in receiver.wait_for(1)], ["after"])
        finally:
            broker.stop()
            receiver.close()
