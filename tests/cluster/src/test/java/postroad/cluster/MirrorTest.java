package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.nio.file.Files;
import java.util.List;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A node at another site that takes over once all others are lost. */
@Timeout(150)
@DisplayName("mirror: it has no vote, takes the place of all others by order, and they do not serve again")
class MirrorTest {
    private static final int MESSAGES = 200;
    private static final long PATIENCE_MS = 20_000;

    private Cluster cluster;

    @BeforeEach
    void startNodes() throws Exception {
        cluster = new Cluster("mirror", () -> null);
    }

    @AfterEach
    void endNodes() throws Exception {
        cluster.close();
    }

    private static void assertSays(String wanted, Node node, String... order) throws Exception {
        String printed = node.ctl(order);
        assertTrue(printed.contains(wanted), () -> printed + ", expected: " + wanted);
    }

    private static Connection connect(String urls) throws Exception {
        Connection connection = new ActiveMQConnectionFactory("failover:(" + urls + ")?maxReconnectDelay=200").createConnection();
        connection.start();
        return connection;
    }

    private static void send(Session session, int from, int to) throws Exception {
        MessageProducer producer = session.createProducer(session.createQueue("kept"));
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        for (int number = from; number < to; number++) {
            producer.send(session.createTextMessage("message " + number));
        }
    }

    private static void expect(MessageConsumer consumer, int from, int to) throws Exception {
        for (int number = from; number < to; number++) {
            TextMessage message = (TextMessage) consumer.receive(PATIENCE_MS);
            assertNotNull(message, "message " + number);
            assertEquals("message " + number, message.getText());
        }
    }

    private Node mirror() throws Exception {
        Node mirror = cluster.newcomer("far");
        mirror.start();
        Node leader = cluster.leader();
        cluster.await("it asks", () -> leader.ctl("cluster").contains("asks to join"));
        assertSays("far mirrors the store after", leader, "cluster", "join", "far", "--mirror");
        cluster.await("it follows", mirror::follows);
        return mirror;
    }

