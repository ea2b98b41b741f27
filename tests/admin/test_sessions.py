"""Sessions of the console: cookie, CSRF token, sign out; and logins that are locked after too many failures."""

import http.cookies
import json
import os
import signal
import unittest
import urllib.error
import urllib.request

from broker import Broker
from operator_tools import Operator, add_user, until
from test_tokens import CONFIG

SESSION = "/api/v1/session"
TYPE = {"Content-Type": "application/json"}


class Sessions(unittest.TestCase):
    def setUp(self):
        self.broker = Broker("")
        self.users = os.path.join(self.broker.folder, "users")
        add_user(self.users, "ann", "secret-a")
        add_user(self.users, "root", "secret-r")
        with open(self.broker.config, "w") as file:
            file.write(CONFIG.replace("{users}", self.users))
        self.broker.start()
        self.nobody = Operator(self.broker)
        self.root = Operator(self.broker, "root", "secret-r")

    def tearDown(self):
        alive = self.broker.is_alive()
        self.broker.stop()
        assert alive, "the broker died"

    def ask(self, method, path, body=None, headers=None):
        """The status, the headers, and the body."""
        data = None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.broker.http}{path}"
        request = urllib.request.Request(url, data, {**TYPE, **(headers or {})}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read().decode()

    def sign_in(self, user, password, headers=None):
        return self.ask("POST", SESSION, {"user": user, "password": password}, headers)

    def session(self, user, password):
        """The headers of requests in a new session, and its CSRF token."""
        status, headers, text = self.sign_in(user, password)
        self.assertEqual(status, 200, text)
        cookie = next(iter(http.cookies.SimpleCookie(headers["Set-Cookie"]).values()))
        self.assertTrue(cookie["httponly"] and cookie["path"] == "/", headers["Set-Cookie"])
        self.assertEqual(cookie["samesite"], "Strict")
        return {"Cookie": f"{cookie.key}={cookie.value}"}, json.loads(text)["csrf"]

    def test_a_session_stands_for_the_password(self):
        cookie, csrf = self.session("ann", "secret-a")
        send, one = "/api/v1/queues/orders.a/messages", {"body": "one"}
        shown = json.loads(self.ask("GET", SESSION, None, cookie)[2])
        self.assertEqual(shown, {"user": "ann", "csrf": csrf, "administers": False, "is_session": True,
                                 "stores": 1})
        for case, want, headers in [
            ("without the CSRF token", 403, cookie),
            ("with another", 403, {**cookie, "X-Postroad-Csrf": "x" + csrf}),
            ("of another site", 403, {**cookie, "X-Postroad-Csrf": csrf, "Origin": "http://evil.example"}),
            ("with the token", 201, {**cookie, "X-Postroad-Csrf": csrf}),
            ("without the cookie", 401, {"X-Postroad-Csrf": csrf}),
            ("with another cookie", 401, {"Cookie": "postroad-session=x", "X-Postroad-Csrf": csrf}),
        ]:
            status, _, text = self.ask("POST", send, one, headers)
            self.assertEqual(status, want, f"{case}: {text}")
        self.assertEqual(self.ask("DELETE", SESSION, None, cookie)[0], 403, "signing out is a change, too")
        self.assertEqual(self.ask("DELETE", SESSION, None, {**cookie, "X-Postroad-Csrf": csrf})[0], 204)
        self.assertEqual(self.ask("GET", SESSION, None, cookie)[0], 401)
        audit = self.root.api("GET", "audit?limit=500")["items"]
        details = [(row["status"], row["user"], row["detail"]) for row in audit if row["path"] == SESSION]
        self.assertIn((200, "ann", "signed in"), details)
        self.assertIn((204, "ann", "signed out"), details)

    def test_users_see_their_own_queues_alone(self):
        for queue in ("orders.a", "bills.a"):
            self.root.send(queue, "one")
        cookie, _ = self.session("ann", "secret-a")
        overview = json.loads(self.ask("GET", "/api/v1/overview", None, cookie)[2])
        self.assertTrue(overview["is_limited"])
        self.assertEqual((overview["now"]["messages"], overview["stores"], overview["protocols"]), (0, [], []))
        self.assertFalse(self.root.api("GET", "overview")["is_limited"])
        listed = json.loads(self.ask("GET", "/api/v1/queues", None, cookie)[2])
        self.assertEqual([row["name"] for row in listed["items"]], ["orders.a"])

    def test_a_session_ends_with_the_users_password(self):
        cookie, _ = self.session("ann", "secret-a")
        other, _ = self.session("root", "secret-r")
        add_user(self.users, "ann", "changed")
        self.broker.process.send_signal(signal.SIGHUP)
        until("it has ended", lambda: self.ask("GET", SESSION, None, cookie)[0] == 401)
        self.assertEqual(self.ask("GET", SESSION, None, other)[0], 200, "another user's goes on")

    def test_guessing_is_locked_for_every_way_in_and_audited(self):
        for _ in range(5):
            self.assertIn(self.sign_in("ann", "guess")[0], (401, 429))
        status, headers, text = self.sign_in("ann", "secret-a")
        self.assertEqual(status, 429, text)
        self.assertIn("try again in", text)
        self.assertGreater(int(headers["Retry-After"]), 0)
        self.assertEqual(Operator(self.broker, "ann", "secret-a").request("GET", SESSION)[0], 429)
        iron = {"Authorization": "OAuth ann:secret-a"}
        self.assertEqual(self.ask("GET", "/3/projects/orders/queues", None, iron)[0], 429)
        self.session("root", "secret-r")
        rows = [(row["status"], row["detail"]) for row in self.root.api("GET", "audit?limit=500")["items"]]
        self.assertIn((429, "sign-in failed as ann"), rows)

    def test_sign_in_refuses_forms_other_sites_and_large_bodies(self):
        for case, want, headers in [
            ("a form", 415, {"Content-Type": "application/x-www-form-urlencoded"}),
            ("another site", 403, {"Origin": "http://evil.example"}),
        ]:
            self.assertEqual(self.sign_in("ann", "secret-a", headers)[0], want, case)
        self.assertEqual(self.sign_in("ann", "x" * 20_000)[0], 413)
        self.assertEqual(self.ask("POST", SESSION, {"user": "ann"})[0], 400)
        challenged = self.ask("GET", SESSION)[1]["WWW-Authenticate"]
        self.assertTrue(challenged.startswith("Basic"), challenged)
        self.assertIsNone(self.ask("GET", SESSION, None, {"X-Postroad-Console": "1"})[1]["WWW-Authenticate"])


if __name__ == "__main__":
    unittest.main()
