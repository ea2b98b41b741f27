package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.qpid.jms.JmsConnection;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import postroad.cluster.Clients.Protocol;

/** Leadership that is handed over by order, under clients that are sent to the next leader. */
@Timeout(150)
@DisplayName("transfer: a leader steps down in place, and clients see no error")
class TransferTest {
    private static final int TRANSFERS = 20;
    /** On an idle machine it is below 200 ms. */
    private static final long MEDIAN_PAUSE_MS_MAX = 1000;
    /** A consumer that the machine does not let finish its messages in time has a transaction fail. */
    private static final int FAILED_COMMITS_MAX = TRANSFERS / 2;

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

    /** Both know the former leader alone, and connect to the next one itself: nothing carries them there. Returns that. */
    private Node aClientThatKnowsOneNodeIsMoved(Node leader, ActiveMQConnection openWire, JmsConnection amqp) throws Exception {
        Node to = cluster.followers(leader).get(0);
        String printed = leader.ctl("cluster", "transfer", to.name);
        assertTrue(printed.startsWith(to.name + " leads after"), printed + "\n" + cluster.tails());
        cluster.await("OpenWire at the next leader", () -> {
            String remote = openWire.getTransport().getRemoteAddress();
            return remote != null && remote.startsWith(to.url());
        });
        cluster.await("AMQP at the next leader", () -> to.amqpUrl().equals(connectedTo(amqp)));
        return to;
    }

    /** The address of a connection's broker, without options. */
    private static String connectedTo(JmsConnection connection) {
        java.net.URI uri = connection.getConnectedURI();
        return uri == null ? null : uri.getScheme() + "://" + uri.getHost() + ":" + uri.getPort();
    }

    /** The smallest value that this share of the sorted ones does not exceed. */
    private static long share(List<Long> sorted, int percent) {
        return sorted.get(Math.max(0, (sorted.size() * percent + 99) / 100 - 1));
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
        try (Connection openWire = new ActiveMQConnectionFactory("failover:(" + leader.url() + ")").createConnection();
                Connection amqp = new JmsConnectionFactory("failover:(" + leader.amqpUrl() + ")").createConnection()) {
            openWire.start();
            amqp.start();
            leader = aClientThatKnowsOneNodeIsMoved(leader, (ActiveMQConnection) openWire, (JmsConnection) amqp);
        }
        List<Long> pausesMs = new ArrayList<>();
        for (int transfer = 0; transfer < TRANSFERS; transfer++) {
            int[] before = clients.sends();
            cluster.await("sends before the transfer", () -> clients.haveSent(20, before));
            clients.takePausesMs();
            Node to = cluster.followers(leader).get(transfer % 2);
            String printed = leader.ctl("cluster", "transfer", to.name);
            assertTrue(printed.startsWith(to.name + " leads after"), printed + "\n" + cluster.tails());
            int[] at = clients.sends();
            cluster.await("sends of each producer", () -> clients.haveSent(2, at));
            pausesMs.addAll(clients.takePausesMs());
            leader = cluster.leader(leader);
            assertEquals(to.name, leader.name);
        }
        Collections.sort(pausesMs);
        System.out.println("transfers: pauses of producers, ms: median " + share(pausesMs, 50) + ", 90 % " + share(pausesMs, 90) + ", longest "
                + share(pausesMs, 100) + "; commits that failed: " + clients.ledger.failedCommits);
        for (Node node : cluster.nodes) {
            assertFalse(node.hasLogged("restarts from its disk"), () -> node.name + " has restarted");
        }
        clients.stopSending();
        cluster.await("the last message", () -> clients.ledger.missing().isEmpty());
        clients.stop();
        System.out.println("transfers: " + clients.ledger);
        clients.ledger.assertNothingLostOrDoubled();
        assertTrue(share(pausesMs, 50) < MEDIAN_PAUSE_MS_MAX, () -> "producers paused for " + pausesMs + " ms");
        assertTrue(clients.ledger.failedCommits.size() <= FAILED_COMMITS_MAX, () -> "commits failed: " + clients.ledger.failedCommits);
        Node last = leader;
        String balanced = "balanced: yes, because one store has one leader, " + last.name;
        cluster.await(balanced, () -> last.ctl("cluster").contains(balanced));
    }
}
