package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import postroad.cluster.Clients.Protocol;

/** Three nodes under unmodified clients, which are not told of the faults. */
@Timeout(150)
@DisplayName("failover: three nodes lose and double nothing")
class FailoverTest {
    private static final int QUEUES = 3;
    /** The aims are 2 s and 5 s (docs/benchmarks.md); a machine under load gets more. */
    private static final long LEADS_WITHIN_MS = 6_000;
    private static final long FLOWS_WITHIN_MS = 10_000;

    private final Clients clients = new Clients();
    private final Ledger ledger = clients.ledger;
    private Cluster cluster;
    private List<Node> nodes;

    @BeforeEach
    void startNodes() throws Exception {
        cluster = new Cluster("failover", ledger.failure::get);
        nodes = cluster.nodes;
    }

    @AfterEach
    void endNodes() throws Exception {
        clients.abandon();
        cluster.close();
    }

    private void await(String event, Cluster.Condition condition) throws Exception {
        cluster.await(event, condition);
    }

    private Node leader() throws Exception {
        return cluster.leader();
    }

    /** Times since a fault: until another node leads, and until each client's sends are confirmed again. */
    private record Outage(long leaderMs, long sendsMs) {
        void assertShort(String fault) {
            assertTrue(leaderMs < LEADS_WITHIN_MS, () -> fault + ": no other leader for " + leaderMs + " ms");
            assertTrue(sendsMs < FLOWS_WITHIN_MS, () -> fault + ": no sends for " + sendsMs + " ms");
        }
    }

    /** The outage after a step that ends the leader. */
    private Outage outage(Node leader, Cluster.Condition step) throws Exception {
        int[] before = clients.sends();
        await("sends before the fault", () -> clients.haveSent(10, before));
        long began = System.nanoTime();
        step.holds();
        cluster.leader(leader);
        long leaderMs = millisSince(began);
        // Sends that were confirmed a moment before are counted by now.
        Thread.sleep(50);
        return new Outage(leaderMs, millisUntilSends(began));
    }

    private long millisUntilSends(long began) throws Exception {
        int[] at = clients.sends();
        await("a send after the fault", () -> clients.haveSent(1, at));
        return millisSince(began);
    }

    private static long millisSince(long began) {
        return (System.nanoTime() - began) / 1_000_000;
    }

    @Test
    @DisplayName("kill -9, a pause and an orderly end of the leader, under load")
    void theLeaderGoes() throws Exception {
        Node first = leader();
        for (Node node : nodes) {
            if (node != first) {
                await(node.name + " follows", node::follows);
            }
        }
        for (int queue = 0; queue < QUEUES; queue++) {
            clients.start(Protocol.OPENWIRE, "cluster." + queue, nodes);
        }
        await("commits", () -> ledger.committed.size() > 30);

        Outage killed = outage(first, () -> {
            first.signal("KILL");
            first.awaitEnd();
            return true;
        });
        first.start();
        await("the killed node follows", first::follows);

        Node second = leader();
        // A client finds out by its own timeout that its node is silent: no bound for its sends meanwhile.
        Outage paused = outage(second, () -> {
            second.signal("STOP");
            return true;
        });
        long resumed = System.nanoTime();
        second.signal("CONT");
        long resumedMs = millisUntilSends(resumed);
        await("the paused node follows", second::follows);

        Node third = leader();
        Outage ended = outage(third, () -> {
            third.signal("TERM");
            third.awaitEnd();
            return true;
        });
        third.start();
        await("the ended node follows", third::follows);

        // Every node has seen each other one go: the last leader knows that all have everything.
        Node last = leader();
        clients.stopSending();
        await("the last message", () -> ledger.missing().isEmpty());
        await("all replicas are up to date", () -> lagsOf(last).equals(List.of("0", "0", "0")));
        clients.stop();
        assertMetricsOf(last);
        System.out.println("failover: " + ledger + "; killed: " + killed + ", paused: " + paused + ", ms after its end: " + resumedMs
                + ", ended: " + ended);
        ledger.assertNothingLostOrDoubled();
        killed.assertShort("kill -9");
        ended.assertShort("an orderly end");
        assertTrue(paused.leaderMs < LEADS_WITHIN_MS, () -> "a pause: no other leader for " + paused.leaderMs + " ms");
        assertTrue(resumedMs < FLOWS_WITHIN_MS, () -> "after a pause: no sends for " + resumedMs + " ms");
    }

    private void assertMetricsOf(Node leader) throws Exception {
        assertEquals(1, leader.metric("postroad_cluster_role{role=\"leader\"}"));
        assertTrue(leader.metric("postroad_cluster_term") >= 4, "each of the three faults elects a leader");
        String own = "{node=\"" + leader.name + "\"}";
        double commits = leader.metric("postroad_cluster_commit_seconds_count" + own);
        assertTrue(commits > 0, () -> commits + " commits were timed");
        assertTrue(leader.metric("postroad_cluster_commit_seconds_sum" + own) >= leader.metric("postroad_cluster_majority_seconds_sum" + own));
        for (Node follower : cluster.followers(leader)) {
            String other = "{node=\"" + follower.name + "\"}";
            assertEquals(1, leader.metric("postroad_cluster_connected" + other));
            assertEquals(0, leader.metric("postroad_cluster_lag_entries" + other));
            assertTrue(leader.metric("postroad_cluster_sent_bytes_total" + other) > 0);
            assertEquals(1, follower.metric("postroad_cluster_role{role=\"follower\"}"));
            assertTrue(follower.metric("postroad_cluster_elections_total") > 0);
        }
    }

    private static List<String> lagsOf(Node node) throws InterruptedException {
        return java.util.regex.Pattern.compile("\"lag\":(\\d+|null)").matcher(node.cluster()).results()
                .map(found -> found.group(1)).collect(Collectors.toList());
    }
}
