package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import postroad.cluster.Clients.Protocol;

/** Leadership that is handed over by order, under clients that are not told of it. */
@Timeout(150)
@DisplayName("transfer: a leader steps down in place, and clients see no error")
class TransferTest {
    private static final int TRANSFERS = 6;

    private final Clients clients = new Clients();
    private Cluster cluster;

    @BeforeEach
    void startNodes() throws Exception {
        cluster = new Cluster("transfer", clients.ledger.failure::get);
    }

    @AfterEach
    void endNodes() throws Exception {
        clients.abandon();
        cluster.close();
    }

    private void assertRefused(Node leader, String to, String reason) throws Exception {
        String printed = leader.ctl("cluster", "transfer", to);
        assertTrue(printed.contains(reason), printed);
    }

    /** Holds once no election is under way: on a slow machine one may follow the first. */
    private boolean aFollowerRefuses() throws Exception {
        Node leader = cluster.leader();
        Node follower = cluster.followers(leader).get(0);
        return follower.ctl("cluster", "transfer", leader.name).contains("follows " + leader.name);
    }

    @Test
    @DisplayName("around all nodes, by postroad ctl cluster transfer")
    void aroundAllNodes() throws Exception {
        cluster.await("a follower that names its leader", this::aFollowerRefuses);
        Node leader = cluster.leader();
        assertRefused(leader, "n9", "there is no node \"n9\"");
        assertRefused(leader, leader.name, leader.name + " leads already");
        clients.start(Protocol.OPENWIRE, "transfer.openwire.1", cluster.nodes);
        clients.start(Protocol.OPENWIRE, "transfer.openwire.2", cluster.nodes);
        clients.start(Protocol.AMQP, "transfer.amqp", cluster.nodes);
        List<String> told = new ArrayList<>();
        for (int transfer = 0; transfer < TRANSFERS; transfer++) {
            int[] before = clients.sends();
            cluster.await("sends before the transfer", () -> clients.haveSent(20, before));
            Node to = cluster.followers(leader).get(transfer % 2);
            long began = System.nanoTime();
            String printed = leader.ctl("cluster", "transfer", to.name);
            assertTrue(printed.startsWith(to.name + " leads after"), printed + "\n" + cluster.tails());
            int[] at = clients.sends();
            cluster.await("a send of each producer", () -> clients.haveSent(1, at));
            told.add(printed + ", each producer has sent after " + (System.nanoTime() - began) / 1_000_000);
            leader = cluster.leader(leader);
            assertEquals(to.name, leader.name);
        }
        System.out.println("transfers: " + String.join("; ", told) + "; longest pauses of producers, ms: " + clients.takePausesMs());
        for (Node node : cluster.nodes) {
            assertFalse(node.hasLogged("restarts from its disk"), () -> node.name + " has restarted");
        }
        clients.stopSending();
        cluster.await("the last message", () -> clients.ledger.seen().containsAll(clients.ledger.sent));
        clients.stop();
        System.out.println("transfers: " + clients.ledger);
        clients.ledger.assertNothingLostOrDoubled();
        Node last = leader;
        String balanced = "balanced: yes, because one store has one leader, " + last.name;
        cluster.await(balanced, () -> last.ctl("cluster").contains(balanced));
    }
}
