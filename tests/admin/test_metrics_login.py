"""`security.metrics_login`: /metrics for those who may have them."""

import base64
import unittest

from operator_tools import Operator, broker_with_users
from test_tokens import CONFIG as USERS

CONFIG = USERS.replace("[security]", "[security]\nmetrics_login = true")


class MetricsLogin(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.broker = broker_with_users(CONFIG, ann="secret-a", root="secret-r")
        cls.root = Operator(cls.broker, "root", "secret-r")

    @classmethod
    def tearDownClass(cls):
        cls.broker.stop()

    def get(self, headers=None, path="/metrics"):
        return Operator(self.broker).request("GET", path, None, headers)

    def test_metrics_need_a_user_with_the_permission(self):
        token = self.root.api("POST", "tokens", {"user": "root", "scope": "read"})["token"]
        messages = self.root.api("POST", "tokens", {"user": "root", "scope": "messages"})["token"]
        basic = lambda pair: {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}
        bearer = lambda text: {"Authorization": f"Bearer {text}"}
        for case, headers, want in [
            ("nobody", {}, 401),
            ("a password", basic("root:secret-r"), 200),
            ("a token to read", bearer(token), 200),
            ("a token for messages", bearer(messages), 403),
            ("a wrong password", basic("root:guess"), 401),
            ("without the permission", basic("ann:secret-a"), 403),
        ]:
            status, text = self.get(headers)
            self.assertEqual(status, want, case)
            self.assertEqual("postroad_connections" in text, want == 200, case)
        self.assertEqual(self.get(bearer(token), "/metrics?collect=all")[0], 200, "Prometheus may add parameters")
        self.assertEqual(Operator(self.broker).request("POST", "/metrics", {}, basic("root:secret-r"))[0], 405)
        for path in ("/health/live", "/health/ready"):
            self.assertEqual(self.get({}, path)[0], 200)

    def test_without_the_option_everybody_has_them(self):
        open_broker = broker_with_users(USERS, root="secret-r")
        self.addCleanup(open_broker.stop)
        self.assertEqual(Operator(open_broker).request("GET", "/metrics")[0], 200)
        self.assertEqual(Operator(open_broker).request("POST", "/metrics")[0], 405)


if __name__ == "__main__":
    unittest.main()
