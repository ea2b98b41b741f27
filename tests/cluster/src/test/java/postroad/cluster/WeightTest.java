package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import postroad.cluster.Clients.Protocol;

/** Nodes with different shares of the leaders. */
@Timeout(240)
@DisplayName("weights: leadership goes to the node with the largest weight by itself, and clients see no error")
class WeightTest {
    private static final int PREFERRED = 3;
    /** A consumer that the machine does not let finish its messages in time has a transaction fail. */
    private static final int FAILED_COMMITS_MAX = 3;
    private static final long BALANCED_WITHIN_MS = 30_000;

    private final Clients clients = new Clients();
    private Cluster cluster;

    @BeforeEach
    void startNodes() throws Exception {
        cluster = new Cluster("weight", node -> "[cluster]\nweight = " + (node == PREFERRED ? 2 : node == 1 ? 0 : 1) + "\n");
    }

    @AfterEach
    void endNodes() throws Exception {
        clients.abandon();
        cluster.close();
    }

    private void awaitSends() throws Exception {
        int[] before = clients.sends();
        cluster.await("sends", () -> clients.haveSent(10, before));
    }

    /** Waits until this node leads, and returns after how long. */
    private long awaitLeads(Node node) throws Exception {
        long began = System.currentTimeMillis();
        cluster.await(node.name + " leads", node::serves);
        return System.currentTimeMillis() - began;
    }

    @Test
    @DisplayName("at the start, after an order, and when the node is back")
    void toThePreferredNode() throws Exception {
        Node preferred = cluster.nodes.get(PREFERRED - 1);
        Node never = cluster.nodes.get(0);
        cluster.leader();
        clients.start(Protocol.OPENWIRE, "weight.openwire", cluster.nodes);
        clients.start(Protocol.AMQP, "weight.amqp", cluster.nodes);
        long start = awaitLeads(preferred);
        awaitSends();

        cluster.followers(preferred);
        clients.takePausesMs();
        String ordered = preferred.ctl("cluster", "transfer", never.name);
        assertTrue(ordered.startsWith(never.name + " leads after"), ordered);
        String reason = "balanced: no, because " + never.name + " leads with weight 0, and " + preferred.name + " has weight 2";
        cluster.await(reason, () -> never.ctl("cluster").contains(reason));
        long back = awaitLeads(preferred);
        awaitSends();
        System.out.println("weights: pauses of producers, ms: " + clients.takePausesMs());
        assertTrue(clients.ledger.failedCommits.size() <= FAILED_COMMITS_MAX, () -> "commits failed: " + clients.ledger.failedCommits);
        String balanced = "balanced: yes, because one store has one leader, " + preferred.name;
        cluster.await(balanced, () -> preferred.ctl("cluster").contains(balanced));

        preferred.signal("KILL");
        preferred.awaitEnd();
        cluster.leader(preferred);
        awaitSends();
        preferred.start();
        cluster.await("it is there again", () -> !preferred.readiness().isEmpty());
        long returned = awaitLeads(preferred);
        awaitSends();
        System.out.println("weights: leads after ms: " + start + " at the start, " + back + " after an order, " + returned + " after its return");
        assertTrue(returned < BALANCED_WITHIN_MS, () -> returned + " ms");

        clients.stopSending();
        cluster.await("the last message", () -> clients.ledger.missing().isEmpty());
        clients.stop();
        System.out.println("weights: " + clients.ledger);
        clients.ledger.assertNothingLostOrDoubled();
        assertEquals(3, cluster.nodes.stream().filter(Node::isAlive).count());
    }
}
