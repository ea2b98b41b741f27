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
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Nodes whose disk has changed some bytes, or lost files. */
@Timeout(300)
@DisplayName("damage: a node whose store rots is named, takes no part, and is filled from another")
class DamageTest {
    /** The first segment of a store has 8 MiB: with these messages it is sealed. */
    private static final int MESSAGES = 20;
    private static final String PADDING = "x".repeat(900_000);
    /** A sealed segment is read once a minute. */
    private static final long SCRUBBED_WITHIN_MS = 100_000;

    private Cluster cluster;

    @BeforeEach
    void startNodes() throws Exception {
        cluster = new Cluster("damage", () -> null);
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
            MessageProducer producer = session.createProducer(session.createQueue("damaged"));
            for (int number = from; number < to; number++) {
                producer.send(session.createTextMessage(number + " " + PADDING));
            }
        }
    }

    private void receiveAll(int to) throws Exception {
        try (Connection connection = connect()) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue("damaged"));
            for (int number = 0; number < to; number++) {
                TextMessage message = (TextMessage) consumer.receive(Cluster.WITHIN_MS);
                String text = message == null ? "none" : message.getText();
                assertTrue(text.equals(number + " " + PADDING), () -> "got " + text.substring(0, Math.min(20, text.length())));
            }
            assertNull(consumer.receive(300), "a message more");
        }
    }

    private static void kill(Node node) throws Exception {
        node.signal("KILL");
        node.awaitEnd();
    }

    /** Waits until the node was filled, and all nodes name it. */
    private void awaitRepair(Node damaged, long withinMs) throws Exception {
        long end = System.currentTimeMillis() + withinMs;
        while (!damaged.hasLogged("the damaged store was filled, and its former files were removed")) {
            assertTrue(System.currentTimeMillis() < end, () -> damaged.name + " is not filled\n" + cluster.tails());
            Thread.sleep(50);
        }
        Node leader = cluster.leader();
        cluster.followers(leader);
        for (Node node : cluster.nodes) {
            cluster.await(node.name + " names " + damaged.name, () -> {
                String shown = node.ctl("cluster");
                return shown.contains("node " + damaged.name + ": was damaged: ") && shown.contains("; refilled from n");
            });
            assertEquals(0, node.metric("postroad_cluster_damaged{node=\"" + damaged.name + "\"}"));
        }
        assertEquals(List.of(), asideOf(damaged), "damaged files of a node that was filled");
    }

    private static List<String> asideOf(Node node) throws Exception {
        try (var files = Files.list(node.data())) {
            return files.map(Path::getFileName).map(Path::toString).filter(name -> name.startsWith("damaged-")).toList();
        }
    }

    @Test
    @DisplayName("rot that a start finds: the node is filled, and serves every message when another goes")
    void aNodeThatRottedWhileItWasDown() throws Exception {
        Node leader = cluster.leader();
        Node damaged = cluster.followers(leader).get(0);
        Node other = cluster.followers(leader).get(1);
        send(0, 30);
        kill(damaged);
        damaged.flip(3_000_000);
        damaged.start();
        awaitRepair(damaged, Cluster.WITHIN_MS);
        assertTrue(damaged.hasLogged("the store of this node is damaged"), damaged.tail());
        send(30, 40);
        kill(other);
        cluster.await("a transfer", () -> leader.ctl("cluster", "transfer", damaged.name).contains("leads"));
        receiveAll(40);
    }

    @Test
    @DisplayName("a vote that is damaged, or missing: the node is filled as one whose disk was replaced")
    void aNodeThatLostItsVote() throws Exception {
        Node leader = cluster.leader();
        Node damaged = cluster.followers(leader).get(0);
        send(0, 10);
        kill(damaged);
        Files.write(damaged.data().resolve("vote"), new byte[16_384]);
        damaged.start();
        awaitRepair(damaged, Cluster.WITHIN_MS);
        kill(damaged);
        Files.delete(damaged.data().resolve("vote"));
        damaged.start();
        cluster.await("it is filled again", () -> damaged.ctl("cluster").contains("is missing; refilled from n"));
        cluster.followers(leader);
        receiveAll(10);
    }

    @Test
    @DisplayName("rot of a majority: nobody serves, and nothing is thrown away")
    void aMajorityThatRotted() throws Exception {
        Node leader = cluster.leader();
        List<Node> damaged = cluster.followers(leader);
        send(0, 30);
        for (Node node : damaged) {
            kill(node);
            node.flip(3_000_000);
        }
        kill(leader);
        cluster.nodes.forEach(node -> start(node));
        for (Node node : damaged) {
            cluster.await("it says so", () -> node.readiness().contains("takes no part, as its store is damaged"));
        }
        Thread.sleep(3_000);
        for (Node node : cluster.nodes) {
            assertFalse(node.serves(), node.name + " serves");
        }
        for (Node node : damaged) {
            assertEquals(List.of("damaged-1"), asideOf(node), "the files that are set aside");
            assertEquals(1, node.metric("postroad_cluster_damaged{node=\"" + node.name + "\"}"));
        }
    }

    private static void start(Node node) {
        try {
            node.start();
        } catch (Exception failed) {
            throw new AssertionError(failed);
        }
    }

    @Test
    @DisplayName("rot that is found while nodes run: first on a follower, then on the leader, which hands over before")
    void nodesThatRotWhileTheyRun() throws Exception {
        Node leader = cluster.leader();
        Node follower = cluster.followers(leader).get(0);
        send(0, MESSAGES);
        follower.flip(3_000_000);
        awaitRepair(follower, SCRUBBED_WITHIN_MS);
        leader.flip(5_000_000);
        awaitRepair(leader, SCRUBBED_WITHIN_MS);
        assertTrue(leader.hasLogged("this node hands leadership over, as its store is damaged"), leader.tail());
        assertFalse(leader.serves(), "it leads");
        send(MESSAGES, MESSAGES + 5);
        receiveAll(MESSAGES + 5);
    }

    @Test
    @DisplayName("rot that two nodes find at the same moment: one leaves, and the other once that is whole again")
    void twoNodesThatRotAtOnce() throws Exception {
        Node leader = cluster.leader();
        List<Node> damaged = cluster.followers(leader);
        send(0, MESSAGES);
        for (Node node : damaged) {
            node.flip(3_000_000);
        }
        long end = System.currentTimeMillis() + 2 * SCRUBBED_WITHIN_MS;
        for (boolean filled = false; !filled;) {
            assertTrue(System.currentTimeMillis() < end, () -> "they are not filled\n" + cluster.tails());
            assertTrue(asideOf(damaged.get(0)).isEmpty() || asideOf(damaged.get(1)).isEmpty(), () -> "both have left\n" + cluster.tails());
            filled = true;
            for (Node node : damaged) {
                filled &= node.hasLogged("the damaged store was filled, and its former files were removed");
            }
            Thread.sleep(20);
        }
        for (Node node : damaged) {
            awaitRepair(node, Cluster.WITHIN_MS);
        }
        receiveAll(MESSAGES);
    }

    @Test
    @DisplayName("a copy of a leader that has rotted itself: it is refused, another node leads, and both are filled")
    void aCopyOfALeaderThatRotted() throws Exception {
        Node leader = cluster.leader();
        Node follower = cluster.followers(leader).get(0);
        send(0, MESSAGES);
        kill(follower);
        follower.flip(3_000_000);
        // Scrubbing finds it a minute after the start of the leader.
        leader.flip(5_000_000);
        follower.start();
        awaitRepair(follower, SCRUBBED_WITHIN_MS);
        assertTrue(leader.hasLogged("a node did not take a whole copy of this store: it is read for damage"), leader.tail());
        awaitRepair(leader, SCRUBBED_WITHIN_MS);
        receiveAll(MESSAGES);
    }
}
