package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import postroad.cluster.Clients.Protocol;

/** Nodes of two versions in one cluster: {@code level_max = 1} makes a node speak as the version before does. */
@Timeout(150)
@DisplayName("levels: nodes get a new version one after the other, under clients")
class LevelsTest {
    private static final String BEFORE = "level_max = 1\n";

    private final Clients clients = new Clients();
    private Cluster cluster;

    private static String zone(int node) {
        return "[cluster]\nzone = \"" + (node == 3 ? "west" : "east") + "\"\n";
    }

    @BeforeEach
    void startNodes() throws Exception {
        cluster = new Cluster("levels", node -> zone(node) + BEFORE);
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

    private void assertShown(Node node, String text) throws Exception {
        cluster.await(node.name + " shows " + text, () -> node.cluster().contains(text));
    }

    /** A follower ends and starts again with another version. */
    private void restart(Node node, String version) throws Exception {
        node.signal("TERM");
        node.awaitEnd();
        node.configure(zone(node.number) + version);
        node.start();
    }

    @Test
    @DisplayName("the level rises after the last node, and a node that does not speak it is refused by name")
    void nodeByNode() throws Exception {
        Node leader = cluster.leader();
        cluster.followers(leader);
        clients.start(Protocol.OPENWIRE, "levels.openwire", cluster.nodes);
        clients.start(Protocol.AMQP, "levels.amqp", cluster.nodes);
        awaitSends();
        assertShown(leader, "\"levels\":\"1 to 1\"");
        String zones = "zone east has 2 of 3 votes: without it nothing is confirmed";
        assertShown(leader, zones);
        for (Node node : cluster.nodes) {
            assertShown(node, "\"level\":1,");
            restart(node, "");
            Node leads = cluster.leader();
            cluster.followers(leads);
            assertShown(node, "\"levels\":\"1 to 3\"");
            awaitSends();
        }
        for (Node node : cluster.nodes) {
            assertShown(node, "\"level\":3,");
        }
        String shown = cluster.leader().ctl("cluster");
        assertTrue(shown.contains("level 3") && shown.contains("west") && shown.contains(zones), shown);

        Node follower = cluster.followers(cluster.leader()).get(0);
        restart(follower, BEFORE);
        follower.awaitEnd();
        String refused = "the cluster has level 3, and this node speaks levels 1 to 1: start it with the version of the other nodes";
        String log = follower.tail();
        assertTrue(follower.hasLogged(refused), log);
        awaitSends();
        follower.configure(zone(follower.number));
        follower.start();
        cluster.followers(cluster.leader());
        awaitSends();

        clients.stopSending();
        cluster.await("the last message", () -> clients.ledger.missing().isEmpty());
        clients.stop();
        System.out.println("levels: " + clients.ledger + "; longest pauses of producers, ms: " + clients.takePausesMs());
        clients.ledger.assertNothingLostOrDoubled();
        assertEquals(3, cluster.nodes.stream().filter(Node::isAlive).count());
    }
}
