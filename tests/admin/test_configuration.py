"""The configuration of a running broker: shown, compared, planned, applied, and its versions."""

import json
import os
import unittest

from broker import Broker
from operator_tools import Operator, WithBroker

FIRST = 'broker_name = "first"\n[[bridge]]\nname = "east"\nto = ["tcp://127.0.0.1:1"]\nuser = "u"\npassword = "hush"\n'
SMALL = '[[policy]]\ndestination = "queue://small"\nmessages_max = 1\nat_limit = "fail"\n'


class Configuration(WithBroker):
    config = FIRST

    def ctl(self, *words, code=0):
        said = self.operator.ctl("config", *words)
        self.assertEqual(said.returncode, code, said.stdout + said.stderr)
        return said

    def file(self, text):
        file = os.path.join(self.broker.folder, "new.toml")
        with open(file, "w") as new:
            new.write(text)
        return file

    def own_file(self):
        with open(self.broker.config) as file:
            return file.read()

    def changes(self, *words):
        plan = json.loads(self.ctl(*words, "--json").stdout)
        return {change["key"]: change["needs_restart"] for change in plan["changes"]}

    def test_changes_are_planned_applied_and_kept(self):
        rows = [json.loads(line) for line in self.ctl("get", "--json").stdout.splitlines()]
        shown = {row["key"]: (row["value"], row["origin"]) for row in rows}
        self.assertEqual(shown["broker_name"], ('"first"', "file"))
        self.assertEqual(shown["port_offset"], (str(self.broker.offset), "command-line"))
        self.assertEqual(shown["dead_letter_queue"], ('"ActiveMQ.DLQ"', "default"))
        self.assertEqual(shown["bridge[east].password"], ('"***"', "file"))
        self.assertIn("are the same", self.ctl("diff").stdout)

        new = self.file(FIRST.replace("first", "second") + SMALL)
        want = {
            "broker_name": True,
            "policy[queue://small].destination": False,
            "policy[queue://small].messages_max": False,
            "policy[queue://small].at_limit": False,
        }
        self.assertEqual(self.changes("plan", new), want)
        self.assertEqual(self.own_file(), FIRST, "a plan changes nothing")
        applied = self.ctl("apply", new)
        self.assertIn("applied version 2: 3 changes are in force, 1 need a restart", applied.stderr)

        # The policy is in force; the name waits for the restart.
        self.operator.send("small", "one")
        status, text = self.operator.request("POST", "/api/v1/queues/small/messages", {"body": "two"})
        self.assertEqual(status, 507, text)
        self.assertEqual(self.operator.api("GET", "broker")["name"], "first")
        self.assertEqual(self.changes("diff"), {"broker_name": True})
        self.assertEqual(self.own_file(), FIRST.replace("first", "second") + SMALL)

        versions = [json.loads(line) for line in self.ctl("history", "--json").stdout.splitlines()]
        self.assertEqual([(row["version"], row["cause"]) for row in versions], [(2, "apply"), (1, "start")])
        self.assertEqual(versions[0]["author"]["peer"], "control socket")
        text = self.ctl("history", "1").stdout
        self.assertEqual(text, FIRST.replace("hush", "***"))
        changes = self.operator.api("GET", "audit")["items"]
        [apply] = [change for change in changes if change["path"] == "/api/v1/configuration/apply"]
        self.assertEqual((apply["status"], apply["detail"]), (200, "version 2, 4 changes"))

        self.broker.kill()
        self.broker.start()
        self.assertEqual(self.operator.api("GET", "broker")["name"], "second")
        self.assertEqual(self.changes("diff"), {})
        # The first version again, with the password that no answer showed.
        self.ctl("apply", "--version", "1")
        self.assertEqual(self.own_file(), FIRST)
        self.operator.send("small", "two")

    def test_the_file_is_read_again_by_order(self):
        with open(self.broker.config, "w") as file:
            file.write(FIRST.replace("first", "second") + SMALL)
        changes = self.changes("diff")
        self.assertEqual((len(changes), changes["broker_name"]), (4, True))
        self.assertEqual(self.changes("reload", "--dry-run"), changes)
        self.operator.send("small", "one")
        self.operator.send("small", "a dry run changes nothing")
        self.assertIn("reloaded version 2: 3 changes are in force, 1 need a restart", self.ctl("reload").stderr)
        status, text = self.operator.request("POST", "/api/v1/queues/small/messages", {"body": "three"})
        self.assertEqual(status, 507, text)
        # Once more changes nothing, and keeps no version.
        self.assertEqual(self.changes("reload"), {"broker_name": True})
        versions = self.operator.api("GET", "configuration/history")["items"]
        self.assertEqual([(row["version"], row["cause"]) for row in versions], [(2, "reload"), (1, "start")])
        self.assertEqual(versions[0]["author"]["peer"], "control socket")
        for text, want in [("[[route", "TOML parse error"), ("port_ofset = 1", "did you mean `port_offset`?")]:
            with open(self.broker.config, "w") as file:
                file.write(text)
            for words in (["--dry-run"], []):
                said = self.ctl("reload", *words, code=1)
                self.assertIn("postroad.toml", said.stderr)
                self.assertIn(want, said.stderr)
        status, text = self.operator.request("POST", "/api/v1/queues/small/messages", {"body": "four"})
        self.assertEqual(status, 507, "the policy is still in force")

    def test_a_bad_file_changes_nothing(self):
        for text, want in [
            ("port_ofset = 1", "did you mean `port_offset`?"),
            ('a = 1\nb = "', "line 2"),
            ("[runtime]\ncores = 0", "runtime.cores is 0; the least is 1"),
            ('[security]\nusers = "/nowhere"\n[[policy]]\ndestination = "queue://b"\nstore = "x"', "there is no store \"x\""),
            (FIRST.replace("hush", "***"), "a password is masked"),
        ]:
            for command in ("plan", "apply"):
                said = self.ctl(command, self.file(text), code=1)
                self.assertIn("new.toml is refused", said.stderr)
                self.assertIn(want, said.stderr)
        self.assertEqual(self.own_file(), FIRST)
        self.assertEqual(len(self.operator.api("GET", "configuration/history")["items"]), 1)
        self.assertIn("there is no version 9", self.ctl("history", "9", code=1).stderr)
        status, _ = self.operator.request("POST", "/api/v1/configuration/plan", {"text": "", "version": 1})
        self.assertEqual(status, 400)
        with open(self.broker.config, "a") as file:
            file.write("\n[broken")
        self.assertIn("postroad.toml", self.ctl("diff", code=1).stderr)

    def test_a_broker_without_a_file_has_nothing_to_apply_to(self):
        bare = Broker().start()
        self.addCleanup(bare.stop)
        for words in (["apply", self.file("port_offset = 0")], ["reload"]):
            said = Operator(bare).ctl("config", *words)
            self.assertEqual(said.returncode, 1)
            self.assertIn("start it with --config FILE", said.stderr)


if __name__ == "__main__":
    unittest.main()
