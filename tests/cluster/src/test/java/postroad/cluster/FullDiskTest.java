package postroad.cluster;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ResourceAllocationException;
import jakarta.jms.Session;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.activemq.ActiveMQConnectionFactory;
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
    private static final int BODY_BYTES = 256 << 10;
    /** What all nodes take in before a disk is full that has no further space: two segments of 64 MiB, and more. */
    private static final int BACKLOG_MAX = 1_200;
    private static final long FLOWS_WITHIN_MS = 5_000;

    private final Clients clients = new Clients();
    private final Ledger ledger = clients.ledger;
    private final List<Path> mounted = new ArrayList<>();
    private Cluster cluster;
    private int backlog;

    @BeforeEach
    void startNodes() throws Exception {
        Path probe = Files.createTempDirectory("postroad-mount-");
        boolean mounts = mount("-t", "tmpfs", "postroad-test", probe.toString());
        assumeTrue(mounts, "this user cannot mount a disk");
        assertTrue(run("umount", probe.toString()));
        Files.delete(probe);
        cluster = Cluster.onDisks("full", ledger.failure::get, node -> {
            Path disk = Files.createDirectories(node.data());
            if (!mount("-t", "tmpfs", "-o", "size=4g", "postroad-test", disk.toString())) {
                throw new IOException("cannot mount " + disk);
            }
            mounted.add(disk);
        });
    }

    @AfterEach
    void endNodes() throws Exception {
        clients.abandon();
        if (cluster != null) {
            cluster.close();
        }
        for (Path disk : mounted) {
            assertTrue(run("umount", "-l", disk.toString()), "umount " + disk);
        }
    }

    private static boolean mount(String... arguments) throws IOException {
        List<String> command = new ArrayList<>(List.of("mount"));
        command.addAll(List.of(arguments));
        return run(command.toArray(String[]::new));
    }

    private static boolean run(String... command) throws IOException {
        try {
            return new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start()
                    .waitFor() == 0;
        } catch (InterruptedException interrupted) {
            throw new IOException(interrupted);
        }
    }

    /** Nothing more than this fits on the disk of a node from now on. */
    private static void fill(Node node, long moreBytes) throws Exception {
        long used = Files.getFileStore(node.data()).getTotalSpace() - Files.getFileStore(node.data()).getUsableSpace();
        assertTrue(mount("-o", "remount,size=" + (used + moreBytes) / 1024 + "k", node.data().toString()), "remount");
    }

    private static void giveSpace(Node node) throws Exception {
        assertTrue(mount("-o", "remount,size=4g", node.data().toString()), "remount");
    }

    private Connection connect() throws Exception {
        String urls = cluster.nodes.stream().map(Node::url).collect(Collectors.joining(","));
        Connection connection = new ActiveMQConnectionFactory("failover:(" + urls + ")?maxReconnectDelay=200").createConnection();
        connection.start();
        return connection;
    }

    private interface Refusal {
        /** Whether to go on. */
        boolean of(JMSException refusal) throws Exception;
    }

    /** Messages without a consumer, until the condition holds. */
    private void pile(String event, Cluster.Condition until, Refusal refusal) throws Exception {
        int limit = backlog + BACKLOG_MAX;
        try (Connection connection = connect()) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageProducer producer = session.createProducer(session.createQueue("backlog"));
            while (!until.holds()) {
                assertTrue(backlog < limit, () -> "not after " + backlog + " messages: " + event + "\n" + tails());
                assertEquals(null, ledger.failure.get(), "a client failed");
                BytesMessage message = session.createBytesMessage();
                message.writeBytes(new byte[BODY_BYTES]);
                message.setIntProperty("number", backlog);
                try {
                    producer.send(message);
                    backlog++;
                } catch (JMSException refused) {
                    if (!refusal.of(refused)) {
                        return;
                    }
                }
            }
        }
    }

    private void pile(String event, Cluster.Condition until) throws Exception {
        pile(event, until, refused -> {
            throw refused;
        });
    }

    /** Takes messages off the backlog, in order. */
    private void takeBacklog(int from, int to) throws Exception {
        try (Connection connection = connect()) {
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            MessageConsumer consumer = session.createConsumer(session.createQueue("backlog"));
            for (int number = from; number < to; number++) {
                int wanted = number;
                BytesMessage message = (BytesMessage) consumer.receive(Cluster.WITHIN_MS);
                assertNotNull(message, () -> "message " + wanted + " of the backlog\n" + tails());
                assertEquals(number, message.getIntProperty("number"));
            }
        }
    }

    private String tails() {
        try {
            return cluster.tails();
        } catch (IOException noLogs) {
            return noLogs.toString();
        }
    }

    private static boolean isFull(Node of, Node says) throws Exception {
        return says.metric("postroad_cluster_full{node=\"" + of.name + "\"}") == 1;
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
        cluster.await("the last message", () -> ledger.seen().containsAll(ledger.sent));
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
        System.out.println("full disk, " + title + ": " + ledger + "; longest sends " + pauses + " ms; backlog " + backlog);
        ledger.assertNothingLostOrDoubled();
        for (long pause : pauses) {
            assertTrue(pause < FLOWS_WITHIN_MS, () -> "a send took " + pause + " ms");
        }
        for (Node node : cluster.nodes) {
            assertTrue(!node.hasLogged("this replica restarts"), () -> node.name + " was restarted\n" + tails());
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
        fill(full, 5 << 20);
        pile("its disk is full", () -> isFull(full, full));
        pile("it says that it lags", () -> full.readiness().contains("is full; it lags until there is space"));
        pile("it lags", () -> leader.metric("postroad_cluster_lag_entries{node=\"" + full.name + "\"}") > 20);
        int[] before = clients.sends();
        cluster.await("sends go on", () -> clients.haveSent(20, before));
        for (Node node : cluster.nodes) {
            cluster.await(node.name + " names it", () -> isFull(full, node));
            assertTrue(node.ctl("cluster").contains("node " + full.name + ": its disk, or its disk_bytes_max, is full"), node.ctl("cluster"));
        }
        assertTrue(leader.ctl("cluster").contains("balanced: no, because the disk of " + full.name + " is full"), leader.ctl("cluster"));
        assertTrue(full.hasLogged("the disk of this node is full"), full.tail());
        // It starts with a full disk, too.
        full.signal("KILL");
        full.awaitEnd();
        full.start();
        cluster.await("it is full again", () -> full.readiness().contains("is full; it lags until there is space"));
        giveSpace(full);
        cluster.await("it has space", () -> !isFull(full, full) && !isFull(full, leader));
        List<Long> pauses = clients.takePausesMs();
        finish("a follower", pauses);
        assertEquals(leader, cluster.leader(), "the leader stayed");
        // It has everything: with it alone beside the former leader, nothing is missing.
        followers.get(1).signal("KILL");
        followers.get(1).awaitEnd();
        takeBacklog(0, backlog);
    }

    @Test
    @DisplayName("the leader: another one with space leads, and clients go on")
    void theLeader() throws Exception {
        startClients();
        Node full = cluster.leader();
        clients.takePausesMs();
        fill(full, 5 << 20);
        pile("another one leads", () -> !full.serves());
        Node next = cluster.leader(full);
        int[] before = clients.sends();
        cluster.await("sends go on", () -> clients.haveSent(20, before));
        assertTrue(full.hasLogged("this node hands leadership over, as its disk is full"), full.tail());
        pile("it lags", () -> next.metric("postroad_cluster_lag_entries{node=\"" + full.name + "\"}") > 20);
        giveSpace(full);
        List<Long> pauses = clients.takePausesMs();
        finish("the leader", pauses);
        takeBacklog(0, backlog);
    }

    @Test
    @DisplayName("two nodes: sends are refused with the reason, consumers go on, and sends as well once there is space")
    void twoNodes() throws Exception {
        startClients();
        Node leader = cluster.leader();
        List<Node> followers = cluster.followers(leader);
        clients.stopSending();
        cluster.await("the last message", () -> ledger.seen().containsAll(ledger.sent));
        for (Node node : followers) {
            fill(node, 5 << 20);
        }
        List<String> refusals = new ArrayList<>();
        pile("sends are refused", () -> !refusals.isEmpty(), refusal -> {
            assertTrue(refusal instanceof ResourceAllocationException, refusal::toString);
            refusals.add(refusal.getMessage());
            return true;
        });
        assertTrue(refusals.get(0).contains("full"), refusals.get(0));
        assertTrue(leader.readiness().contains("persistent messages are refused"), leader.readiness());
        long began = System.nanoTime();
        int taken = backlog / 2;
        takeBacklog(0, 10);
        long firstMs = (System.nanoTime() - began) / 1_000_000;
        takeBacklog(10, taken);
        assertTrue(firstMs < FLOWS_WITHIN_MS, () -> "ten messages took " + firstMs + " ms");
        for (Node node : followers) {
            giveSpace(node);
        }
        began = System.nanoTime();
        int before = backlog;
        pile("sends are taken", () -> before < backlog, refused -> {
            Thread.sleep(50);
            return true;
        });
        long resumedMs = (System.nanoTime() - began) / 1_000_000;
        System.out.println("full disk, two nodes: ten messages after " + firstMs + " ms, sends after " + resumedMs + " ms");
        assertTrue(resumedMs < FLOWS_WITHIN_MS, () -> "sends were refused for " + resumedMs + " ms");
        takeBacklog(taken, backlog);
        finish("two nodes", List.of());
    }
}
