package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import jakarta.jms.ResourceAllocationException;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import postroad.cluster.Clients.Protocol;

/** Nodes on disks of their own, which get full under unmodified clients. Needs the right to mount. */
@Timeout(300)
@DisplayName("full disks: the node is named and lags, clients go on, and it catches up by itself")
class FullDiskTest {
    private static final int QUEUES = 3;
    private static final long FLOWS_WITHIN_MS = 5_000;

    private final Clients clients = new Clients();
    private final Ledger ledger = clients.ledger;
    private final MountedDisks disks = new MountedDisks();
    private Cluster cluster;
    private Backlog backlog;

    @BeforeEach
    void startNodes() throws Exception {
        assumeTrue(MountedDisks.areAllowed(), "this user cannot mount a disk");
        cluster = Cluster.onDisks("full", ledger.failure::get, disks::prepare);
        backlog = new Backlog(cluster);
    }

    @AfterEach
    void endNodes() throws Exception {
        clients.abandon();
        if (cluster != null) {
            cluster.close();
        }
        disks.close();
    }

    private void startClients() throws Exception {
        Node leader = cluster.leader();
        cluster.followers(leader);
        for (int queue = 0; queue < QUEUES; queue++) {
            clients.start(Protocol.OPENWIRE, "full." + queue, cluster.nodes);
        }
        cluster.await("commits", () -> ledger.committed.size() > 30);
    }

    /** All have everything, and nothing is lost or doubled. */
    private void finish(String title, List<Long> pauses) throws Exception {
        clients.stopSending();
        cluster.await("the last message", () -> ledger.missing().isEmpty());
        Node leader = cluster.leader();
        cluster.await("all replicas are up to date", () -> {
            for (Node node : cluster.nodes) {
                if (node != leader && leader.metric("postroad_cluster_lag_entries{node=\"" + node.name + "\"}") != 0) {
                    return false;
                }
            }
            return true;
        });
        clients.stop();
        System.out.println("full disk, " + title + ": " + ledger + "; longest sends " + pauses + " ms; backlog " + backlog.sent());
        ledger.assertNothingLostOrDoubled();
        for (long pause : pauses) {
            assertTrue(pause < FLOWS_WITHIN_MS, () -> "a send took " + pause + " ms");
        }
        for (Node node : cluster.nodes) {
            assertTrue(!node.hasLogged("this replica restarts"), () -> node.name + " was restarted\n" + cluster.tails());
        }
    }

    @Test
    @DisplayName("a follower: clients go on, it is named by all, stays up, and catches up once there is space")
    void aFollower() throws Exception {
        startClients();
        Node leader = cluster.leader();
        List<Node> followers = cluster.followers(leader);
        Node full = followers.get(0);
        clients.takePausesMs();
        disks.fill(full, 5 << 20);
        backlog.pile("its disk is full", () -> full.saysFull(full));
        backlog.pile("it says that it lags", () -> full.readiness().contains("is full; it lags until there is space"));
        backlog.pile("it lags", () -> leader.metric("postroad_cluster_lag_entries{node=\"" + full.name + "\"}") > 20);
        int[] before = clients.sends();
        cluster.await("sends go on", () -> clients.haveSent(20, before));
        for (Node node : cluster.nodes) {
            cluster.await(node.name + " names it", () -> node.saysFull(full));
            assertTrue(node.ctl("cluster").contains("node " + full.name + ": its disk, or its disk_bytes_max, is full"), node.ctl("cluster"));
        }
        assertTrue(leader.ctl("cluster").contains("balanced: no, because the disk of " + full.name + " is full"), leader.ctl("cluster"));
        assertTrue(full.hasLogged("the disk of this node is full"), full.tail());
        // It starts with a full disk, too.
        full.signal("KILL");
        full.awaitEnd();
        full.start();
        cluster.await("it is full again", () -> full.readiness().contains("is full; it lags until there is space"));
        disks.giveSpace(full);
        cluster.await("it has space", () -> !full.saysFull(full) && !leader.saysFull(full));
        List<Long> pauses = clients.takePausesMs();
        finish("a follower", pauses);
        assertEquals(leader, cluster.leader(), "the leader stayed");
        // It has everything: with it alone beside the former leader, nothing is missing.
        followers.get(1).signal("KILL");
        followers.get(1).awaitEnd();
        backlog.take(backlog.sent());
    }

    @Test
    @DisplayName("the leader: another one with space leads, and clients go on")
    void theLeader() throws Exception {
        startClients();
        Node full = cluster.leader();
        clients.takePausesMs();
        disks.fill(full, 5 << 20);
        backlog.pile("another one leads", () -> !full.serves());
        Node next = cluster.leader(full);
        int[] before = clients.sends();
        cluster.await("sends go on", () -> clients.haveSent(20, before));
        assertTrue(full.hasLogged("this node hands leadership over, as its disk is full"), full.tail());
        backlog.pile("it lags", () -> next.metric("postroad_cluster_lag_entries{node=\"" + full.name + "\"}") > 20);
        disks.giveSpace(full);
        List<Long> pauses = clients.takePausesMs();
        finish("the leader", pauses);
        backlog.take(backlog.sent());
    }

    @Test
    @DisplayName("two nodes: sends are refused with the reason, consumers go on, and sends as well once there is space")
    void twoNodes() throws Exception {
        startClients();
        Node leader = cluster.leader();
        List<Node> followers = cluster.followers(leader);
        clients.stopSending();
        cluster.await("the last message", () -> ledger.missing().isEmpty());
        for (Node node : followers) {
            disks.fill(node, 5 << 20);
        }
        List<String> refusals = new ArrayList<>();
        backlog.pile("sends are refused", () -> !refusals.isEmpty(), refusal -> {
            assertTrue(refusal instanceof ResourceAllocationException, refusal::toString);
            refusals.add(refusal.getMessage());
        });
        assertTrue(refusals.get(0).contains("full"), refusals.get(0));
        assertTrue(leader.readiness().contains("persistent messages are refused"), leader.readiness());
        long began = System.nanoTime();
        int taken = backlog.sent() / 2;
        backlog.take(10);
        long firstMs = (System.nanoTime() - began) / 1_000_000;
        backlog.take(taken);
        assertTrue(firstMs < FLOWS_WITHIN_MS, () -> "ten messages took " + firstMs + " ms");
        for (Node node : followers) {
            disks.giveSpace(node);
        }
        began = System.nanoTime();
        int before = backlog.sent();
        backlog.pile("sends are taken", () -> before < backlog.sent(), refused -> Thread.sleep(50));
        long resumedMs = (System.nanoTime() - began) / 1_000_000;
        System.out.println("full disk, two nodes: ten messages after " + firstMs + " ms, sends after " + resumedMs + " ms");
        assertTrue(resumedMs < FLOWS_WITHIN_MS, () -> "sends were refused for " + resumedMs + " ms");
        backlog.take(backlog.sent());
        finish("two nodes", List.of());
    }
}