    @Test
    @DisplayName("everything that it has is served, in order, and the cluster grows again from it")
    void theMirrorTakesOver() throws Exception {
        List<Node> first = List.copyOf(cluster.nodes);
        Node mirror = mirror();
        Node leader = cluster.leader();
        String urls = String.join(",", first.stream().map(Node::url).toList());
        try (Connection connection = connect(urls)) {
            send(connection.createSession(false, Session.AUTO_ACKNOWLEDGE), 0, MESSAGES);
        }
        // A tenth of a second would be enough for a vote; a mirror never gets one.
        Thread.sleep(500);
        assertTrue(leader.cluster().contains("\"role\":\"mirror\""), leader.cluster());
        assertSays("balanced: yes", leader, "cluster");
        assertSays("far is a mirror", leader, "cluster", "transfer", "far");
        assertSays(leader.name + " is no mirror", leader, "cluster", "promote", leader.name);
        assertSays("this is far", mirror, "cluster", "promote", leader.name);
        assertSays(leader.name + " leads and is reached", mirror, "cluster", "promote", "far");
        cluster.await("it has all", () -> leader.metric("postroad_cluster_lag_entries{node=\"far\"}") == 0);

        for (Node node : first) {
            node.signal("KILL");
        }
        cluster.await("it reaches no leader", () -> mirror.readiness().contains("far is a mirror and reaches no leader"));
        assertFalse(mirror.serves());
        assertSays("far leads after", mirror, "cluster", "promote", "far");
        for (Node node : first) {
            node.awaitEnd();
            node.start();
        }
        for (Node node : first) {
            cluster.await(node.name + " gives way", () -> node.readiness().contains(node.name + " was removed from the cluster"));
        }
        try (Connection connection = connect(mirror.url() + "," + urls)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue("kept"));
            expect(consumer, 0, MESSAGES);
            send(session, MESSAGES, MESSAGES + 10);
            expect(consumer, MESSAGES, MESSAGES + 10);
            assertNull(consumer.receive(300));
        }
        // Over a restart of all: the three are a majority of the former list alone.
        for (Node node : first) {
            node.signal("KILL");
            node.awaitEnd();
            node.start();
        }
        Node next = cluster.newcomer("n5", mirror);
        next.start();
        cluster.await("it asks", () -> mirror.ctl("cluster").contains("asks to join"));
        assertSays("n5 votes after", mirror, "cluster", "join", "n5");
        for (Node node : first) {
            cluster.await(node.name + " stays away", () -> node.readiness().contains("was removed from the cluster"));
            assertFalse(node.serves(), node.name);
        }
    }

    @Test
    @DisplayName("a former node comes back with its store: it gets the difference alone, and keeps aside what the mirror never had")
    void aFormerNodeComesBackByTheDifference() throws Exception {
        List<Node> first = List.copyOf(cluster.nodes);
        Node mirror = mirror();
        Node leader = cluster.leader();
        String urls = String.join(",", first.stream().map(Node::url).toList());
        String padding = "x".repeat(100_000);
        try (Connection connection = connect(urls)) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue("padding"));
            for (int number = 0; number < 150; number++) {
                producer.send(session.createTextMessage(number + padding));
            }
            send(session, 0, MESSAGES);
            cluster.await("it has all", () -> leader.metric("postroad_cluster_lag_entries{node=\"far\"}") == 0);
            mirror.signal("KILL");
            mirror.awaitEnd();
            // Confirmed, and the mirror never gets them.
            send(session, 900, 905);
        }
        for (Node node : first) {
            node.signal("KILL");
            node.awaitEnd();
        }
        mirror.start();
        cluster.await("it reaches no leader", () -> mirror.readiness().contains("far is a mirror and reaches no leader"));
        assertSays("far leads after", mirror, "cluster", "promote", "far");
        try (Connection connection = connect(mirror.url())) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            send(session, MESSAGES, MESSAGES + 10);
            expect(session.createConsumer(session.createQueue("kept")), 0, 20);
        }
        Node back = cluster.newcomer("back", mirror);
        Files.createDirectories(back.data());
        Files.move(leader.data(), back.data().resolve("former"));
        back.start();
        cluster.await("it asks", () -> mirror.ctl("cluster").contains("asks to join"));
        assertSays("back votes after", mirror, "cluster", "join", "back");
        cluster.await("it follows", back::follows);
        assertTrue(back.hasLogged("the former store is used"), back.tail());
        assertTrue(back.hasLogged("entries of the former store are not in the cluster"), back.tail());
        double copied = mirror.metric("postroad_cluster_copied_bytes_total{node=\"back\"}");
        double sent = mirror.metric("postroad_cluster_sent_bytes_total{node=\"back\"}");
        System.out.println("fail-back: " + sent + " bytes of the log and " + copied + " of a copy, in place of "
                + 150 * padding.length() + " at least");
        assertEquals(0, copied, "bytes of a copy");
        assertTrue(sent < 1_000_000, () -> sent + " bytes were sent");
        assertTrue(Files.exists(back.data().resolve("former").resolve("layout.json")), "the former store stays");
        assertSays("back leads after", mirror, "cluster", "transfer", "back");
        try (Connection connection = connect(back.url() + "," + mirror.url())) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue("kept"));
            expect(consumer, 20, MESSAGES + 10);
            assertNull(consumer.receive(300));
            MessageConsumer padded = session.createConsumer(session.createQueue("padding"));
            for (int number = 0; number < 150; number++) {
                TextMessage message = (TextMessage) padded.receive(PATIENCE_MS);
                assertNotNull(message, "padding " + number);
                assertTrue(message.getText().equals(number + padding), "padding " + number);
            }
        }
    }

    @Test
    @DisplayName("by force while the others serve: they end, and say so")
    void theMirrorTakesOverByForce() throws Exception {
        List<Node> first = List.copyOf(cluster.nodes);
        Node mirror = mirror();
        assertSays("far leads after", mirror, "cluster", "promote", "far", "--force");
        for (Node node : first) {
            cluster.await(node.name + " gives way", () -> node.readiness().contains(node.name + " was removed from the cluster"));
        }
        try (Connection connection = connect(mirror.url())) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            send(session, 0, 10);
            expect(session.createConsumer(session.createQueue("kept")), 0, 10);
        }
    }
}
