package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.stream.Collectors;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Nodes whose disk was replaced. */
@Timeout(150)
@DisplayName("copies: a node whose disk was replaced is filled from the leader before it votes")
class CopyTest {
    private static final int MESSAGES = 300;
    private static final String PADDING = "x".repeat(20_000);

    private Cluster cluster;

    @BeforeEach
    void startNodes() throws Exception {
        cluster = new Cluster("copy", () -> null);
    }

    @AfterEach
    void endNodes() throws Exception {
        cluster.close();
    }

    private Connection connect() throws Exception {
        String urls = cluster.nodes.stream().map(Node::url).collect(Collectors.joining(","));
        Connection connection = new ActiveMQConnectionFactory("failover:(" + urls + ")?maxReconnectDelay=500").createConnection();
        connection.start();
        return connection;
    }

    private void send(int from, int to) throws Exception {
        try (Connection connection = connect()) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue("copied"));
            for (int number = from; number < to; number++) {
                producer.send(session.createTextMessage(number + " " + PADDING));
            }
        }
    }

    private void receive(int from, int to, boolean isLast) throws Exception {
        try (Connection connection = connect()) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue("copied"));
            for (int number = from; number < to; number++) {
                TextMessage message = (TextMessage) consumer.receive(Cluster.WITHIN_MS);
                assertEquals(number + " " + PADDING, message == null ? null : message.getText());
            }
            if (isLast) {
                assertNull(consumer.receive(300), "a message that was acknowledged before is delivered again");
            }
        }
    }

    private static void kill(Node node) throws Exception {
        node.signal("KILL");
        node.awaitEnd();
    }

    @Test
    @DisplayName("wiped, it is filled, and nothing is lost when the node that filled it goes")
    void aWipedNodeIsFilled() throws Exception {
        Node leader = cluster.leader();
        Node wiped = cluster.followers(leader).get(0);
        Node other = cluster.followers(leader).get(1);
        send(0, MESSAGES);
        receive(0, 10, false);

        // With one node away an empty store finds no leader: it must not make one by its vote.
        kill(wiped);
        kill(leader);
        wiped.wipe();
        wiped.start();
        cluster.await("the wiped node runs", () -> !wiped.readiness().isEmpty());
        Thread.sleep(3_000);
        assertFalse(other.serves() || wiped.serves(), "an empty store has voted");
        assertTrue(wiped.readiness().contains("has an empty store"), wiped.readiness());

        leader.start();
        cluster.await("the wiped node is filled", () -> wiped.hasLogged("the store was filled by a copy"));
        Node next = cluster.leader();
        cluster.followers(next);
        send(MESSAGES, MESSAGES + 10);

        Node third = cluster.nodes.stream().filter(node -> node != next && node != wiped).findFirst().orElseThrow();
        kill(next == wiped ? other : next);
        Node last = cluster.leader();
        assertTrue(last == wiped || last == third);
        receive(10, MESSAGES + 10, true);
    }

    @Test
    @DisplayName("the former disk of a node that was filled since is refused")
    void aFormerDiskIsRefused() throws Exception {
        Node leader = cluster.leader();
        Node follower = cluster.followers(leader).get(0);
        kill(follower);
        follower.wipe();
        follower.start();
        cluster.followers(leader);
        double copied = leader.metric("postroad_cluster_copied_bytes_total{node=\"" + follower.name + "\"}");
        assertTrue(copied > 0, () -> copied + " bytes of copies");
        kill(follower);
        cluster.await("a lost node is named", () -> leader.ctl("cluster").contains("balanced: no, because " + follower.name + " is not reached"));
        follower.returnDisk();
        follower.start();
        cluster.await("the former disk is refused", () -> follower.hasLogged("knows a later store of this node"));
        assertFalse(follower.readiness().contains("follows"), follower.readiness());
        assertTrue(leader.serves());
    }
}
