package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.Connection;
import jakarta.jms.ConnectionFactory;
import jakarta.jms.JMSException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A mirror of one of three stores: tenant south is in store 2, and east in store 3. */
@Timeout(240)
@DisplayName("mirror of chosen stores: it takes over these, and the others stay with the former nodes")
class MirroredStoresTest {
    private static final List<String> TEXTS = IntStream.range(0, 100).mapToObj(number -> "message " + number).toList();
    private static final String ABSENT = "store 3 is not here: far has stores 1, 2 of 3";

    private Path users;
    private Cluster cluster;

    @BeforeEach
    void startNodes() throws Exception {
        users = StoresTest.users();
        cluster = new Cluster("mirrored-stores", node -> StoresTest.configuration(users));
    }

    @AfterEach
    void endNodes() throws Exception {
        cluster.close();
    }

    private static Connection connect(String tenant, ConnectionFactory factory) throws JMSException {
        Connection connection = factory.createConnection(tenant + ".app", "secret of " + tenant + ".app");
        try {
            connection.start();
            return connection;
        } catch (JMSException refused) {
            connection.close();
            throw refused;
        }
    }

    private static Connection connect(String tenant, Node node) throws JMSException {
        return connect(tenant, new ActiveMQConnectionFactory("failover:(" + node.url() + ")?timeout=20000"));
    }

    private static void assertSays(String wanted, Node node, String... order) throws Exception {
        String printed = node.ctl(order);
        assertTrue(printed.contains(wanted), () -> printed + ", expected: " + wanted);
    }

    /** A client of a tenant whose store is not here learns that, by either protocol. */
    private static void assertRefused(String tenant, Node node) {
        for (ConnectionFactory factory : List.of(new ActiveMQConnectionFactory(node.url()), new JmsConnectionFactory(node.amqpUrl()))) {
            JMSException refused = assertThrows(JMSException.class, () -> connect(tenant, factory).close());
            assertTrue(refused.getMessage().contains(ABSENT), refused.toString());
        }
    }

    private void awaitMirrored(int store, Node mirror) throws Exception {
        String lag = "postroad_cluster_store_lag_entries{store=\"" + store + "\",node=\"" + mirror.name + "\"}";
        cluster.await("it has all of store " + store, () -> {
            for (Node node : cluster.nodes) {
                if (node.isAlive() && node.metric(lag) == 0) {
                    return true;
                }
            }
            return false;
        });
    }

    private Node mirror() throws Exception {
        Node mirror = cluster.newcomer("far");
        mirror.configure(StoresTest.configuration(users));
        Node leader = cluster.leader();
        cluster.await("leaders of all stores", () -> StoresTest.leaders(leader).size() == 3);
        cluster.await("a level with chosen stores", () -> leader.ctl("cluster").contains("level 3"));
        mirror.start();
        cluster.await("it asks", () -> leader.ctl("cluster").contains("postroad ctl cluster join far"));
        assertSays("--mirror", leader, "cluster", "join", "far", "--stores", "2");
        assertSays("there is no store 4: the stores are 1 to 3", leader, "cluster", "join", "far", "--mirror", "--stores", "2,4");
        assertSays("far mirrors the stores after", leader, "cluster", "join", "far", "--mirror", "--stores", "2");
        return mirror;
    }

    @Test
    @DisplayName("tenants of the mirrored store go on there, those of the other one where they were, and the site comes back")
    void aMirrorOfOneStoreTakesOver() throws Exception {
        List<Node> first = List.copyOf(cluster.nodes);
        Node mirror = mirror();
        Node leader = cluster.leader();
        String shown = leader.ctl("cluster");
        assertTrue(shown.lines().anyMatch(line -> line.matches("far .* mirror +1,2 .*")), shown);
        assertEquals(3, shown.lines().filter(line -> line.endsWith("complete")).count(), shown);
        cluster.await("it says what it has", () -> mirror.readiness().contains("far has stores 1, 2 of 3"));
        for (String tenant : List.of("south", "east")) {
            try (Connection connection = connect(tenant, leader)) {
                StoresTest.send(connection, tenant + ".kept", TEXTS);
            }
        }
        awaitMirrored(1, mirror);
        awaitMirrored(2, mirror);
        assertFalse(leader.metrics().contains("store=\"3\",node=\"far\""), leader.metrics());
        assertRefused("east", mirror);

        for (Node node : first) {
            node.signal("KILL");
            node.awaitEnd();
        }
        cluster.await("it reaches no leader", () -> mirror.readiness().contains("far is a mirror and reaches no leader"));
        cluster.await("it takes over", () -> {
            String promoted = mirror.ctl("cluster", "promote", "far");
            return promoted.contains("left to the former nodes: store 3") && promoted.contains("far leads after");
        });
        try (Connection connection = connect("south", mirror)) {
            assertEquals(TEXTS, StoresTest.receive(connection, "south.kept", TEXTS.size()));
            StoresTest.send(connection, "south.kept", TEXTS);
        }
        assertRefused("east", mirror);
        assertTrue(mirror.ctl("cluster").lines().anyMatch(line -> line.matches(" *3 .*not here")), mirror.ctl("cluster"));
        assertFalse(Files.exists(mirror.data().resolve("store-3")), "it has nothing of store 3");

        theOtherStoreStays(first);
        theSiteComesBack(first.get(0), mirror);
    }

    /** The former nodes are removed from the stores that the mirror has, and serve the other one as before. */
    private void theOtherStoreStays(List<Node> first) throws Exception {
        for (Node node : first) {
            node.start();
        }
        for (Node node : first) {
            cluster.await(node.name + " gives way", () -> node.readiness().contains(node.name + " was removed from the cluster"));
        }
        try (Connection connection = connect("east", first.get(1))) {
            assertEquals(TEXTS.subList(0, 50), StoresTest.receive(connection, "east.kept", 50));
        }
        String members = first.get(1).ctlOfStore(3, "cluster");
        for (Node node : first) {
            assertTrue(members.lines().anyMatch(line -> line.startsWith(node.name + " ")), members);
            node.signal("KILL");
            node.awaitEnd();
        }
    }

    private void theSiteComesBack(Node former, Node mirror) throws Exception {
        Node back = cluster.newcomer("back", mirror);
        back.configure(StoresTest.configuration(users));
        Files.createDirectories(back.data());
        Files.move(former.data(), back.data().resolve("former"));
        back.start();
        cluster.await("it asks", () -> mirror.ctl("cluster").contains("asks to join"));
        assertSays("back votes after", mirror, "cluster", "join", "back");
        for (int store = 1; store <= 2; store++) {
            String members = mirror.ctlOfStore(store, "cluster", "--json");
            assertTrue(members.matches("(?s).*\"copied_bytes\":0,[^{}]*\"node\":\"back\".*"), members);
        }
        assertTrue(back.hasLogged("the former store is used"), back.tail());
        try (Connection connection = connect("south", back)) {
            assertEquals(TEXTS, StoresTest.receive(connection, "south.kept", TEXTS.size()));
        }
        assertFalse(Files.exists(back.data().resolve("store-3")), "it is admitted for the stores of the mirror");
        assertTrue(Files.exists(back.data().resolve("former").resolve("store-3").resolve("layout.json")), "store 3 is kept");
    }
}
