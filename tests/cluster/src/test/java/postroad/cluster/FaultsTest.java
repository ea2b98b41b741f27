package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import postroad.cluster.Clients.Protocol;

/**
 * Mixed faults, under clients of two protocols at once. Each fault is followed by confirmed sends of every producer, and by all nodes
 * taking part again.
 */
@Timeout(400)
@DisplayName("faults: nodes that die, hang, lose their links or their disk lose and double no message")
class FaultsTest {
    /** Further faults are drawn until then: with the start and the end about a minute. */
    private static final long LASTS_MS = 45_000;
    /** How long a node is cut off or paused after another leads. */
    private static final long GOES_ON_MS = 500;

    private final Clients clients = new Clients();
    private final List<String> told = new ArrayList<>();
    private Cluster cluster;

    @BeforeEach
    void startNodes() throws Exception {
        cluster = Cluster.withLinks("faults", clients.ledger.failure::get);
    }

    @AfterEach
    void endNodes() throws Exception {
        clients.abandon();
        cluster.close();
    }

    private interface Fault {
        void happen() throws Exception;
    }

    /** Runs a fault, and waits until sends are confirmed and all nodes take part. */
    private void suffer(String name, Fault fault) throws Exception {
        int[] before = clients.sends();
        cluster.await("sends before: " + name, () -> clients.haveSent(3, before));
        long began = System.nanoTime();
        fault.happen();
        // Sends that were confirmed a moment before are counted by now.
        Thread.sleep(50);
        int[] after = clients.sends();
        cluster.await("a send of each producer after: " + name, () -> clients.haveSent(1, after));
        told.add(name + " " + (System.nanoTime() - began) / 1_000_000);
        cluster.followers(cluster.leader());
    }

    private void kill(Node node) throws Exception {
        node.signal("KILL");
        node.awaitEnd();
    }

    private void killLeader() throws Exception {
        Node leader = cluster.leader();
        kill(leader);
        cluster.leader();
        leader.start();
    }

    private void killFollower() throws Exception {
        Node follower = cluster.followers(cluster.leader()).get(0);
        kill(follower);
        Thread.sleep(GOES_ON_MS);
        follower.start();
    }

    private void killAll() throws Exception {
        for (Node node : cluster.nodes) {
            node.signal("KILL");
        }
        for (Node node : cluster.nodes) {
            node.awaitEnd();
            node.start();
        }
    }

    private void pauseLeader() throws Exception {
        Node leader = cluster.leader();
        leader.signal("STOP");
        cluster.leader(leader);
        Thread.sleep(GOES_ON_MS);
        leader.signal("CONT");
    }

    /** Its clients still reach it: it must not confirm anything to them. */
    private void isolateLeader() throws Exception {
        Node leader = cluster.leader();
        for (Node node : cluster.nodes) {
            cluster.links.cut(leader.number, node.number);
            cluster.links.cut(node.number, leader.number);
        }
        cluster.leader(leader);
        cluster.await("the isolated leader says so", () -> leader.readiness().contains("knows no leader")
                || leader.readiness().contains("reaches 1 of 3"));
        Thread.sleep(GOES_ON_MS);
        cluster.links.restore();
    }

    /** A follower does not hear the leader, and is heard: it must not depose it. */
    private void deafenFollower() throws Exception {
        Node leader = cluster.leader();
        Node follower = cluster.followers(leader).get(1);
        cluster.links.cut(leader.number, follower.number);
        Thread.sleep(4 * GOES_ON_MS);
        assertTrue(leader.serves(), "a deaf follower deposed the leader");
        cluster.links.restore();
    }

    /** It may have confirmed entries that are gone: it takes part again once a copy of the leader's store has filled it. */
    private void wipeFollower() throws Exception {
        Node leader = cluster.leader();
        Node follower = cluster.followers(leader).get(0);
        kill(follower);
        follower.wipe();
        follower.start();
        cluster.await("the wiped node is filled", () -> follower.hasLogged("the store was filled by a copy"));
    }

    private void restartAll() throws Exception {
        for (Node node : cluster.nodes) {
            node.signal("TERM");
            node.awaitEnd();
            node.start();
            cluster.followers(cluster.leader());
        }
    }

    @Test
    @DisplayName("each fault once, and then in a random order")
    void mixedFaults() throws Exception {
        cluster.followers(cluster.leader());
        clients.start(Protocol.OPENWIRE, "openwire.1", cluster.nodes);
        clients.start(Protocol.OPENWIRE, "openwire.2", cluster.nodes);
        clients.start(Protocol.AMQP, "amqp.1", cluster.nodes);
        clients.start(Protocol.AMQP, "amqp.2", cluster.nodes);
        List<String> names = List.of("kill the leader", "isolate the leader", "wipe a follower", "pause the leader", "a deaf follower",
                "restart all", "kill all", "kill a follower");
        List<Fault> faults = List.of(this::killLeader, this::isolateLeader, this::wipeFollower, this::pauseLeader, this::deafenFollower,
                this::restartAll, this::killAll, this::killFollower);
        long began = System.currentTimeMillis();
        long seed = began;
        Random random = new Random(seed);
        try {
            for (int count = 0; count < faults.size() || System.currentTimeMillis() < began + LASTS_MS; count++) {
                int fault = count < faults.size() ? count : random.nextInt(faults.size());
                suffer(names.get(fault), faults.get(fault));
            }
        } finally {
            System.out.println("faults, and ms until every producer had a send confirmed (seed " + seed + "): " + String.join(", ", told));
        }
        clients.stopSending();
        cluster.await("the last message", () -> clients.ledger.seen().containsAll(clients.ledger.sent));
        clients.stop();
        System.out.println("faults: " + clients.ledger);
        clients.ledger.assertNothingLostOrDoubled();
    }
}
