"""The tables of a cluster say what was measured: `python3 -m unittest discover -s bench`."""

import os
import types
import unittest

from harness import artemis_pair, brokers, cluster, kafka, rabbit, report, workloads


class Cluster(unittest.TestCase):
    def test_failovers_are_ranked(self):
        rows = cluster.failover_table({"one": [900.4, 700.0, 1234.5], "other": [5.0], "none": []}).splitlines()
        self.assertEqual(["| one | 700 | 900 | 1,234 |", "| other | 5 | 5 | 5 |", "| none | failed | | |"], rows[2:])

    def test_rabbits_have_their_own_ports_and_one_secret(self):
        rabbits = rabbit.RabbitCluster("cache", "scratch")
        environments = [rabbits.environment_of(node) for node in rabbits.numbers]
        for variable in ("RABBITMQ_NODENAME", "RABBITMQ_MNESIA_BASE", "RABBITMQ_DIST_PORT", "RABBITMQ_CONFIG_FILE"):
            self.assertEqual(3, len({environment[variable] for environment in environments}), variable)
        self.assertEqual(1, len({environment["HOME"] for environment in environments}))

    def test_nodes_share_nothing_but_their_seeds(self):
        nodes = cluster.PostroadCluster("cache", "scratch")
        commands = [nodes.command_of(node) for node in nodes.numbers]
        seeds = {command[command.index("--cluster-seeds") + 1] for command in commands}
        self.assertEqual({"127.0.0.1:17701,127.0.0.1:17702,127.0.0.1:17703"}, seeds)
        for option in ("--data", "--port-offset", "--node", "--cluster-listen"):
            self.assertEqual(3, len({command[command.index(option) + 1] for command in commands}), option)
        self.assertIn(os.path.join("scratch", "postroad-cluster", "n2"), commands[1])

    def test_the_backup_of_a_pair_knows_its_primary(self):
        pair = artemis_pair.ArtemisPair("cache", "scratch")
        primary, backup = (pair.options_of(node) for node in pair.numbers)
        self.assertNotIn("--backup", primary)
        self.assertIn("--backup", backup)
        others = [options[options.index("--static-cluster") + 1] for options in (backup, primary)]
        self.assertEqual([f"tcp://127.0.0.1:{pair.port_of(node)}" for node in pair.numbers], others)
        self.assertEqual(f"failover:({','.join(others)})", pair.failover_url.split("?")[0])

    def test_other_files_on_the_disk_stop_no_producers(self):
        self.assertEqual("<a><max-disk-usage>100</max-disk-usage></a>", brokers.any_disk("<a><max-disk-usage>90</max-disk-usage></a>"))
        with self.assertRaises(RuntimeError):
            brokers.any_disk("<a></a>")

    def test_kafkas_confirm_what_a_majority_has_on_disk(self):
        kafkas = kafka.KafkaCluster("cache", "scratch")
        properties = [kafkas.properties_of(node) for node in kafkas.numbers]
        for key in ("node.id", "listeners", "log.dirs"):
            self.assertEqual(3, len({each[key] for each in properties}), key)
        self.assertEqual({(3, 2, 1)}, {
            (each["default.replication.factor"], each["min.insync.replicas"], each["log.flush.interval.messages"])
            for each in properties
        })  # fmt: skip
        self.assertEqual("1@127.0.0.1:19393,2@127.0.0.1:19394,3@127.0.0.1:19395", properties[0]["controller.quorum.voters"])
        self.assertEqual("kafka://127.0.0.1:19293,127.0.0.1:19294,127.0.0.1:19295", kafkas.url)

    def test_queues_are_named_as_the_load_generator_names_them(self):
        self.assertEqual(["bench.small-1-1"], workloads.BY_NAME["small-1-1"].queues())
        self.assertEqual("bench.small-20-20.9", workloads.BY_NAME["small-20-20"].queues()[-1])

    def test_each_cluster_has_a_row(self):
        result = {"broker": "one", "workload": "queue-1-1", "round": 1, "published_per_s": 1234.5, "publish_p50_ms": 0.5}
        result |= {"verified": True, **{fault: 0 for fault in report.FAULTS}}
        failed = {"broker": "other", "workload": "queue-1-1", "round": 1, "failure": "no answer"}
        settings = types.SimpleNamespace(rounds=1, warmup=1.0, duration=2.0, workloads=[workloads.BY_NAME["queue-1-1"]])
        names = [("one", "1"), ("other", "2")]
        rows = cluster.markdown([result, failed], names, {"one, 3 nodes": [7.0]}, settings, "Note.").splitlines()
        self.assertIn("| one | 1,234 | - | 0.50 | - | - | - | - | - | 0, 0, 0, 0 |", rows)
        self.assertIn("| other | - | - | - | - | - | - | - | - | not checked |", rows)
        self.assertIn("Not clean: other, round 1: no answer", rows)
        self.assertEqual("| one, 3 nodes | 7 | 7 | 7 |", rows[-1])

    def test_measures_stand_beside_their_aims(self):
        measured = {"workload": "queue-1-1", "round": 1, "verified": True, **{fault: 0 for fault in report.FAULTS}}
        ours = measured | {"broker": "postroad-cluster", "published_per_s": 2900.0, "publish_p999_ms": 1.0}
        peer = measured | {"broker": "rabbitmq-cluster", "published_per_s": 1000.0, "publish_p999_ms": 4.0}
        load = [workloads.BY_NAME["queue-1-1"]]
        names = ["postroad-cluster", "rabbitmq-cluster"]
        rows = cluster.table_of_aims([ours, peer], names, load).splitlines()
        self.assertTrue(rows[0].startswith("| to rabbitmq-cluster | rate: at least 3 | processor time: at most 0.33 |"), rows[0])
        self.assertEqual(["| queue-1-1, postroad-cluster | 2.90 | - | **0.25** |"], rows[2:])
        ours["published_per_s"] = 3000.0
        rows = cluster.table_of_aims([ours, peer], names, load).splitlines()
        self.assertEqual(["| queue-1-1, postroad-cluster | **3.00** | - | **0.25** |"], rows[2:])


if __name__ == "__main__":
    unittest.main()
